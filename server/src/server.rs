//! The server from its start to its stop: assembles all parts.

use std::{
    future::Future, io, net::SocketAddr, num::NonZeroUsize, pin::pin, sync::Arc, time::Duration,
};

use axum::Router;
use doorman_core::{
    ledger::Tuning,
    master::{Master, MasterSettings},
    upstream::ParentLink,
};
use doorman_openapi::{Epoch, InvalidId, NodeId, Seconds, ServerId, ServerUrl};
use futures_util::{FutureExt, future::join};
use tokio::{
    sync::{Notify, oneshot, watch},
    time::timeout,
};
use tower_doorman::lease::TransportError;

use crate::{
    auth::Auth, auth::AuthError, document::ActiveDocument, document::DocumentEditor,
    document::DocumentFollower, document::DocumentState, document::DocumentStore,
    document::OpenDocumentError, document::OpenedDocument, document::ParentRules, durability,
    durability::DataDir, durability::DataDirError, durability::DataDirLock,
    durability::EmptyDirectory, etcd::EtcdClient, etcd::EtcdError, http, http::AllowedHosts,
    http::BodyBuffer, http::state::AppParts, http::state::AppState, http::state::ServerInfo,
    leasing::SharedLedger, leasing::sweeper, mastership::Candidate, mastership::EarlierLeaseLength,
    mastership::Mastership, mastership::OtherNode, mastership::Parts, mastership::Peers,
    mastership::Resignation, mastership::handover_counts, mastership::node_name,
    net::ConnectionMetrics, net::Listener, net::tls::Tls, observe::context,
    observe::ledger_events::LedgerEventLog, observe::metrics::RequestMetrics, quota::CallerLimit,
    quota::Quotas, settings::Exposure, settings::Settings, tasks::Tasks, upstream::ParentNode,
    upstream::ParentSettings, upstream::UpstreamTask, util::clock, util::small_file::FileError,
};
use doorman_core::{election::Outstanding, election::Reason, election::View};

/// How long etcd may take to record a resignation.
const RESIGN_TIME: Duration = Duration::from_secs(2);

/// The most connections of the listener for metrics and probes.
const METRICS_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");

