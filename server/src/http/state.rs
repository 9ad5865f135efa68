//! The parts of the server that handlers use.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use doorman_openapi::{Moment, NodeId, ServerId};
use tokio::sync::watch;

use crate::{
    auth::Auth, document::ActiveDocument, document::DocumentEditor, etcd::EtcdClient,
    http::AllowedHosts, http::BodyBuffer, http::CursorKey, leasing::SharedLedger,
    mastership::EarlierLeaseLength, mastership::HandoverOffer, net::ConnectionMetrics,
    net::tls::Tls, observe::metrics::Outcomes, observe::metrics::RequestMetrics, quota::Quotas,
    upstream::ParentNode,
};
use doorman_core::election::View;

/// All parts behind one reference, which is cheap to clone for every request.
pub(crate) type AppState = Arc<AppParts>;

#[derive(Debug)]
pub(crate) struct AppParts {
    pub(crate) ledger: Arc<SharedLedger>,
    pub(crate) document: Arc<ActiveDocument>,
    pub(crate) editor: Arc<DocumentEditor>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) server: Arc<ServerInfo>,
    /// The master of the node, as far as this server knows.
    pub(crate) master: watch::Receiver<View>,
    pub(crate) offer: Arc<HandoverOffer>,
    pub(crate) handovers: Outcomes,
    pub(crate) draining: Arc<Draining>,
    pub(crate) cursor_key: Arc<CursorKey>,
    /// Memory for bodies that are still arriving.
    pub(crate) body_buffer: BodyBuffer,
    /// Hosts that requests without a token may name.
    pub(crate) allowed_hosts: AllowedHosts,
    /// `None`: callers are not authenticated.
    pub(crate) auth: Option<Arc<Auth>>,
    /// `None`: plain HTTP.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) requests: RequestMetrics,
    pub(crate) connections: ConnectionMetrics,
}

/// How long the election may not be read until the master may be another one: some polls.
const MAX_ELECTION_AGE: Duration = Duration::from_secs(3);

impl AppParts {
    pub(crate) fn is_etcd_out_of_space(&self) -> bool {
        let etcd = self.server.etcd.as_ref();
        etcd.is_some_and(EtcdClient::is_out_of_space)
    }

    /// For how long every endpoint of etcd that executes calls has been behind.
    pub(crate) fn etcd_behind_for(&self, now: Moment) -> Option<Duration> {
        self.server.etcd.as_ref()?.behind_for(now)
    }

    /// For how long the election could not be read; `None` while it can, and without one.
    pub(crate) fn election_unread_for(&self, now: Moment) -> Option<Duration> {
        let age = now.since(self.master.borrow().unread_since?);
        (age > MAX_ELECTION_AGE).then_some(age)
    }
}

/// Facts about the server that never change while it runs.
#[derive(Debug)]
pub(crate) struct ServerInfo {
    /// `None`: neither the election nor the document is in etcd.
    pub(crate) etcd: Option<EtcdClient>,
    pub(crate) server_id: ServerId,
    pub(crate) node: NodeId,
    /// The parent node; `None` at the root.
    pub(crate) parent: Option<Arc<ParentNode>>,
    pub(crate) max_leases: usize,
    /// The base URL at which others reach it.
    pub(crate) advertise: String,
    pub(crate) config_source: String,
    /// The data directory was empty, and treated as that of a first start.
    pub(crate) assumed_first_start: bool,
    pub(crate) earlier_leases: Arc<EarlierLeaseLength>,
    pub(crate) started: Moment,
}

impl ServerInfo {
    /// Its level in the tree; 0 for the root.
    pub(crate) fn level(&self) -> u32 {
        self.parent.as_ref().map_or(0, |parent| parent.level())
    }

    /// Why the parent does not renew leases; `None` at the root, and while it does.
    pub(crate) fn parent_problem(&self, now: Moment) -> Option<String> {
        self.parent.as_ref()?.problem(now)
    }

    /// The base URL of a server of the root, as far as it is known.
    pub(crate) fn root(&self) -> Option<String> {
        match &self.parent {
            None => Some(self.advertise.clone()),
            Some(parent) => parent.root(),
        }
    }
}

/// Whether the server is shutting down.
#[derive(Debug, Default)]
pub(crate) struct Draining {
    has_begun: watch::Sender<bool>,
    failed_task: OnceLock<&'static str>,
}

impl Draining {
    pub(crate) fn begin(&self) {
        self.has_begun.send_replace(true);
    }

    /// A background task has ended, so that the server is about to shut down.
    pub(crate) fn fail(&self, task: &'static str) {
        self.failed_task.get_or_init(|| task);
    }

    pub(crate) fn failed_task(&self) -> Option<&'static str> {
        self.failed_task.get().copied()
    }

    pub(crate) fn has_begun(&self) -> bool {
        *self.has_begun.borrow()
    }

    /// Waits until it has begun.
    pub(crate) async fn begun(&self) {
        // The sender is this one, so it does not fail.
        drop(self.has_begun.subscribe().wait_for(|begun| *begun).await);
    }
}
