//! The agent: the layer as a daemon, for processes in any language on the same machine.

use std::{
    fmt,
    future::Future,
    io, mem,
    net::SocketAddr,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Release},
    time::Duration,
};

use axum::http::HeaderName;
use doorman_config::{FileSource, LoadError, Rule};
use futures_util::{FutureExt, future::join_all};
use tokio::task::JoinSet;
use tower_doorman::{Doorman, InvalidRules, NotApplied, OwnRules};

use crate::{
    http::{
        AllowedHosts, BodyBuffer,
        agent::{
            self, AgentParts, AgentState, ForwardRules, answers::RecentAnswers,
            metrics::LayerMetrics, permits::PermitTable,
        },
        state::Draining,
    },
    net::{ConnectionMetrics, Listener, UnixSocket},
    observe::metrics::RequestMetrics,
    settings::Exposure,
    util::follow::FileFollower,
};

/// How long the agent waits for the control plane before it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings of an [`Agent`].
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// Addresses, at least one.
    pub listen: Vec<ListenAddress>,
    /// Permissions of the Unix sockets.
    pub socket_mode: u32,
    /// Addresses on which the agent may listen.
    pub exposure: Exposure,
    /// The most open connections of each listener.
    pub max_connections: NonZeroUsize,
    /// The most permits of gauges at once.
    pub max_permits: usize,
    /// The file with the rules for forwarded requests; `None`: the rules of the control plane.
    pub rules: Option<FileSource>,
    /// The service whose rules of the file apply.
    pub service: String,
    /// The header with the id of a forwarded request, which the proxy sets; `None`: each is decided
    /// anew.
    pub request_id_header: Option<HeaderName>,
}

