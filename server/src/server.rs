//! A server from its start to its stop.

use std::{future::Future, io, net::SocketAddr, num::NonZeroUsize, pin::pin, sync::Arc};

use axum::Router;
use doorman_config::OpenError;
use doorman_openapi::{Epoch, InvalidId, NodeId, ServerId};
use futures_util::{FutureExt, future::join};
use tokio::task::JoinSet;

use crate::{
    auth::{Auth, AuthError},
    document::{ActiveDocument, DocumentEditor, FollowedFile, OpenedDocument},
    durability::{
        identity::{self, IdentityError},
        {Held, Start, Started},
    },
    http::{
        self, AllowedHosts, BodyBuffer,
        state::{AppParts, AppState, ServerInfo},
    },
    leasing::{LedgerPoisoned, SharedLedger, sweeper},
    net::{
        ConnectionMetrics, Listener,
        tls::{Tls, TlsError},
    },
    observe::{context, ledger_events::LedgerEventLog, metrics::RequestMetrics},
    quota::Quotas,
    settings::{BaseUrl, Exposure, Settings},
    util::clock,
};

/// The most connections on the address that serves the metrics and the probes alone.
const METRICS_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(64).expect("it is not zero");

/// A control plane that is bound to its address and has its identity, and answers as soon as it [runs](Self::run).
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
    held: Held,
    file: Option<FollowedFile>,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Anybody could reach it, and it would ask nobody who they are.
    #[error(
        "without authentication the server listens on loopback only, and {0} is not: pass --auth-secret-file, --auth-key-file or \
         --auth-jwks, or listen on 127.0.0.1, or pass --insecure-no-auth if everybody who can reach the address may do everything"
    )]
    NeedsAuthentication(SocketAddr),
    /// The address cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// LimitScope tokens count cannot be made out.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// There is no TLS by the files that are there.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Others would be sent to where nobody understands them.
    #[error(
        "--advertise {0} does not begin with https://, and with --tls-cert the server speaks nothing but TLS: pass an https:// address, or \
         none"
    )]
    AdvertisesPlain(BaseUrl),
    /// The data directory cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The document's store cannot be used.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// No name for the server can be made of the host's.
    #[error("the host's name gives no name for the server: pass --server-id")]
    ServerId(#[source] InvalidId),
}

/// How a server stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Stopped {
    /// Connections that did not end within the time they were given.
    pub cut_off: usize,
}

impl Server {
    /// Binds the address, and takes up the identity in the data directory. Nobody is answered yet.
    ///
    /// # Errors
    /// [`StartError`]: an address that must not or cannot be listened on, or a data directory that cannot be used.
    pub async fn bind(mut settings: Settings) -> Result<Self, StartError> {
        let loopback = settings.listen.ip().to_canonical().is_loopback();
        if !loopback && settings.auth.is_none() && settings.exposure == Exposure::Loopback {
            return Err(StartError::NeedsAuthentication(settings.listen));
        }
        if let (Some(_), Some(plain)) = (&settings.tls, &settings.advertise)
            && !plain.is_encrypted()
        {
            return Err(StartError::AdvertisesPlain(plain.clone()));
        }
        let auth = settings
            .auth
            .take()
            .map(Auth::load)
            .transpose()?
            .map(|auth| Arc::new(auth.with_outgoing_headers(context::outgoing_headers)));
        let tls = settings
            .tls
            .take()
            .map(Tls::load)
            .transpose()?
            .map(Arc::new);
        if !loopback && auth.is_some() && tls.is_none() {
            tracing::warn!(
                "tokens cross the network in the clear, for everybody on the way to read and to use: pass --tls-cert and --tls-key, unless \
                 something in front of this server speaks TLS and nobody else reaches {}",
                settings.listen
            );
        }
        // The address first: a start that fails for a port in use should not use up an epoch.
        let listener = bind(settings.listen, settings.max_connections)?.encrypting(tls.clone());
        let metrics_listener = match settings.metrics_listen {
            Some(address) => Some(bind(address, METRICS_CONNECTIONS)?),
            None => None,
        };
        let address = listener.address();
        // The store may lie in the data directory.
        identity::file::create_directory(&settings.data_dir)?;
        let opened = OpenedDocument::open(
            settings.follows,
            settings.document,
            settings.document_fault,
            settings.data_dir.clone(),
        )
        .await?;
        let start = Start {
            directory: settings.data_dir,
            node: settings.node,
            document: Arc::clone(&opened.document),
            max_leases: settings.max_leases,
            unmatched: settings.unmatched,
            is_loopback: loopback,
            empty_directory: settings.empty_directory,
        };
        let Started {
            identity,
            core,
            bound,
            assumed_first_start,
            held,
        } = start.take()?;
        let server_id = match settings.server_id {
            Some(id) => id,
            None => ServerId::new(format!("{}:{}", host_name(), address.port()))
                .map_err(StartError::ServerId)?,
        };
        let server = ServerInfo {
            server_id,
            node: identity.node,
            epoch: identity.epoch,
            advertise: advertised(settings.advertise, scheme(tls.as_ref()), address),
            config_source: settings.config_source,
            assumed_first_start,
            started: clock::now(),
        };
        let allowed_hosts = if loopback {
            AllowedHosts::of_loopback(&server.advertise)
        } else {
            AllowedHosts::any(&server.advertise)
        };
        let ledger = Arc::new(SharedLedger::new(core, bound));
        let document = ActiveDocument::new(Arc::clone(&ledger), opened.document);
        if let Some(error) = &opened.error {
            document.reject(error);
        }
        let document = Arc::new(document);
        Ok(Self {
            listener,
            metrics_listener,
            app: AppState::from(AppParts {
                editor: Arc::new(DocumentEditor::new(Arc::clone(&document), opened.store)),
                ledger,
                document,
                limits: Arc::new(Quotas::new(settings.callers)),
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
            held,
            file: opened.file,
        })
    }

    /// The address it listens on, with the real port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.address()
    }

    /// The base address at which others reach it, by its own word.
    #[must_use]
    pub fn advertised(&self) -> &str {
        &self.app.server.advertise
    }

    /// The node it speaks for.
    #[must_use]
    pub fn node(&self) -> &NodeId {
        &self.app.server.node
    }

    /// The epoch of this start.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.app.server.epoch
    }