/// A control plane that is bound to its address and serves as soon as it [runs](Self::run).
///
/// ```no_run
/// use doorman_server::{Server, Settings};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::bind(Settings::default()).await?;
/// println!("{}://{}", server.scheme(), server.local_addr());
/// server.run(async { tokio::signal::ctrl_c().await.unwrap_or(()) }).await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    metrics_listener: Option<Listener>,
    app: AppState,
    data_dir: Arc<DataDir>,
    lock: Arc<DataDirLock>,
    /// Those that need no connection, such as the election, run already.
    tasks: Tasks,
    resign: oneshot::Sender<Resignation>,
    /// Leases of earlier servers that may be outstanding; `None` in an election.
    earlier: Option<Outstanding>,
    document_state: DocumentState,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address is not on loopback, and callers are not authenticated.
    #[error(
        "without authentication the server listens on loopback only, not on {0}: pass \
         --auth-secret-file, --auth-key-file or --auth-jwks, or listen on 127.0.0.1, or pass \
         --insecure-no-auth to allow everything to everybody who can connect"
    )]
    NeedsAuthentication(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The authentication settings are invalid.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The TLS files of the listener, or for the other servers of the node, cannot be used.
    #[error(transparent)]
    Tls(#[from] FileError),
    /// The advertised URL is not encrypted, but the listener is.
    #[error(
        "--advertise {0} does not begin with https://, but with --tls-cert the server speaks TLS \
         only: pass an https:// URL, or none"
    )]
    AdvertisesPlain(ServerUrl),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The settings of etcd are invalid.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The node has another name.
    #[error(transparent)]
    OtherNode(#[from] OtherNode),
    /// There is no document.
    #[error(transparent)]
    Document(#[from] OpenDocumentError),
    /// The certificate authorities of the parent node's servers cannot be used.
    #[error("cannot set up TLS for the parent: {0}")]
    Parent(TransportError),
    /// The host name is not a valid part of a server name.
    #[error("the host name is not valid as a server name: pass --server-id")]
    ServerId(#[source] InvalidId),
}

/// How a server stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Stopped {
    /// Connections that were closed before their last response was sent.
    pub cut_off: usize,
    /// The background task that ended or panicked, so that the server stopped by itself.
    pub failed: Option<&'static str>,
}

impl Server {
    /// Binds the address and recovers the data directory. No request is answered yet.
    ///
    /// # Errors
    /// [`StartError`] when the settings, the address or the data directory cannot be used.
    #[expect(clippy::too_many_lines, reason = "assembles all parts, in order")]
    pub async fn bind(mut settings: Settings) -> Result<Self, StartError> {
        let is_loopback = settings.listen.ip().to_canonical().is_loopback();
        check(&settings, is_loopback)?;
        let Credentials { auth, tls, peers } = Credentials::load(&mut settings, is_loopback)?;
        let etcd = settings.etcd.as_ref().map(EtcdClient::new).transpose()?;
        if etcd.is_some() {
            peers.check()?;
        }
        // Bound first: a start that fails on a port in use must not begin an epoch.
        let (listener, metrics_listener) = listen(&settings, tls.as_ref())?;
        let address = listener.address();
        // The store may be in the data directory.
        durability::create_dir(&settings.data_dir)?;
        let parent = settings.parent.clone();
        let parent = parent.map(|of_parent| {
            let node = ParentNode::new(&of_parent.servers, clock::now());
            (of_parent, Arc::new(node))
        });
        let node = parent.as_ref().map(|(_, node)| &**node);
        let mut opened = open_document(&mut settings, node, etcd.clone()).await?;
        let advertise = advertised(settings.advertise.take(), scheme(tls.as_ref()), address);
        let server_id = server_id(settings.server_id.take(), address)?;
        let (data_dir, lock) = DataDir::open(settings.data_dir.clone())?;
        let is_first = is_loopback || settings.empty_directory == EmptyDirectory::FirstStart;
        let (parts, master) = parts(&settings, &opened, data_dir, peers);
        let shared = parts.clone();
        let candidate = Candidate {
            server_id: server_id.clone(),
            address: advertise.clone(),
            is_first,
        };
        let (resign, resignation) = oneshot::channel();
        let begun = begin(&mut settings, candidate, etcd.clone(), parts, resignation);
        let (node, Mastership { task, earlier }) = begun.await?;
        let mut tasks = Tasks::default();
        if let Some(parent) = &parent {
            let url = advertise.parse().ok();
            let upstream = follow_parent(&mut opened, &settings, parent, &shared, &node, url);
            tasks.add("upstream", upstream.map_err(StartError::Parent)?.run());
        }
        let server = ServerInfo {
            etcd: etcd.clone(),
            server_id,
            node,
            parent: parent.map(|(_, node)| node),
            max_leases: settings.max_leases,
            advertise,
            config_source: settings.config_source,
            assumed_first_start: earlier.is_some_and(|it| it.reason == Reason::FirstStart),
            earlier_leases: Arc::clone(&shared.earlier_leases),
            started: clock::now(),
        };
        if let Some(error) = &opened.error {
            shared.document.reject(error);
        }
        tasks.spawn("election", task);
        if let Some(etcd) = etcd {
            tasks.add("etcd-space", etcd.follow_space());
        }
        let hosts = if is_loopback {
            AllowedHosts::of_loopback(&server.advertise)
        } else {
            AllowedHosts::any(&server.advertise)
        };
        let (store, callers) = (opened.store, settings.callers);
        let app = app_state(&shared, master, server, store, callers, hosts, (auth, tls));
        add_tasks(&mut tasks, &app, opened.follower);
        Ok(Self {
            listener,
            metrics_listener,
            app,
            data_dir: shared.data_dir,
            lock,
            tasks,
            resign,
            earlier,
            document_state: opened.state,
        })
    }

    /// Address of the API, with the actual port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.address()
    }

    /// URL at which others reach the server.
    #[must_use]
    pub fn advertised(&self) -> &str {
        &self.app.server.advertise
    }

    /// Name of the server's node.
    #[must_use]
    pub fn node(&self) -> &NodeId {
        &self.app.server.node
    }

    /// Whether a parent node leases the capacity; else the document has it.
    #[must_use]
    pub fn has_parent(&self) -> bool {
        self.app.server.parent.is_some()
    }

    /// The epoch of this start; `None` in an election, where every reign has its own.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        self.earlier.and(self.app.master.borrow().epoch)
    }

    /// Version of the active document.
    #[must_use]
    pub fn document_version(&self) -> String {
        self.app.document.get().version().to_owned()
    }

    /// How the document of the start relates to its source.
    #[must_use]
    pub fn document_state(&self) -> DocumentState {
        self.document_state
    }

    /// How long new clients get nothing because the data directory was empty, and the leases of
    /// another may be outstanding; `None` where no earlier server can have lost one.
    #[must_use]
    pub fn first_start_learning(&self) -> Option<Duration> {
        let earlier = self.earlier.as_ref();
        let lost = earlier.filter(|it| it.reason == Reason::EmptyDirectory)?;
        Some(lost.until?.since(clock::now()))
    }

    /// Address of the listener for metrics and probes, with the actual port.
    #[must_use]
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics_listener.as_ref().map(Listener::address)
    }

    /// `https` with TLS, else `http`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        scheme(self.app.tls.as_ref())
    }

    /// All routes, to call them without a connection.
    pub fn router(&self) -> Router {
        http::router(self.app.clone())
    }

    /// Serves until `shutdown` is ready, or a background task ends, which fails readiness. A server
    /// in an election then hands its ledger over to the next master, for which it waits up to 3 s
    /// (and before, on a planned stop, up to 30 s for an etcd that is out of space),
    /// and then for as long as that reads it without a pause of 2 s. Then it drains the connections
    /// for up to 8 s, and writes a ledger that nobody has taken for the next start.
    ///
    /// # Cancel safety
    /// When it is dropped, all connections are closed, and the ledger is lost: the next master
    /// learns the leases from their holders.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Stopped {
        let router = self.router();
        let Self {
            listener,
            metrics_listener,
            app,
            data_dir,
            lock,
            mut tasks,
            resign,
            earlier,
            document_state: _,
        } = self;
        tasks.start();
        // Without an election nobody takes over: it ends when no request can use it any more.
        let mut resign_last = Some(resign);
        let resign_first = resign_last.take_if(|_| earlier.is_none());
        let has_failed = Notify::new();
        let shutdown = async {
            let is_planned = tokio::select! {
                () = shutdown => true,
                () = has_failed.notified() => false,
            };
            let Some(resign) = resign_first else {
                return;
            };
            if let Some(etcd) = app.server.etcd.as_ref().filter(|_| is_planned) {
                tokio::select! {
                    () = etcd.wait_for_space(|| app.ledger.is_master()) => {}
                    () = has_failed.notified() => {}
                }
            }
            if self::resign(resign).await {
                // The next master asks for the ledger while connections are still accepted.
                app.offer.sent().await;
            }
        };
        let mut served = pin!(serve(listener, metrics_listener, router, &app, shutdown));
        let (cut_off, failed) = tokio::select! {
            cut_off = &mut served => (cut_off, None),
            name = tasks.failed() => {
                app.draining.fail(name);
                has_failed.notify_one();
                // Requests still get a response.
                (served.await, Some(name))
            }
        };
        if let Some(resign) = resign_last {
            self::resign(resign).await;
        }
        tasks.shutdown().await;
        write_ledger(&app, data_dir, lock).await;
        Stopped { cut_off, failed }
    }
}

