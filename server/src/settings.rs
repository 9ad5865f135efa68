//! Server settings.

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, sync::Arc};

use doorman_config::{Document, Source};
use doorman_openapi::{NodeId, Seconds, ServerId, ServerUrl};

use crate::{
    auth::AuthSettings, durability::EmptyDirectory, etcd::EtcdSettings, net::tls::TlsSettings,
    quota::CallerLimit, upstream::ParentSettings,
};
use doorman_core::ledger::UnmatchedPolicy;

/// Server settings. The default is that of the command line, with the built-in document.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address of the API; port 0 takes a free port.
    pub listen: SocketAddr,
    /// Address of a second listener for metrics and probes alone, without TLS and tokens. `None`:
    /// they are served on `listen` only.
    pub metrics_listen: Option<SocketAddr>,
    /// Directory of the files that survive a restart; created when it is missing.
    pub data_dir: PathBuf,
    /// The document; with a store, the first document of a new one.
    pub document: Arc<Document>,
    /// The error of the file when it is invalid, and `document` is an older version of it.
    pub document_error: Option<String>,
    /// The source that changes the document. `None`: it never changes.
    pub document_source: Option<Source>,
    /// Name of the source, for people.
    pub config_source: String,
    /// URL at which others reach the server; `None`: the address of the listener.
    pub advertise: Option<ServerUrl>,
    /// Name of the server; `None`: host name and port.
    pub server_id: Option<ServerId>,
    /// Certificate authorities of the other servers of the node (PEM); `None`: those of the system.
    pub peer_ca_file: Option<PathBuf>,
    /// Name of the node; `None`: the one in the data directory.
    pub node: Option<NodeId>,
    /// The parent node, which leases the capacity; `None`: this is the root, and the document has
    /// it.
    pub parent: Option<ParentSettings>,
    /// The most leases of all resources together.
    pub max_leases: usize,
    /// The most open connections; fewer when the process may not open so many files. Beyond it, the
    /// connections that have been idle for longest are closed.
    pub max_connections: NonZeroUsize,
    /// Whether a log line says what each holder that ends has used.
    pub logs_usage: bool,
    /// Treatment of resources without a template.
    pub unmatched: UnmatchedPolicy,
    /// Keys of the accepted tokens; `None`: callers are not authenticated.
    pub auth: Option<AuthSettings>,
    /// Certificate of `listen`; `None`: plain HTTP.
    pub tls: Option<TlsSettings>,
    /// Addresses on which an unauthenticated server may listen.
    pub exposure: Exposure,
    /// Meaning of an empty data directory.
    pub empty_directory: EmptyDirectory,
    /// No earlier lease of the node was longer: matters where nothing is stored about their length.
    /// `None`: then none is assumed to be longer than those of the document.
    pub longest_lease: Option<Seconds>,
    /// Rate limit of each caller.
    pub callers: CallerLimit,
    /// The etcd of the node's servers; `None`: this server is alone.
    pub etcd: Option<EtcdSettings>,
    /// The election of the master in etcd; `None`: this server is the master.
    pub election: Option<ElectionSettings>,
}

/// The election of a master among the servers of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionSettings {
    /// Prefix of the keys, without a slash at its end. All servers of a node have the same, and no
    /// others.
    pub prefix: String,
    /// Seconds that the master's lease lives without a renewal.
    pub ttl: u32,
}

/// Addresses on which an unauthenticated server may listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exposure {
    /// Loopback only.
    #[default]
    Loopback,
    /// Any. Everybody who reaches the address can take leases, and release those of others.
    Anybody,
}

impl Settings {
    /// Default port.
    pub const PORT: u16 = 7300;

    /// Default maximum of open connections. So many idle ones take some 32 MiB of resident memory:
    /// 1.4 KiB each, and 18 KiB for each of at most 1,000 that were active within the last second.
    /// TLS adds 8 KiB each, which makes 110 MiB (x86-64 Linux).
    pub const MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], Self::PORT)),
            metrics_listen: None,
            data_dir: PathBuf::from("./doorman-data"),
            document: Arc::new(Document::built_in()),
            document_error: None,
            document_source: None,
            config_source: "built-in".to_owned(),
            advertise: None,
            server_id: None,
            peer_ca_file: None,
            node: None,
            parent: None,
            max_leases: 1_000_000,
            max_connections: Self::MAX_CONNECTIONS,
            logs_usage: false,
            unmatched: UnmatchedPolicy::Grant,
            auth: None,
            tls: None,
            exposure: Exposure::Loopback,
            empty_directory: EmptyDirectory::MayBeLost,
            longest_lease: None,
            callers: CallerLimit::default(),
            etcd: None,
            election: None,
        }
    }
}
