//! From settings to a handle and its worker.

#[cfg(feature = "reqwest")]
mod over_http;

use std::{fmt, sync::Arc, time::Duration};

use doorman_openapi::{ClientId, InvalidId};
use tokio::sync::mpsc;

#[cfg(feature = "reqwest")]
use crate::lease::Certificates;
use crate::{
    Callers, Credentials, Doorman, WorkerState,
    lease::{
        Address, ControlPlaneClient, Holder, HolderSettings, InvalidAddress, Transport,
        TransportError, Worker, WorkerParts,
    },
    limiter::{Registry, Source, WorkerWatchdog},
    status::Status,
};

/// How many keys there may be unless it is said, whether they are leased for or not.
pub(crate) const MAX_KEYS: usize = 100_000;
/// How long a key is kept without an attempt unless it is said.
const IDLE_AFTER: Duration = Duration::from_secs(60);

/// Builds a [`Doorman`]. Building needs no server: as long as none can be reached, the fallbacks count.
#[must_use = "nothing is leased until it is built and its worker is run"]
pub struct Builder {
    servers: Vec<String>,
    service: Option<String>,
    credentials: Option<Credentials>,
    #[cfg(feature = "reqwest")]
    certificates: Certificates,
    callers: Callers,
    max_keys: usize,
    idle_after: Duration,
}

