//! Construction of a handle and its worker from settings.

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwapOption;
use doorman_openapi::{ClientId, InvalidId, InvalidServerUrl, Run, ServerUrl};
use tokio::sync::mpsc;

#[cfg(feature = "reqwest")]
use crate::lease::{Certificates, HttpTransport, Pem};
use crate::{
    credentials::Credentials,
    handle::{Doorman, MAX_KEYS},
    key::Callers,
    lease::{
        ControlPlaneClient, Engine, HolderSettings, IDLE_AFTER, Transport, TransportError, Worker,
        WorkerParts,
    },
    limiter::{Registry, Source, WorkerWatchdog},
    status::{Status, WorkerState},
};

/// Builds a [`Doorman`]. Building contacts no server. Fallbacks apply until one is reached.
#[must_use = "nothing is leased until it is built and its worker runs"]
pub struct Builder {
    servers: Vec<String>,
    service: Option<String>,
    instance: Option<String>,
    credentials: Option<Credentials>,
    #[cfg(feature = "reqwest")]
    certificates: Certificates,
    callers: Callers,
    max_keys: usize,
    idle_after: Duration,
    hints: bool,
}

/// Why a handle cannot be built.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The address of a server is invalid.
    #[error("server: {reason}, not {address:?}")]
    Server {
        /// The address; `***` if it contains a user.
        address: String,
        /// The expected form of an address.
        reason: InvalidServerUrl,
    },
    /// The service name cannot be part of a client id.
    #[error("service: must have at most 228 bytes and no control characters, not {0:?}")]
    Service(String),
    /// The instance name cannot be part of a client id.
    #[error(
        "instance: must have no control characters, and at most 227 bytes with the service, not \
         {0:?}"
    )]
    Instance(String),
    /// The token is empty or invalid in a header.
    #[error("credentials: {0}")]
    Credentials(TransportError),
    /// A certificate or its key is invalid or cannot be read, or the system has no certificates.
    #[cfg(feature = "reqwest")]
    #[error("cannot set up TLS with these certificates")]
    Transport(#[source] TransportError),
    /// [`Builder::max_keys`] is 0.
    #[error("max_keys: must be at least 1, not 0")]
    NoKeys,
    /// [`Builder::spawn`] is called outside of a tokio runtime.
    #[cfg(feature = "reqwest")]
    #[error("no tokio runtime; call `spawn` inside of one, or `build` and run the worker there")]
    NoRuntime,
}

crate::error::debug_as_text!(BuildError);

impl Doorman {
    /// Begins with the address of a server of the control plane, such as `http://127.0.0.1:7300`,
    /// or `https://proxy.example/doorman` behind a proxy that removes the path.
    pub fn builder(server: impl Into<String>) -> Builder {
        Builder {
            servers: vec![server.into()],
            service: None,
            instance: None,
            credentials: None,
            #[cfg(feature = "reqwest")]
            certificates: Certificates::default(),
            callers: Callers::new(),
            max_keys: MAX_KEYS,
            idle_after: IDLE_AFTER,
            hints: true,
        }
    }
}

impl Builder {
    /// Adds a server of the same control plane, used if the ones before it fail. Responses of
    /// another control plane are rejected.
    pub fn server(mut self, server: impl Into<String>) -> Self {
        self.servers.push(server.into());
        self
    }

    /// The name of the service, by default the host name. It selects the rules that apply. The
    /// client id is this name, the [instance](Self::instance), the process id and a random part, so
    /// it is unique per process.
    pub fn service(mut self, name: impl Into<String>) -> Self {
        self.service = Some(name.into());
        self
    }

    /// The name of this instance of the service, such as its pod, or its systemd unit and host. The
    /// next process with this name takes over the leases after a crash. No two living [`Doorman`]s
    /// of a service may have the same name, not even in one process.
    ///
    /// The client ids of `service("orders").instance("pod-7")` begin with `orders-pod-7-`.
    pub fn instance(mut self, name: impl Into<String>) -> Self {
        self.instance = Some(name.into());
        self
    }

    /// The credentials for the control plane, by default none.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// How callers are identified. By default no proxy is trusted and no token verified.
    pub fn callers(mut self, callers: Callers) -> Self {
        self.callers = callers;
        self
    }

