//! The task that asks the parent node while this server is master.

use std::{future::Future, net::IpAddr, path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use doorman_core::upstream::{Effect, Event};
use doorman_openapi::{
    Epoch, Moment, NodeId, Seq, ServerCapacityRequest, ServerCapacityResponse, ServerUrl,
    paths::{SERVER_CAPACITY, SERVER_CAPACITY_RELEASE},
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::sleep;
use tower_doorman::{
    Credentials,
    lease::{
        Certificates, ControlPlaneClient, FetchedHints, HttpTransport, Outcome, Pem, RequestError,
        TransportError, Warning,
    },
};

use super::ParentNode;
use crate::{leasing::SharedLedger, util::clock};

/// The longest sleep: timers stand still while the machine is suspended.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// The parent node.
#[derive(Debug, Clone)]
pub struct ParentSettings {
    /// Its servers; at least one.
    pub servers: Vec<ServerUrl>,
    /// The file of the token, which is read again for each request.
    pub token_file: Option<PathBuf>,
    /// Certificate authorities of the servers (PEM); `None`: those of the system.
    pub ca_file: Option<PathBuf>,
}

impl ParentSettings {
    /// The first server that gets the token unencrypted, over a network.
    pub(crate) fn gets_token_unencrypted(&self) -> Option<&ServerUrl> {
        self.token_file.as_ref()?;
        let is_loopback = |host: &str| {
            let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
            address.map_or(host == "localhost", |it| it.to_canonical().is_loopback())
        };
        let mut servers = self.servers.iter();
        servers.find(|it| !it.is_encrypted() && !is_loopback(it.host()))
    }

    /// A client of its servers.
    ///
    /// # Errors
    /// The file of the certificate authorities cannot be used.
    pub(crate) fn client(&self) -> Result<ControlPlaneClient<HttpTransport>, TransportError> {
        let is_encrypted = self.servers.iter().any(ServerUrl::is_encrypted);
        let certificates = Certificates {
            authority: self.ca_file.clone().map(|file| Pem::Files(vec![file])),
            ..Certificates::default()
        };
        Ok(ControlPlaneClient {
            transport: HttpTransport::new(certificates, is_encrypted)?,
            servers: self.servers.clone().into(),
            credentials: self.token_file.clone().map(Credentials::file),
        })
    }
}

type Pending<T> = FuturesUnordered<Pin<Box<dyn Future<Output = T> + Send>>>;

/// A request that waits for its response.
#[derive(Debug, Clone, Copy)]
struct Sent {
    seq: Seq,
    endpoint: usize,
    at: Moment,
}

/// Leases from the parent node in every reign of this server.
pub(crate) struct UpstreamTask {
    ledger: Arc<SharedLedger>,
    node: NodeId,
    client: ControlPlaneClient<HttpTransport>,
    parent: Arc<ParentNode>,
    /// The address of this server, which the parent shows to operators.
    address: Option<ServerUrl>,
    /// The epoch of the reign that its requests belong to.
    epoch: Option<Epoch>,
    requests: Pending<(Sent, Outcome<ServerCapacityResponse>)>,
    releases: Pending<Outcome<()>>,
    polls: Pending<(usize, Outcome<FetchedHints>)>,
    /// The server of the parent that tells of changed rules, as the state machine knows it.
    rules_source: Option<usize>,
}

impl UpstreamTask {
    /// # Errors
    /// The file of the certificate authorities cannot be used.
    pub(crate) fn new(
        settings: &ParentSettings,
        node: NodeId,
        address: Option<ServerUrl>,
        ledger: Arc<SharedLedger>,
        parent: Arc<ParentNode>,
    ) -> Result<Self, TransportError> {
        Ok(Self {
            ledger,
            node,
            client: settings.client()?,
            parent,
            address,
            epoch: None,
            requests: FuturesUnordered::new(),
            releases: FuturesUnordered::new(),
            polls: FuturesUnordered::new(),
            rules_source: None,
        })
    }

    /// Runs until it is dropped.
    pub(crate) async fn run(mut self) {
        let shared = Arc::clone(&self.ledger);
        loop {
            self.handle(Event::Wake);
            self.follow_rules();
            let wake = shared.upstream(|upstream, _| upstream.wake_at());
            let wake = wake.unwrap_or(Moment::NEVER);
            let pause = wake.since(clock::now()).min(MAX_SLEEP);
            tokio::select! {
                Some((sent, answer)) = self.requests.next() => self.on_answer(sent, answer),
                Some(answer) = self.releases.next() => {
                    if let Err(RequestError { reason, .. }) = answer.result {
                        tracing::info!(reason, "cannot release leases from the parent; they will expire");
                    }
                }
                Some((endpoint, answer)) = self.polls.next() => self.on_hints(endpoint, answer),
                () = shared.parent_updates.notified() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Passes an event to the state machine of this reign, which begins with it.
    fn handle(&mut self, event: Event) {
        let told = self.ledger.tell_upstream(self.epoch, event);
        let epoch = told.as_ref().ok().map(|(epoch, _)| *epoch);
        if epoch.is_none() || epoch != self.epoch {
            // Safety rule: sequence numbers begin anew, so a late response would count for a
            // request of this reign.
            self.parent.forget_leases();
            self.requests.clear();
            self.polls.clear();
            self.rules_source = None;
        }
        self.epoch = epoch;
        if let Ok((_, effects)) = told {
            self.execute(effects);
        }
    }

    fn execute(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send {
                    seq,
                    endpoint,
                    request,
                    timeout,
                } => {
                    let request = ServerCapacityRequest {
                        address: self.address.clone(),
                        ..request
                    };
                    let client = &self.client;
                    let answer =
                        client.request_leases(endpoint, SERVER_CAPACITY, &request, timeout);
                    let sent = Sent {
                        seq,
                        endpoint,
                        at: clock::now(),
                    };
                    self.requests
                        .push(Box::pin(async move { (sent, answer.await) }));
                }
                Effect::Release { endpoint, request } => {
                    let path = SERVER_CAPACITY_RELEASE;
                    let released = self.client.release(endpoint, path, &request, MAX_SLEEP);
                    self.releases.push(Box::pin(released));
                }
                Effect::OpenPoll { endpoint, after } => {
                    let holder = ("node_id", self.node.as_str());
                    let hints = self.client.poll_hints(endpoint, holder, None, after);
                    self.polls
                        .push(Box::pin(async move { (endpoint, hints.await) }));
                }
                Effect::ClosePoll => self.polls.clear(),
                Effect::Warn(warning) => self.warn(warning),
            }
        }
    }

    fn on_answer(&mut self, sent: Sent, answer: Outcome<ServerCapacityResponse>) {
        let Sent { seq, endpoint, at } = sent;
        let event = match answer.result {
            Ok(response) => {
                self.parent.on_leases(&response, at, clock::now());
                Event::Answered { seq, response }
            }
            Err(RequestError { failure, reason }) => {
                let server = self.client.address(endpoint);
                tracing::debug!(server, reason, "request to the parent failed");
                self.parent
                    .on_failure(&failure, &format!("{server}: {reason}"), clock::now());
                Event::Failed { seq, failure }
            }
        };
        self.handle(event);
    }

    fn follow_rules(&mut self) {
        let source = self.parent.rules_source();
        if source != self.rules_source {
            self.rules_source = source;
            self.handle(Event::RulesSource { endpoint: source });
        }
    }

    fn on_hints(&mut self, endpoint: usize, answer: Outcome<FetchedHints>) {
        self.handle(match answer.result {
            Ok(FetchedHints::Hints(hints)) => {
                if hints.rules {
                    self.parent.announce_rules(endpoint);
                }
                Event::Hinted { endpoint, hints }
            }
            Ok(FetchedHints::Unsupported) => Event::PollUnsupported,
            Err(RequestError { failure, .. }) => Event::PollFailed { endpoint, failure },
        });
    }

    fn warn_unreachable(&self) {
        let status = self.parent.status(clock::now());
        tracing::warn!(
            error = status.error,
            "{}; leases of this node will expire, then fallbacks apply",
            status.problem.as_deref().unwrap_or("parent unreachable"),
        );
    }

    fn warn(&self, warning: Warning) {
        match warning {
            Warning::Unreachable => self.warn_unreachable(),
            Warning::Recovered => tracing::info!("parent reachable again"),
            Warning::Rejected { resource } => tracing::error!(
                %resource,
                "parent rejects the resource; its token must allow the scope `server`, this node \
                 and the resource"
            ),
            Warning::ForeignNode {
                endpoint,
                known,
                received,
            } => tracing::error!(
                server = self.client.address(endpoint),
                %known,
                %received,
                "server of another node ignored: all of --parent must be servers of one node"
            ),
            Warning::StaleEpoch {
                endpoint,
                known,
                received,
            } => tracing::warn!(
                server = self.client.address(endpoint),
                known = known.get(),
                received = received.get(),
                "ignoring response of a parent server with a stale epoch"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unencrypted_token_over_a_network_is_found() {
        let found = |servers: &[&str]| {
            let settings = ParentSettings {
                servers: servers.iter().map(|it| it.parse().unwrap()).collect(),
                token_file: Some("token".into()),
                ca_file: None,
            };
            let found = settings.gets_token_unencrypted();
            found.map(ToString::to_string)
        };
        let local = ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1"];
        assert_eq!(found(&local), None);
        assert_eq!(found(&["https://root:7300"]), None);
        let mixed = ["https://root:7300", "http://root:7301"];
        assert_eq!(found(&mixed), Some("http://root:7301".to_owned()));
    }
}
