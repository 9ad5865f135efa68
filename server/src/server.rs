//! The server from its start to its stop: assembles all parts.

use std::{
    future::Future, io, net::SocketAddr, num::NonZeroUsize, pin::pin, sync::Arc, time::Duration,
};

use axum::Router;
use doorman_config::OpenError;
use doorman_openapi::{Epoch, InvalidId, Moment, NodeId, ServerId, ServerUrl};
use futures_util::{FutureExt, future::join};
use tokio::task::JoinSet;

use crate::{
    auth::{Auth, AuthError},
    document::{ActiveDocument, DocumentEditor, DocumentFile, DocumentState, OpenedDocument},
    durability::{self, DataDirError, DataDirGuard, Recovery, StartOptions},
    http::{
        self, AllowedHosts, BodyBuffer,
        state::{AppParts, AppState, ServerInfo},
    },
    leasing::{LedgerPoisoned, sweeper},
    net::{
        ConnectionMetrics, Listener,
        tls::{Tls, TlsError},
    },
    observe::{context, ledger_events::LedgerEventLog, metrics::RequestMetrics},
    quota::Quotas,
    settings::{Exposure, Settings},
    util::clock,
};

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
    data_dir: DataDirGuard,
    may_be_first_start: Option<Moment>,
    file: Option<DocumentFile>,
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
    /// The TLS files are invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The advertised URL is not encrypted, but the listener is.
    #[error(
        "--advertise {0} does not begin with https://, but with --tls-cert the server speaks TLS \
         only: pass an https:// URL, or none"
    )]
    AdvertisesPlain(ServerUrl),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The document's store cannot be used.
    #[error(transparent)]
    Store(#[from] OpenError),
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
}