/// An address of the agent: `HOST:PORT` or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address of TCP; port 0 takes a free port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Why an agent does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The address is not on loopback.
    #[error(
        "the agent has no authentication and listens on loopback or a Unix socket, not on {0}: \
         pass 127.0.0.1 or unix:PATH, or --insecure-no-auth to let everybody who can connect use \
         the limits"
    )]
    Exposed(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: ListenAddress,
        /// The system's error.
        source: io::Error,
    },
    /// The file with the rules is invalid or cannot be read.
    #[error(transparent)]
    Rules(#[from] LoadError),
    /// The layer does not accept the rules.
    #[error(transparent)]
    InvalidRules(#[from] InvalidRules),
}

/// How an agent stopped.
#[derive(Debug)]
#[must_use]
pub struct AgentStopped {
    /// Connections that were closed before their last response was sent.
    pub cut_off: usize,
}

/// An agent that is bound to its addresses and serves as soon as it [runs](Self::run).
#[derive(Debug)]
pub struct Agent {
    listeners: Vec<AgentListener>,
    agent: AgentState,
    follower: Option<RulesFollower>,
}

#[derive(Debug)]
enum AgentListener {
    Tcp(Listener),
    Unix(Listener<UnixSocket>),
}

impl Agent {
    /// Binds the addresses and reads the rules. `doorman` leases from the control plane.
    ///
    /// # Errors
    /// [`AgentError`] when the settings, an address or the rules cannot be used.
    pub fn bind(settings: AgentSettings, doorman: Doorman) -> Result<Self, AgentError> {
        let layer_metrics = LayerMetrics::of_process();
        let (rules, follower) = match settings.rules {
            None => (doorman.rules(), None),
            Some(file) => {
                let follower = RulesFollower::start(file, settings.service, &doorman)?;
                (follower.rules.layer(), Some(follower))
            }
        };
        let (mode, most) = (settings.socket_mode, settings.max_connections);
        let bind = |address: ListenAddress| {
            let bound = match &address {
                ListenAddress::Tcp(ip)
                    if !is_loopback(*ip) && settings.exposure == Exposure::Loopback =>
                {
                    return Err(AgentError::Exposed(*ip));
                }
                ListenAddress::Tcp(ip) => Listener::bind(*ip, most).map(AgentListener::Tcp),
                ListenAddress::Unix(path) => {
                    Listener::bind_unix(path.clone(), mode, most).map(AgentListener::Unix)
                }
            };
            bound.map_err(|source| AgentError::Listen { address, source })
        };
        let listeners = settings.listen.into_iter().map(bind);
        Ok(Self {
            listeners: listeners.collect::<Result<_, _>>()?,
            agent: AgentState::from(AgentParts {
                checks: doorman.checks(),
                doorman,
                rules: ForwardRules::new(rules),
                answers: settings.request_id_header.map(RecentAnswers::new),
                permits: Arc::new(PermitTable::new(settings.max_permits)),
                ready: false.into(),
                draining: Draining::default(),
                body_buffer: BodyBuffer::default(),
                requests: RequestMetrics::default(),
                connections: ConnectionMetrics::default(),
                layer: layer_metrics,
            }),
            follower,
        })
    }

    /// The bound addresses, with the actual ports.
    pub fn addresses(&self) -> impl Iterator<Item = ListenAddress> {
        self.listeners.iter().map(|it| match it {
            AgentListener::Tcp(it) => ListenAddress::Tcp(it.address()),
            AgentListener::Unix(it) => ListenAddress::Unix(it.path().to_owned()),
        })
    }

    /// Serves until `shutdown` is ready, drains the connections for up to 8 s, and releases the
    /// leases. Leases of gauges with permits in use expire instead.
    ///
    /// # Cancel safety
    /// When it is dropped, all connections are closed, and permits are given back.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> AgentStopped {
        let Self {
            listeners,
            agent,
            follower,
        } = self;
        let mut tasks = JoinSet::new();
        let permits = Arc::clone(&agent.permits);
        tasks.spawn(async move { permits.expire().await });
        let started = agent.clone();
        tasks.spawn(async move {
            if let Err(error) = started.doorman.ready(READY_TIMEOUT).await {
                tracing::warn!(%error, "serving without an answer of the control plane; fallbacks apply");
            }
            started.ready.store(true, Release);
        });
        if let Some(follower) = follower {
            tasks.spawn(follower.follow());
        }
        let shutdown = shutdown.shared();
        let serve = async |listener| {
            let hosts = allowed_hosts(&listener);
            let router = agent::router(agent.clone(), hosts);
            let metrics = agent.connections.clone();
            let on_drain = || agent.draining.begin();
            match listener {
                AgentListener::Tcp(it) => {
                    it.serve(router, metrics, shutdown.clone(), on_drain, |_| 0)
                        .await
                }
                AgentListener::Unix(it) => {
                    it.serve(router, metrics, shutdown.clone(), on_drain, |_| 0)
                        .await
                }
            }
        };
        let cut_off = join_all(listeners.into_iter().map(serve)).await;
        tasks.shutdown().await;
        // The permits are in use until the process ends.
        if let Err(error) = agent.doorman.clone().shutdown().await {
            tracing::warn!(%error, "cannot release the leases");
        }
        AgentStopped {
            cut_off: cut_off.iter().sum(),
        }
    }
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// A web page cannot reach a Unix socket.
fn allowed_hosts(listener: &AgentListener) -> AllowedHosts {
    match listener {
        AgentListener::Tcp(it) if is_loopback(it.address()) => {
            AllowedHosts::of_machine(&format!("http://{}", it.address()))
        }
        AgentListener::Tcp(it) => AllowedHosts::any(&format!("http://{}", it.address())),
        AgentListener::Unix(_) => AllowedHosts::any("http://localhost"),
    }
}

/// Applies the rules of a file whenever it changes.
#[derive(Debug)]
struct RulesFollower {
    file: FileSource,
    service: String,
    rules: OwnRules,
    /// The content of the file that applies.
    applied: Vec<Rule>,
}

impl RulesFollower {
    fn start(file: FileSource, service: String, doorman: &Doorman) -> Result<Self, AgentError> {
        let applied = file.rules()?;
        let follower = Self {
            file,
            service,
            rules: doorman.own_rules(),
            applied,
        };
        follower.apply(&follower.applied)?;
        Ok(follower)
    }

    fn apply(&self, rules: &[Rule]) -> Result<(), InvalidRules> {
        let own = rules.iter().filter(|rule| rule.applies_to(&self.service));
        let own: Vec<_> = own.map(|rule| rule.definition().clone()).collect();
        let not_applied = self.rules.replace(&own)?;
        if own.is_empty() {
            tracing::warn!(
                service = self.service,
                "no rule of the file applies to this service; forwarded requests are not limited"
            );
        }
        for NotApplied { rule, reason, .. } in not_applied {
            tracing::error!(rule, reason, "rule not applied");
        }
        Ok(())
    }

    /// An invalid file leaves the last valid rules in force.
    async fn follow(mut self) {
        let read = {
            let file = self.file.clone();
            move || file.rules().map_err(|error| error.full_message())
        };
        let mut follower = FileFollower::new([self.file.directory()], read);
        // The file may have changed since it was read at the start.
        let mut known = Ok(mem::take(&mut self.applied));
        loop {
            let content = follower.next(|it| *it == known).await;
            if content == known {
                continue;
            }
            let applied = content
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|rules| self.apply(rules).map_err(|error| error.to_string()));
            match applied {
                Ok(()) => tracing::info!(file = %self.file, "rules updated"),
                Err(error) => {
                    tracing::error!(error, "invalid rules; the last valid rules stay in force");
                }
            }
            known = content;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use axum::http::Request;
    use tower_doorman::RequestHead;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn change_between_start_and_following_is_applied() {
        let home = tempfile::TempDir::new().unwrap();
        let path = home.path().join("rules.yaml");
        let write = |resource: &str| {
            let text = format!("rules: [{{name: all, service: '*', resource: '{resource}'}}]");
            fs::write(&path, text).unwrap();
        };
        write("closed");
        let doorman = Doorman::fixed([("open", 1e6)]);
        let file = FileSource::new(path.clone());
        let follower = RulesFollower::start(file, "shop".to_owned(), &doorman).unwrap();
        let layer = follower.rules.layer();
        let is_admitted = || layer.try_admit(&RequestHead::of(&Request::new(()))).is_ok();
        assert!(!is_admitted());
        write("open");
        let updated = async {
            while !is_admitted() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::select! {
            () = follower.follow() => {}
            updated = tokio::time::timeout(Duration::from_secs(60), updated) => updated.unwrap(),
        }
    }
}
