//! Operations of etcd, as far as the election and the document need them.
//!
//! They are values, so that the election can be a state machine without IO: the server sends them
//! to etcd's JSON gateway, the simulation to a model of etcd.

/// Id of a lease of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub i64);

/// A call to etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdCall {
    /// Creates a lease.
    GrantLease {
        /// Seconds to live. etcd raises 1 to 2.
        ttl: u32,
    },
    /// Renews a lease for its full time to live.
    KeepAlive(LeaseId),
    /// Reads what is left of a lease.
    TimeToLive(LeaseId),
    /// Ends a lease, and deletes its keys.
    RevokeLease(LeaseId),
    /// Reads and writes keys atomically.
    Txn(Txn),
}

impl EtcdCall {
    /// Whether etcd refuses the call when it is out of space.
    #[must_use]
    pub fn needs_space(&self) -> bool {
        match self {
            Self::GrantLease { .. } => true,
            Self::Txn(txn) => {
                let mut ops = txn.success.iter().chain(&txn.failure);
                ops.any(|it| matches!(it, Op::Put { .. }))
            }
            Self::KeepAlive(_) | Self::TimeToLive(_) | Self::RevokeLease(_) => false,
        }
    }
}

/// A reply, and the state of the member of etcd that sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdAnswer {
    /// Tells whether the member was up to date.
    pub header: ReplyHeader,
    /// The reply.
    pub reply: EtcdReply,
}

/// How much of etcd's history a member knew when it replied; zeros where the reply does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The id of the cluster.
    pub cluster: u64,
    /// The term of the leader that it follows. It grows with each election of a leader.
    pub raft_term: u64,
    /// The revision of its store.
    pub revision: u64,
}

/// The reply to a call of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdReply {
    /// A lease was created.
    LeaseGranted {
        /// Its id.
        lease: LeaseId,
        /// Its seconds to live.
        ttl: u32,
    },
    /// The seconds that the lease lives from the renewal on; `None` if there is no such lease.
    KeptAlive(Option<u32>),
    /// The rest of the lease in seconds, rounded down, and at most what was granted; `None` if
    /// there is no such lease.
    TimeLeft(Option<u32>),
    /// The lease is gone, or there was none.
    LeaseRevoked,
    /// A transaction was executed.
    Txn(TxnReply),
}

/// A transaction: executes `success` if all comparisons hold, else `failure`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    /// Comparisons; none hold trivially.
    pub compare: Vec<Compare>,
    /// Operations if they hold.
    pub success: Vec<Op>,
    /// Operations if they do not.
    pub failure: Vec<Op>,
}

/// A comparison of a transaction. Revision 0 means that the key does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key was created in this revision.
    Created {
        /// The key.
        key: String,
        /// Its revision.
        revision: u64,
    },
    /// The key was last written in this revision.
    Modified {
        /// The key.
        key: String,
        /// Its revision.
        revision: u64,
    },
}

/// An operation of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Reads a key.
    Get(String),
    /// Reads all keys with a prefix, in their order.
    GetPrefix(String),
    /// Writes a key, which lives as long as the lease.
    Put {
        /// The key.
        key: String,
        /// Its value.
        value: Vec<u8>,
        /// The lease that it is attached to.
        lease: Option<LeaseId>,
    },
    /// Deletes a key.
    Delete(String),
    /// Deletes all keys with a prefix.
    DeletePrefix(String),
}

impl Op {
    /// Writes a key, which lives as long as the lease, or for ever.
    #[must_use]
    pub fn put(key: String, value: Vec<u8>, lease: Option<LeaseId>) -> Self {
        Self::Put { key, value, lease }
    }
}

/// The result of a transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TxnReply {
    /// Whether all comparisons held.
    pub succeeded: bool,
    /// The revision of the store after the transaction.
    pub revision: u64,
    /// For each executed operation the keys that it found or deleted; none for a write.
    pub results: Vec<Vec<KeyValue>>,
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision of its creation.
    pub created: u64,
    /// The revision of its last write.
    pub modified: u64,
    /// The lease that it is attached to.
    pub lease: Option<LeaseId>,
}