/// Why a handle cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The address of a server is none.
    #[error("server address {address:?}")]
    Server {
        /// The address, unless it holds what looks like a password.
        address: String,
        /// What would be right.
        source: InvalidAddress,
    },
    /// The service's name cannot be part of a client id.
    #[error("service name")]
    Service(#[source] InvalidId),
    /// The token cannot be sent.
    #[error("credentials")]
    Credentials(#[source] TransportError),
    /// Connections cannot be made at all, for the authority's certificate or the client's own, or for want of certificates on the system.
    #[cfg(feature = "reqwest")]
    #[error("transport")]
    Transport(#[source] TransportError),
    /// There is to be no room for any key.
    #[error("no room for any key: `max_keys` must be at least 1")]
    NoKeys,
    /// [`Builder::spawn`] outside a runtime.
    #[cfg(feature = "reqwest")]
    #[error("there is no tokio runtime to spawn the worker on")]
    NoRuntime,
}

impl Builder {
    pub(crate) fn new(server: String) -> Self {
        Self {
            servers: vec![server],
            service: None,
            credentials: None,
            #[cfg(feature = "reqwest")]
            certificates: Certificates::default(),
            callers: Callers::new(),
            max_keys: MAX_KEYS,
            idle_after: IDLE_AFTER,
        }
    }

    /// Another server of the same control plane, to be asked when those before it do not serve. Never one of another: two control
    /// planes are two capacities, and the answers of the second are refused.
    pub fn server(mut self, server: impl Into<String>) -> Self {
        self.servers.push(server.into());
        self
    }

    /// The name of the service: which rules are for it, and what the client id begins with; the host's name unless it is said. In the
    /// client id the process id and a random part follow, so that no two processes share one.
    pub fn service(mut self, name: impl Into<String>) -> Self {
        self.service = Some(name.into());
        self
    }

    /// What to show to the control plane; nothing unless it is said.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// How callers are told apart, for keys that need to know: which proxies are trusted, and the like. Nobody is unless it is said.
    pub fn callers(mut self, callers: Callers) -> Self {
        self.callers = callers;
        self
    }

    /// How many keys made of requests are limited one by one at the same time: 100,000 unless it is said. Those beyond share one.
    /// What the program names does not count. None at all cannot be [built](BuildError::NoKeys).
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self
    }

    /// How long a key without an attempt is kept before its lease is given back: a minute unless it is said, and a second at least. It
    /// is kept for longer while its bucket is not full, or who comes back slowly would find it full every time.
    pub fn idle_after(mut self, time: Duration) -> Self {
        self.idle_after = time.max(Duration::from_secs(1));
        self
    }

    /// The handle and the worker, with a way to the control plane of your own: a mock, a router in this process, a client with its
    /// own middleware. It must follow no redirects and repeat no request.
    ///
    /// # Errors
    /// [`BuildError`] when a setting makes no sense.
    pub fn build_with<T: Transport>(
        self,
        transport: T,
    ) -> Result<(Doorman, Worker<T>), BuildError> {
        let servers = self.addresses()?;
        self.assemble(servers, transport)
    }

    fn addresses(&self) -> Result<Arc<[Address]>, BuildError> {
        self.servers
            .iter()
            .map(|address| {
                Address::parse(address).map_err(|source| BuildError::Server {
                    address: if address.contains('@') {
                        String::from("***")
                    } else {
                        address.clone()
                    },
                    source,
                })
            })
            .collect()
    }

    fn assemble<T: Transport>(
        self,
        servers: Arc<[Address]>,
        transport: T,
    ) -> Result<(Doorman, Worker<T>), BuildError> {
        if let Some(credentials) = &self.credentials {
            credentials.validate().map_err(BuildError::Credentials)?;
        }
        if self.max_keys == 0 {
            return Err(BuildError::NoKeys);
        }
        let service = self.service.unwrap_or_else(host_name);
        let holder = Holder::new(HolderSettings {
            client_id: client_id(&service).map_err(BuildError::Service)?,
            endpoints: servers.len(),
            seed: fastrand::u64(..),
        });
        let (nudge, nudges) = mpsc::unbounded_channel();
        let (command, commands) = mpsc::unbounded_channel();
        let status = Arc::new(Status::new(WorkerState::NotStarted));
        let source = Source::Worker {
            nudges: nudge,
            watchdog: WorkerWatchdog::new(Arc::clone(&status)),
        };
        let registry = Registry::new(self.max_keys, source);
        let rules = Arc::default();
        let worker = Worker::new(WorkerParts {
            holder,
            client: ControlPlaneClient {
                transport,
                servers,
                credentials: self.credentials,
            },
            registry: Arc::downgrade(&registry),
            nudges,
            commands,
            status: Arc::clone(&status),
            idle_after: self.idle_after,
            service,
            rules: Arc::clone(&rules),
        });
        let doorman = Doorman::new(registry, command, status, self.callers, rules);
        Ok((doorman, worker))
    }
}

/// A name that no other process has: replicas on one host differ by process id, and those in containers, which all are process 1, by
/// chance.
fn client_id(service: &str) -> Result<ClientId, InvalidId> {
    let process = std::process::id();
    let chance = fastrand::u64(..);
    ClientId::new(format!("{service}-{process}-{chance:016x}"))
}

/// What stands in for the name of a service that has none.
fn host_name() -> String {
    let host = rustix::system::uname();
    let name = host.nodename().to_str();
    name.unwrap_or("unknown").to_owned()
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("servers", &self.servers.len())
            .field("service", &self.service)
            .field("credentials", &self.credentials)
            .field("callers", &self.callers)
            .field("max_keys", &self.max_keys)
            .field("idle_after", &self.idle_after)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{Request, Response};

    use super::*;

    fn refusal(builder: Builder) -> BuildError {
        let (nobody, _) = tower_test::mock::pair::<Request<Bytes>, Response<Bytes>>();
        builder.build_with(nobody).map(drop).unwrap_err()
    }

    #[test]
    fn refuses_what_makes_no_sense() {
        let good = || Doorman::builder("http://a:7300");
        assert!(matches!(
            refusal(good().server("b:7300")),
            BuildError::Server { address, .. } if address == "b:7300"
        ));
        assert!(matches!(
            refusal(good().service("a\nb")),
            BuildError::Service(_)
        ));
        assert!(matches!(refusal(good().max_keys(0)), BuildError::NoKeys));
        assert!(matches!(
            refusal(good().credentials(Credentials::token(""))),
            BuildError::Credentials(_)
        ));
    }

    #[test]
    fn shows_no_secret() {
        let address = "http://user:secret@a";
        let shown = format!("{:?}", refusal(Doorman::builder(address)));
        assert!(!shown.contains("secret"), "{shown}");
        let builder = Doorman::builder(address).credentials(Credentials::token("secret"));
        assert!(!format!("{builder:?}").contains("secret"));
    }

    #[test]
    fn no_two_processes_share_a_client_id() {
        for service in ["orders", &host_name()] {
            let ids = [client_id(service).unwrap(), client_id(service).unwrap()];
            assert_ne!(ids[0], ids[1]);
        }
        let id = client_id("orders").unwrap();
        let start = format!("orders-{}-", std::process::id());
        assert!(id.as_str().starts_with(&start), "{id}");
    }
}