/// The means to identify callers and this server.
struct Credentials {
    auth: Option<Arc<Auth>>,
    tls: Option<Arc<Tls>>,
    peers: Peers,
}

impl Credentials {
    /// Loads what the settings name, and warns of tokens that cross a network unencrypted.
    fn load(settings: &mut Settings, is_loopback: bool) -> Result<Self, StartError> {
        let auth = settings.auth.take().map(Auth::load).transpose()?;
        let auth = auth.map(|auth| Arc::new(auth.with_outgoing_headers(context::outgoing_headers)));
        let identity = settings.tls.as_ref();
        let identity = identity.map(|tls| (tls.certificate.clone(), tls.key.clone()));
        let peers = Peers::new(settings.peer_ca_file.take(), identity);
        let tls = settings.tls.take().map(Tls::load).transpose()?;
        if !is_loopback && auth.is_some() && tls.is_none() {
            tracing::warn!(
                "tokens cross the network unencrypted: pass --tls-cert and --tls-key, unless a \
                 proxy in front of {} terminates TLS and nobody else can reach it",
                settings.listen
            );
        }
        let parent = settings.parent.as_ref();
        if let Some(server) = parent.and_then(ParentSettings::gets_token_unencrypted) {
            tracing::warn!(%server, "the token for the parent is sent unencrypted: use https in --parent");
        }
        Ok(Self {
            auth,
            tls: tls.map(Arc::new),
            peers,
        })
    }
}

