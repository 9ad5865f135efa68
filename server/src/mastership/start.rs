//! The start of a server: finds out what earlier ones left, and chooses the election.

use std::{sync::Arc, time::Duration};

use doorman_openapi::{Epoch, Moment, NodeId, ServerId};
use futures_util::future::BoxFuture;
use tokio::{sync::oneshot, time::sleep};

use super::{
    disk,
    driver::{Driver, MAX_SLEEP, Parts, Resignation},
    etcd,
    fetch::drop_elsewhere,
};
use crate::{
    durability::DataDir, durability::DataDirError, durability::Identity,
    durability::log_outstanding, durability::random_node, etcd::EtcdClient,
    settings::ElectionSettings, util::clock,
};
use doorman_core::{
    election::Alone, election::EtcdElection, election::EtcdOptions, election::FoundState,
    election::Outstanding, election::call_time, etcd::Compare, etcd::EtcdCall, etcd::EtcdReply,
    etcd::Op, etcd::Txn,
};

/// The longest wait for the name of the node.
const NAME_TIME: Duration = Duration::from_secs(1);
/// How often a start without etcd is tried again.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// How often a start that waits for etcd says so.
const LOG_INTERVAL: u32 = 20;

/// The server, as its election needs to know it.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) server_id: ServerId,
    /// The base URL at which others reach it.
    pub(crate) address: String,
    /// Whether an empty data directory means that there was no server before.
    pub(crate) is_first: bool,
}

/// Mastership that has not begun yet, or has just begun.
pub(crate) struct Mastership {
    /// Runs until the end of the server.
    pub(crate) task: BoxFuture<'static, ()>,
    /// Leases of earlier servers that may be outstanding. `None` in an election: other servers may
    /// take over while this one drains.
    pub(crate) earlier: Option<Outstanding>,
}

impl Mastership {
    /// Begins the reign of a server without an election.
    pub(crate) fn begin_alone(
        candidate: Candidate,
        found: &FoundState,
        node: NodeId,
        epoch: Epoch,
        parts: Parts,
        resign: oneshot::Receiver<Resignation>,
    ) -> Result<Self, DataDirError> {
        let address = candidate.address;
        let now = clock::now();
        let assumed = parts.ledger.longest_lease();
        let outstanding = found.outstanding(assumed, now);
        let data_dir = Arc::clone(&parts.data_dir);
        let mut ledger = parts.ledger.new_ledger(epoch);
        let restored = ledger.as_mut().filter(|_| !found.had_election);
        let restored = restored.and_then(|it| data_dir.restore(it, found.last_epoch, now));
        if restored.is_none() {
            log_outstanding(outstanding, now);
            if outstanding.is_assumed {
                parts.earlier_leases.note_unknown();
            }
        }
        let terms = data_dir.terms().to_vec();
        let election = Alone::new(found, restored, epoch, address, assumed, terms, now);
        // Durable before the first response. The bound comes first: the epoch says that it is that
        // of a server without an election.
        let (bound, longest) = election.term().bound;
        data_dir.write_first_bound(bound, longest)?;
        data_dir.write_identity(Identity {
            node,
            epoch,
            election: None,
            longest_booking_nanos: Some(longest),
        })?;
        data_dir.remove_ledger();
        drop_elsewhere(parts.ledger.inherit(ledger.zip(restored)));
        let mut driver = Driver::new(election, disk::execute(data_dir), parts, None);
        driver.start();
        Ok(Self {
            task: Box::pin(driver.run(resign)),
            earlier: Some(outstanding),
        })
    }