impl Server {
    /// Binds the address and recovers the data directory. No request is answered yet.
    ///
    /// # Errors
    /// [`StartError`] when the settings, the address or the data directory cannot be used.
    pub async fn bind(mut settings: Settings) -> Result<Self, StartError> {
        let is_loopback = settings.listen.ip().to_canonical().is_loopback();
        check(&settings, is_loopback)?;
        let auth = settings.auth.take().map(Auth::load).transpose()?;
        let auth = auth.map(|auth| Arc::new(auth.with_outgoing_headers(context::outgoing_headers)));
        let tls = settings
            .tls
            .take()
            .map(Tls::load)
            .transpose()?
            .map(Arc::new);
        if !is_loopback && auth.is_some() && tls.is_none() {
            tracing::warn!(
                "tokens cross the network unencrypted: pass --tls-cert and --tls-key, unless a \
                 proxy in front of {} terminates TLS and nobody else can reach it",
                settings.listen
            );
        }
        // Polls leave half of the connections to requests.
        let max_polls = (settings.max_connections.get() / 2).max(1);
        // Bound first: a start that fails on a port in use must not begin an epoch.
        let listener = bind(settings.listen, settings.max_connections)?.with_tls(tls.clone());
        let metrics_listener = settings
            .metrics_listen
            .map(|address| bind(address, METRICS_CONNECTIONS))
            .transpose()?;
        let address = listener.address();
        // The store may be in the data directory.
        durability::create_dir(&settings.data_dir)?;
        let opened = OpenedDocument::open(
            settings.document_source,
            settings.document,
            settings.document_error,
            settings.data_dir.clone(),
        )
        .await?;
        let options = StartOptions {
            data_dir: settings.data_dir,
            node: settings.node,
            document: Arc::clone(&opened.document),
            max_leases: settings.max_leases,
            unmatched: settings.unmatched,
            is_loopback,
            empty_directory: settings.empty_directory,
        };
        let Recovery {
            node,
            epoch,
            ledger,
            assumed_first_start,
            may_be_first_start,
            guard,
        } = options.recover()?;
        let server_id = match settings.server_id {
            Some(id) => id,
            None => ServerId::new(format!("{}:{}", host_name(), address.port()))
                .map_err(StartError::ServerId)?,
        };
        let server = ServerInfo {
            server_id,
            node,
            epoch,
            advertise: advertised(settings.advertise, scheme(tls.as_ref()), address),
            config_source: settings.config_source,
            assumed_first_start,
            started: clock::now(),
        };
        let allowed_hosts = if is_loopback {
            AllowedHosts::of_loopback(&server.advertise)
        } else {
            AllowedHosts::any(&server.advertise)
        };
        let ledger = Arc::new(ledger.with_max_polls(max_polls));
        let document = Arc::new(ActiveDocument::new(Arc::clone(&ledger), opened.document));
        if let Some(error) = &opened.error {
            document.reject(error);
        }
        Ok(Self {
            listener,
            metrics_listener,
            app: AppState::from(AppParts {
                editor: Arc::new(DocumentEditor::new(
                    Arc::clone(&document),
                    opened.store,
                    &server.config_source,
                )),
                ledger,
                document,
                quotas: Arc::new(Quotas::new(settings.callers)),
                server: Arc::new(server),
                draining: Arc::default(),
                cursor_key: Arc::default(),
                body_buffer: BodyBuffer::default(),
                allowed_hosts,
                auth,
                tls,
                requests: RequestMetrics::default(),
                connections: ConnectionMetrics::default(),
            }),
            data_dir: guard,
            may_be_first_start,
            file: opened.file,
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

    /// Epoch of this start.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.app.server.epoch
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
        self.may_be_first_start
            .map(|until| until.since(clock::now()))
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

    /// Serves until `shutdown` is ready. Then it drains the connections for up to 8 s and writes
    /// the ledger for the next start.
    ///
    /// # Cancel safety
    /// When it is dropped, all connections are closed, and the ledger is not written: the next
    /// start learns the leases from their holders.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Stopped {
        let router = self.router();
        let Self {
            listener,
            metrics_listener,
            app,
            data_dir,
            may_be_first_start: _,
            file,
            document_state: _,
        } = self;
        let mut tasks = background_tasks(&app, file);

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
        let connections = app.connections.clone();
        let on_drain = || {
            app.draining.begin();
            app.ledger.polls().leave();
        };
        let end_polls = |count| app.ledger.polls().free_connections(count);
        let served = listener.serve(router, connections, shutdown.clone(), on_drain, end_polls);
        let mut served = pin!(join(served, metrics));
        let (cut_off, ()) = tokio::select! {
            ended = &mut served => ended,
            // Tasks end when the ledger is poisoned. Requests must still get a response.
            Some(ended) = tasks.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "background task panicked");
                }
                served.await
            }
        };
        tasks.shutdown().await;
        // No request can change the ledger any more.
        let ledger = Arc::clone(&app.ledger);
        let written = tokio::task::spawn_blocking(move || {
            ledger
                .with(|ledger, now| data_dir.write_ledger(ledger, now))
                .unwrap_or_else(|LedgerPoisoned| {
                    tracing::warn!("poisoned ledger is not written for the next start");
                });
        });
        if let Err(error) = written.await {
            tracing::error!(%error, "writing the ledger panicked");
        }
        Stopped { cut_off }
    }
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

fn background_tasks(app: &AppState, file: Option<DocumentFile>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let log = LedgerEventLog::new();
    tasks.spawn(sweeper::run(Arc::clone(&app.ledger), move |events, now| {
        log.log(events, now);
    }));
    if let Some(auth) = &app.auth {
        tasks.spawn(Arc::clone(auth).follow());
    }
    if let Some(tls) = &app.tls {
        tasks.spawn(Arc::clone(tls).follow());
    }
    if let Some(file) = file {
        tasks.spawn(file.follow(Arc::clone(&app.document)));
    }
    tasks
}

fn bind(address: SocketAddr, most: NonZeroUsize) -> Result<Listener, StartError> {
    Listener::bind(address, most).map_err(|source| StartError::Listen { address, source })
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