async fn open_document(
    settings: &mut Settings,
    parent: Option<&ParentNode>,
    etcd: Option<EtcdClient>,
) -> Result<OpenedDocument, StartError> {
    let home = settings.data_dir.clone();
    if let Some(parent) = parent
        && let Some(document) =
            ParentRules::stored(&settings.config_source, &home, &settings.document)
    {
        settings.document = Arc::new(document);
        parent.set_has_rules();
    }
    let opened = OpenedDocument::open(
        settings.document_source.clone(),
        Arc::clone(&settings.document),
        settings.document_error.take(),
        home,
        etcd,
    );
    Ok(opened.await?)
}

/// A node below a parent leases its capacity from there, and takes its rules.
fn follow_parent(
    opened: &mut OpenedDocument,
    settings: &Settings,
    parent: &(ParentSettings, Arc<ParentNode>),
    parts: &Parts,
    node: &NodeId,
    address: Option<ServerUrl>,
) -> Result<UpstreamTask, TransportError> {
    let (of_parent, parent) = parent;
    let source = settings.config_source.clone();
    let rules = ParentRules::new(of_parent, Arc::clone(parent), source, &settings.data_dir)?;
    opened.follower = Some(Box::new(|active| Box::pin(rules.follow(active))));
    opened.store = DocumentStore::Parent(Arc::clone(parent));
    UpstreamTask::new(
        of_parent,
        node.clone(),
        address,
        Arc::clone(&parts.ledger),
        Arc::clone(parent),
    )
}

/// The parts that the mastership shares with the API, and a view of the master.
fn parts(
    settings: &Settings,
    opened: &OpenedDocument,
    data_dir: DataDir,
    peers: Peers,
) -> (Parts, watch::Receiver<View>) {
    // Polls leave half of the connections to requests.
    let max_polls = (settings.max_connections.get() / 2).max(1);
    let master = MasterSettings {
        max_leases: settings.max_leases,
        unmatched: settings.unmatched,
        logs_usage: settings.logs_usage,
        longest: settings.longest_lease.unwrap_or(Seconds::ZERO),
        tuning: &Tuning::DEFAULT,
    };
    let master = Master::new(master, Arc::clone(&opened.document));
    let ledger = Arc::new(SharedLedger::new(master, max_polls));
    let document = ActiveDocument::new(Arc::clone(&ledger), Arc::clone(&opened.document));
    let (view, master) = watch::channel(View::default());
    let parts = Parts {
        earlier_leases: Arc::new(EarlierLeaseLength::new(settings.longest_lease.is_some())),
        ledger,
        document: Arc::new(document),
        data_dir: Arc::new(data_dir),
        offer: Arc::default(),
        peers,
        handovers: handover_counts(),
        view,
    };
    (parts, master)
}