    /// The version of the document that is in force.
    #[must_use]
    pub fn document_version(&self) -> String {
        self.app.document.get().version().to_owned()
    }

    /// Why the document that is in force is not the newest of its source; `None` when it is.
    #[must_use]
    pub fn document_fault(&self) -> Option<String> {
        self.app.document.error()
    }

    /// The address on which the metrics and the probes alone are served, with the real port, if there is any.
    #[must_use]
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics_listener.as_ref().map(Listener::address)
    }

    /// What addresses of it begin with: `https` when it speaks TLS, and then nothing else; `http` when it does not.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        scheme(self.app.tls.as_ref())
    }

    /// Whether callers have to show a token.
    #[must_use]
    pub fn asks_for_tokens(&self) -> bool {
        self.app.auth.is_some()
    }

    /// All routes, to be called without a connection.
    pub fn router(&self) -> Router {
        http::router(self.app.clone())
    }

    /// Serves until `shutdown` is ready; then takes nobody in any more, answers what is under way, and what comes before its peer has
    /// been told, closes what stays idle, all of it within 8 s, and leaves its books to the next start. What has run out is freed
    /// meanwhile, whether anybody asks or not.
    ///
    /// # Cancel safety
    /// When it is dropped, all connections are cut off, nothing is swept any more, and no books are left: the next start learns.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Stopped {
        let router = self.router();
        let Self {
            listener,
            metrics_listener,
            app,
            held,
            file,
        } = self;
        let mut tasks = JoinSet::new();
        let events = LedgerEventLog::new();
        tasks.spawn(sweeper::run(Arc::clone(&app.ledger), move |batch, now| {
            events.log(batch, now)
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

        let shutdown = shutdown.shared();
        let metrics = async {
            if let Some(listener) = metrics_listener {
                let loopback = listener.address().ip().is_loopback();
                let router = http::metrics_router(app.clone(), loopback);
                let metrics = ConnectionMetrics::default();
                listener
                    .serve(router, metrics, shutdown.clone(), || ())
                    .await;
            }
        };
        let connections = app.connections.clone();
        let served = listener.serve(router, connections, shutdown.clone(), || {
            app.draining.begin()
        });
        let mut served = pin!(join(served, metrics));
        let (cut_off, ()) = tokio::select! {
            ended = &mut served => ended,
            // They give up when the books are in doubt; those who ask must still be told so.
            Some(ended) = tasks.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a task of the server failed");
                }
                served.await
            }
        };
        tasks.shutdown().await;
        // Nobody is answered any more, so these books are the last word.
        let ledger = Arc::clone(&app.ledger);
        let left = tokio::task::spawn_blocking(move || {
            ledger
                .with(|ledger, now| held.leave(ledger, now))
                .unwrap_or_else(|LedgerPoisoned| {
                    tracing::warn!("books in doubt are not left to the next start");
                });
        });
        if let Err(error) = left.await {
            tracing::error!(%error, "the books could not be left to the next start");
        }
        Stopped { cut_off }
    }
}

fn bind(address: SocketAddr, most: NonZeroUsize) -> Result<Listener, StartError> {
    Listener::bind(address, most).map_err(|source| StartError::Listen { address, source })
}

/// The address at which others reach a server that listens here, unless they are told another.
fn advertised(given: Option<BaseUrl>, scheme: &str, address: SocketAddr) -> String {
    match given {
        Some(url) => url.to_string(),
        // Everywhere is nowhere to go to.
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