    /// Prepares to take part in an election. `client` reaches etcd.
    pub(crate) fn elected(
        candidate: Candidate,
        node: NodeId,
        election: ElectionSettings,
        client: EtcdClient,
        parts: Parts,
        resign: oneshot::Receiver<Resignation>,
    ) -> Result<Self, DataDirError> {
        let Candidate {
            server_id,
            address,
            is_first,
        } = candidate;
        let ElectionSettings { prefix, ttl } = election;
        let data_dir = Arc::clone(&parts.data_dir);
        let found = data_dir.found(is_first);
        let had_election = data_dir.election().as_deref() == Some(&*prefix);
        let was_alone = found.last_epoch.is_some() && !found.had_election;
        // Of an election by another prefix nothing is known but that there were servers.
        let had_other_election = found.had_election && !had_election;
        let had_others = was_alone || had_other_election;
        let earlier_leases = leases_of_others(&found, had_others, &parts);
        // An epoch of 0 is that of a server which heard of none.
        let last_epoch = found.last_epoch.filter(|it| it.get() > 0);
        let identity = Identity {
            node: node.clone(),
            epoch: last_epoch.unwrap_or(Epoch::ZERO),
            election: Some(prefix.clone()),
            longest_booking_nanos: found.longest,
        };
        data_dir.write_identity(identity.clone())?;
        let options = EtcdOptions {
            node,
            ttl,
            server_id: server_id.to_string(),
            address,
            instance: fastrand::u64(..),
            last_epoch,
            had_election,
            stored_ledger: data_dir
                .ledger_epoch()
                .filter(|_| had_election || was_alone)
                .map(|epoch| (epoch, had_election)),
            earlier_leases,
            longest: found.longest,
            terms: data_dir.terms().to_vec(),
            is_first,
            prefix,
        };
        let execute = etcd::execute(client, call_time(ttl));
        let driver = Driver::new(EtcdElection::new(options), execute, parts, Some(identity));
        let forgotten = async move {
            if let Some(until) = earlier_leases {
                while clock::now() < until {
                    sleep(until.since(clock::now()).min(MAX_SLEEP)).await;
                }
                data_dir.remove_bound();
            }
        };
        Ok(Self {
            task: Box::pin(async { ((), ()) = tokio::join!(driver.run(resign), forgotten) }),
            earlier: None,
        })
    }
}

/// Until when leases of the time without this election may be outstanding.
fn leases_of_others(found: &FoundState, had_others: bool, parts: &Parts) -> Option<Moment> {
    let now = clock::now();
    // The bound stays that of the time without an election.
    let bound = FoundState {
        had_election: false,
        ..*found
    };
    let assumed = parts.ledger.longest_lease();
    let outstanding = bound.outstanding(assumed, now);
    let has_bound = parts.data_dir.has_bound();
    let until = outstanding.until.filter(|until| now < *until);
    let until = until.filter(|_| had_others || has_bound);
    if until.is_some() && outstanding.is_assumed {
        parts.earlier_leases.note_unknown();
    }
    if until.is_none() && has_bound {
        // After a reboot its clock would mean nothing any more.
        parts.data_dir.remove_bound();
    }
    until
}

/// The name of the node, which all of its servers share in etcd. Waits for etcd, unless the data
/// directory has the name.
///
/// # Errors
/// Another name than `given` is in etcd.
pub(crate) async fn node_name(
    client: &EtcdClient,
    prefix: &str,
    given: Option<NodeId>,
    data_dir: &DataDir,
) -> Result<NodeId, OtherNode> {
    let wanted = given.clone().or_else(|| data_dir.node());
    let wanted = wanted.unwrap_or_else(random_node);
    let key = format!("{prefix}/node");
    let txn = Txn {
        compare: vec![Compare::Created {
            key: key.clone(),
            revision: 0,
        }],
        success: vec![Op::Put {
            key: key.clone(),
            value: wanted.as_str().as_bytes().to_vec(),
            lease: None,
        }],
        failure: vec![Op::Get(key)],
    };
    let accept = |stored: NodeId| match &given {
        Some(given) if *given != stored => Err(OtherNode {
            stored,
            prefix: prefix.to_owned(),
        }),
        _ => Ok(stored),
    };
    let mut attempt: u32 = 0;
    loop {
        let reply = client.call(EtcdCall::Txn(txn.clone()), NAME_TIME).await;
        let error = match reply {
            Ok(EtcdReply::Txn(reply)) if reply.succeeded => return Ok(wanted),
            Ok(EtcdReply::Txn(reply)) => {
                let stored = reply.results.first().and_then(|it| it.first());
                let stored = stored.and_then(|it| String::from_utf8(it.value.clone()).ok());
                match stored.and_then(|it| NodeId::new(it).ok()) {
                    Some(stored) => return accept(stored),
                    None => format!("the value of {prefix}/node is no valid name"),
                }
            }
            Ok(_) => "unexpected reply".to_owned(),
            Err(error) => error.to_string(),
        };
        if data_dir.election().as_deref() == Some(prefix)
            && let Some(node) = data_dir.node()
        {
            let node = accept(node)?;
            tracing::warn!(error, "etcd does not answer; starting as a standby");
            return Ok(node);
        }
        if attempt.is_multiple_of(LOG_INTERVAL) {
            tracing::warn!(error, "waiting for etcd to learn the name of the node");
        }
        attempt = attempt.wrapping_add(1);
        sleep(RETRY_DELAY).await;
    }
}

/// The node has another name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the servers with --election-prefix {prefix} are the node {stored}: pass --node {stored}, or none, \
     or another prefix"
)]
pub struct OtherNode {
    stored: NodeId,
    prefix: String,
}