/// The state behind the API.
fn app_state(
    parts: &Parts,
    master: watch::Receiver<View>,
    server: ServerInfo,
    store: DocumentStore,
    callers: CallerLimit,
    allowed_hosts: AllowedHosts,
    (auth, tls): (Option<Arc<Auth>>, Option<Arc<Tls>>),
) -> AppState {
    let document = Arc::clone(&parts.document);
    let editor = DocumentEditor::new(Arc::clone(&document), store, &server.config_source);
    AppState::from(AppParts {
        ledger: Arc::clone(&parts.ledger),
        document,
        editor: Arc::new(editor),
        quotas: Arc::new(Quotas::new(callers)),
        allowed_hosts,
        server: Arc::new(server),
        master,
        offer: Arc::clone(&parts.offer),
        handovers: parts.handovers.clone(),
        draining: Arc::default(),
        cursor_key: Arc::default(),
        body_buffer: BodyBuffer::default(),
        auth,
        tls,
        requests: RequestMetrics::default(),
        connections: ConnectionMetrics::default(),
    })
}

/// Finds out the name of the node, and prepares or begins the mastership.
async fn begin(
    settings: &mut Settings,
    candidate: Candidate,
    etcd: Option<EtcdClient>,
    parts: Parts,
    resign: oneshot::Receiver<Resignation>,
) -> Result<(NodeId, Mastership), StartError> {
    let name = settings.node.take();
    let shared = Arc::clone(&parts.ledger);
    let endpoints = settings.parent.as_ref().map(|it| it.servers.len());
    let set_parent = |node: &NodeId| {
        if let Some(endpoints) = endpoints {
            shared.lease_from(ParentLink {
                node: node.clone(),
                endpoints,
                seed: fastrand::u64(..),
                polls: true,
            });
        }
    };
    if let (Some(client), Some(election)) = (etcd, settings.election.take()) {
        let node = node_name(&client, &election.prefix, name, &parts.data_dir).await?;
        set_parent(&node);
        let mastership =
            Mastership::elected(candidate, node.clone(), election, client, parts, resign)?;
        return Ok((node, mastership));
    }
    let found = parts.data_dir.found(candidate.is_first);
    let (node, epoch) = parts.data_dir.next_epoch(name, clock::unix_seconds())?;
    set_parent(&node);
    let mastership =
        Mastership::begin_alone(candidate, &found, node.clone(), epoch, parts, resign)?;
    Ok((node, mastership))
}

/// Serves until `shutdown` is ready and the connections are drained. Returns how many were cut off.
async fn serve(
    listener: Listener,
    metrics_listener: Option<Listener>,
    router: Router,
    app: &AppState,
    shutdown: impl Future<Output = ()>,
) -> usize {
    let shutdown = shutdown.shared();
    let metrics = async {
        if let Some(listener) = metrics_listener {
            let is_loopback = listener.address().ip().is_loopback();
            let router = http::metrics_router(app.clone(), is_loopback);
            let metrics = ConnectionMetrics::default();
            listener
                .serve(router, metrics, shutdown.clone(), || (), |_| 0)
                .await;
        }
    };
    let on_drain = || {
        app.draining.begin();
        app.ledger.polls().set_leaving(true);
    };
    let end_polls = |count| app.ledger.polls().free_connections(count);
    let connections = app.connections.clone();
    let served = listener.serve(router, connections, shutdown.clone(), on_drain, end_polls);
    let (cut_off, ()) = join(served, metrics).await;
    cut_off
}