    /// The maximum number of keys made of requests, by default 100,000. Further keys share one
    /// limit. Constant keys are not counted. 0 is an [error](BuildError::NoKeys).
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self
    }

    /// How long a key and its lease are retained after its last request: by default a minute, at
    /// least a second, and at least until its bucket is full. Then a key made of requests is
    /// forgotten. A constant key releases its lease until its next request, unless its
    /// [wants](crate::Limit::wants) are stated.
    pub fn idle_after(mut self, time: Duration) -> Self {
        self.idle_after = time.max(Duration::from_secs(1));
        self
    }

    /// Whether to keep a poll for hints open at the control plane, by default yes. Without it,
    /// capacity that is wanted elsewhere moves only at the next refresh.
    pub fn hints(mut self, enabled: bool) -> Self {
        self.hints = enabled;
        self
    }

    /// Builds the handle and its worker with a transport of your own: a mock, a router in this
    /// process, or a client with middleware. The transport must not follow redirects or retry.
    ///
    /// # Errors
    /// [`BuildError`] if a setting is invalid.
    pub fn build_with<T: Transport>(
        self,
        transport: T,
    ) -> Result<(Doorman, Worker<T>), BuildError> {
        let servers = self.addresses()?;
        if let Some(credentials) = &self.credentials {
            credentials.validate().map_err(BuildError::Credentials)?;
        }
        if self.max_keys == 0 {
            return Err(BuildError::NoKeys);
        }
        let service = self.service.unwrap_or_else(host_name);
        let (nudge, nudges) = mpsc::unbounded_channel();
        let (command, commands) = mpsc::unbounded_channel();
        let status = Arc::new(Status::new(WorkerState::NotStarted));
        let source = Source::Worker {
            nudges: nudge,
            watchdog: WorkerWatchdog::new(Arc::clone(&status)),
            first_state: ArcSwapOption::empty(),
        };
        let registry = Registry::new(self.max_keys, source);
        let settings = HolderSettings {
            client_id: client_id(&service, self.instance.as_deref())?,
            run: Some(random_run()),
            replaces: replaced_names(&service, self.instance.as_deref())?,
            endpoints: servers.len(),
            seed: fastrand::u64(..),
        };
        let rules = Arc::default();
        let worker = Worker::new(WorkerParts {
            engine: Engine::new(settings, &registry, self.idle_after, self.hints),
            client: ControlPlaneClient {
                transport,
                servers,
                credentials: self.credentials,
            },
            registry: Arc::downgrade(&registry),
            nudges,
            commands,
            status: Arc::clone(&status),
            service,
            rules: Arc::clone(&rules),
        });
        let doorman = Doorman {
            registry,
            commands: Some(command),
            status,
            callers: self.callers,
            rules,
        };
        Ok((doorman, worker))
    }

    fn addresses(&self) -> Result<Arc<[ServerUrl]>, BuildError> {
        let parse = |address: &String| {
            address
                .parse::<ServerUrl>()
                .map_err(|reason| BuildError::Server {
                    // Before an @ there may be a password.
                    address: if address.contains('@') {
                        "***".to_owned()
                    } else {
                        address.clone()
                    },
                    reason,
                })
        };
        self.servers.iter().map(parse).collect()
    }
}

#[cfg(feature = "reqwest")]
impl Builder {
    /// The authority of the servers' certificates, in PEM, instead of those of the system.
    pub fn certificate_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.authority = Some(Pem::Text(pem.into()));
        self
    }

    /// A PEM file with the authority of the servers' certificates, instead of those of the system.
    /// It is reloaded before requests, at most once per second; requests in flight finish on old
    /// connections. If the file is invalid, the previous authority stays and the failure is logged.
    pub fn certificate_authority_file(mut self, path: impl Into<std::path::PathBuf>) -> Self {
        self.certificates.authority = Some(Pem::Files(vec![path.into()]));
        self
    }

    /// The client certificate for servers that require one (`--tls-client-ca`): certificate chain
    /// and key in PEM. [Credentials](Self::credentials) may be needed in addition.
    pub fn client_identity(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.identity = Some(Pem::Text(pem.into()));
        self
    }

    /// Files of the client certificate and of its key, for short-lived certificates. They are
    /// reloaded like the [authority](Self::certificate_authority_file). While they do not match,
    /// because only one has been replaced, the previous ones stay in use.
    pub fn client_identity_files(
        mut self,
        certificate: impl Into<std::path::PathBuf>,
        key: impl Into<std::path::PathBuf>,
    ) -> Self {
        self.certificates.identity = Some(Pem::Files(vec![certificate.into(), key.into()]));
        self
    }

    /// Builds the handle and its worker, which leases when it is [run](Worker::run).
    ///
    /// # Errors
    /// [`BuildError`] if a setting is invalid or a certificate file cannot be read.
    pub fn build(mut self) -> Result<(Doorman, Worker), BuildError> {
        let encrypted = self.addresses()?.iter().any(ServerUrl::is_encrypted);
        let certificates = std::mem::take(&mut self.certificates);
        let transport =
            HttpTransport::new(certificates, encrypted).map_err(BuildError::Transport)?;
        self.build_with(transport)
    }

    /// Builds the handle and spawns its worker on the current tokio runtime.
    /// [`Doorman::worker_state`] reports if the worker dies.
    ///
    /// # Errors
    /// [`BuildError`] as for [`build`](Self::build), and outside of a runtime.
    pub fn spawn(self) -> Result<Doorman, BuildError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let (doorman, worker) = self.build()?;
        runtime.spawn(worker.run());
        Ok(doorman)
    }
}