/// Writes the ledger that nobody has taken for the next start. No request can change it any more.
async fn write_ledger(app: &AppState, data_dir: Arc<DataDir>, lock: Arc<DataDirLock>) {
    if app.ledger.is_poisoned() {
        tracing::warn!("poisoned ledger is not written for the next start");
    }
    let (offer, ledger) = (Arc::clone(&app.offer), Arc::clone(&app.ledger));
    let written = tokio::task::spawn_blocking(move || {
        let rest = offer.take_rest().or_else(|| {
            let reign = ledger.end()?;
            let epoch = reign.epoch();
            Some((reign.into_ledger(), epoch))
        });
        if let Some((ledger, epoch)) = rest {
            data_dir.write_ledger(&ledger, epoch, clock::now());
        }
        drop(lock);
    });
    if let Err(error) = written.await {
        tracing::error!(%error, "writing the ledger panicked");
    }
}

/// Resigns, and returns whether the ledger is offered to the next master.
async fn resign(resign: oneshot::Sender<Resignation>) -> bool {
    let (done, resigned) = oneshot::channel();
    // Without a receiver the election has failed, and there is nothing to resign from.
    resign.send(done).ok();
    let offered = timeout(RESIGN_TIME, resigned).await;
    matches!(offered, Ok(Ok(Some(_))))
}

fn check(settings: &Settings, is_loopback: bool) -> Result<(), StartError> {
    if !is_loopback && settings.auth.is_none() && settings.exposure == Exposure::Loopback {
        return Err(StartError::NeedsAuthentication(settings.listen));
    }
    match (&settings.tls, &settings.advertise) {
        (Some(_), Some(url)) if !url.is_encrypted() => {
            Err(StartError::AdvertisesPlain(url.clone()))
        }
        _ => Ok(()),
    }
}

fn add_tasks(tasks: &mut Tasks, app: &AppState, follower: Option<DocumentFollower>) {
    let log = LedgerEventLog::new(app.server.max_leases);
    let report = move |events, now| log.log(events, now);
    tasks.add("sweeper", sweeper::run(Arc::clone(&app.ledger), report));
    if let Some(auth) = &app.auth {
        tasks.add("keys", Arc::clone(auth).follow());
    }
    if let Some(tls) = &app.tls {
        tasks.add("certificate", Arc::clone(tls).follow());
    }
    if let Some(follower) = follower {
        tasks.add("document", follower(Arc::clone(&app.document)));
    }
}

/// The listeners of the API, and of metrics and probes.
fn listen(
    settings: &Settings,
    tls: Option<&Arc<Tls>>,
) -> Result<(Listener, Option<Listener>), StartError> {
    let bind = |address, most| {
        Listener::bind(address, most).map_err(|source| StartError::Listen { address, source })
    };
    let listener = bind(settings.listen, settings.max_connections)?.with_tls(tls.cloned());
    let metrics = settings.metrics_listen;
    let metrics = metrics.map(|address| bind(address, METRICS_CONNECTIONS));
    Ok((listener, metrics.transpose()?))
}

fn server_id(given: Option<ServerId>, address: SocketAddr) -> Result<ServerId, StartError> {
    let by_host = || ServerId::new(format!("{}:{}", host_name(), address.port()));
    given.map_or_else(by_host, Ok).map_err(StartError::ServerId)
}

/// URL at which others reach a server that listens on `address`.
fn advertised(given: Option<ServerUrl>, scheme: &str, address: SocketAddr) -> String {
    match given {
        Some(url) => url.to_string(),
        // Nobody can connect to 0.0.0.0.
        None if address.ip().is_unspecified() => {
            format!("{scheme}://{}:{}", host_name(), address.port())
        }
        None => format!("{scheme}://{address}"),
    }
}

fn scheme(tls: Option<&Arc<Tls>>) -> &'static str {
    match tls {
        Some(_) => "https",
        None => "http",
    }
}

fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