fn client_id(service: &str, instance: Option<&str>) -> Result<ClientId, BuildError> {
    let id = unique_id(service).map_err(|_| BuildError::Service(service.to_owned()))?;
    match instance {
        None => Ok(id),
        Some(instance) => unique_id(&format!("{service}-{instance}"))
            .map_err(|_| BuildError::Instance(instance.to_owned())),
    }
}

/// The name that all processes of an instance give in `replaces`: the beginning of their client
/// ids, so that a token for these ids allows it.
fn replaced_names(service: &str, instance: Option<&str>) -> Result<Vec<ClientId>, BuildError> {
    let names = instance.into_iter().map(|instance| {
        ClientId::new(format!("{service}-{instance}-"))
            .map_err(|_| BuildError::Instance(instance.to_owned()))
    });
    names.collect()
}

/// Replicas in containers are all process 1, so the id also has a random part.
fn unique_id(name: &str) -> Result<ClientId, InvalidId> {
    let process = std::process::id();
    let random = fastrand::u64(..);
    ClientId::new(format!("{name}-{process}-{random:016x}"))
}

/// The process id tells apart processes that were forked with the same random numbers.
fn random_run() -> Run {
    Run::of_bits(RandomState::new().hash_one(std::process::id()))
}

fn host_name() -> String {
    let host = rustix::system::uname();
    host.nodename().to_str().unwrap_or("unknown").to_owned()
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("servers", &self.servers.len())
            .field("service", &self.service)
            .field("instance", &self.instance)
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

    fn builder() -> Builder {
        Doorman::builder("http://a:7300")
    }

    fn error(builder: Builder) -> BuildError {
        let (unused, _) = tower_test::mock::pair::<Request<Bytes>, Response<Bytes>>();
        builder.build_with(unused).map(drop).unwrap_err()
    }

    #[test]
    fn invalid_settings_are_rejected_with_what_would_be_right() {
        let token = Credentials::token("");
        for (builder, expected) in [
            (
                builder().server("b:7300"),
                "server: must begin with http:// or https://, such as http://b:7300, not \"b:7300\"",
            ),
            (
                builder().server("http://b?c"),
                "server: must be like http://host:7300, optionally with a path, and without user, \
                 query or fragment, not \"http://b?c\"",
            ),
            (
                builder().service("a\nb"),
                "service: must have at most 228 bytes and no control characters, not \"a\\nb\"",
            ),
            (
                builder().service("a").instance("b\n"),
                "instance: must have no control characters, and at most 227 bytes with the \
                 service, not \"b\\n\"",
            ),
            (builder().max_keys(0), "max_keys: must be at least 1, not 0"),
            (
                builder().credentials(token),
                "credentials: the token is empty",
            ),
        ] {
            assert_eq!(error(builder).to_string(), expected);
        }
        let longest = "x".repeat(228);
        let (unused, _) = tower_test::mock::pair::<Request<Bytes>, Response<Bytes>>();
        assert!(builder().service(longest).build_with(unused).is_ok());
    }

    #[test]
    fn no_output_shows_a_secret() {
        let address = "http://user:secret@a";
        let error = error(Doorman::builder(address));
        assert!(
            !format!("{error:?} {error}").contains("secret"),
            "{error:?}"
        );
        let builder = Doorman::builder(address).credentials(Credentials::token("secret"));
        assert!(!format!("{builder:?}").contains("secret"));
    }

    #[test]
    fn client_ids_are_unique() {
        for service in ["orders", &host_name()] {
            let ids = [(); 2].map(|()| client_id(service, None).unwrap());
            assert_ne!(ids[0], ids[1]);
        }
        assert_ne!(random_run(), random_run());
        let process = std::process::id();
        for (instance, start) in [
            (None, format!("orders-{process}-")),
            (Some("pod-7"), format!("orders-pod-7-{process}-")),
        ] {
            let id = client_id("orders", instance).unwrap();
            assert!(id.as_str().starts_with(&start), "{id}");
            let replaced = replaced_names("orders", instance).unwrap();
            let names: Vec<_> = replaced.iter().map(ClientId::as_str).collect();
            assert_eq!(names, instance.map_or(&[][..], |_| &["orders-pod-7-"]));
        }
    }

    #[cfg(feature = "reqwest")]
    #[test]
    fn invalid_certificates_are_rejected() {
        for invalid in [
            builder().certificate_authority("not a certificate"),
            builder().client_identity("not a certificate"),
        ] {
            assert!(matches!(invalid.build(), Err(BuildError::Transport(_))));
        }
        let missing = builder().client_identity_files("/missing/tls.crt", "/missing/tls.key");
        let Err(BuildError::Transport(error)) = missing.build() else {
            panic!("the files cannot be read");
        };
        assert!(error.to_string().contains("/missing/tls.crt"), "{error}");
    }

    #[cfg(feature = "reqwest")]
    #[test]
    fn only_spawn_needs_a_runtime() {
        assert!(matches!(builder().spawn(), Err(BuildError::NoRuntime)));
        assert!(builder().build().is_ok());
    }
}
