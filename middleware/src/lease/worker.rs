//! The task around the engine: it keeps the time, sends requests and logs.

mod hints;
mod leases;
mod rules;
#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use doorman_holder::LogThrottle;
use doorman_openapi::{CapacityResponse, ResourceId, Seq, paths::CAPACITY_RELEASE};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, error::TryRecvError},
        oneshot,
    },
    task::yield_now,
    time::{sleep, timeout},
};

use self::{leases::RequestFailure, rules::RulesPoller};
use super::{
    client::{ControlPlaneClient, FetchedHints, FetchedRules, Outcome, Transport},
    engine::Engine,
};
use crate::{
    clock,
    limiter::{Nudge, Registry},
    meter::LeaseMeter,
    rules::Rules,
    status::{Status, WorkerState},
};

/// The default transport; without the feature `reqwest` there is none.
#[cfg(feature = "reqwest")]
type DefaultTransport = super::HttpTransport;
#[cfg(not(feature = "reqwest"))]
type DefaultTransport = std::convert::Infallible;

/// How long a key is kept without requests, by default.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(60);
/// The time to release all leases, so that a process that ends is not held up.
const SHUTDOWN_TIME: Duration = Duration::from_millis(500);
/// The longest sleep: timers stand still while the machine is suspended, but leases expire.
const MAX_SLEEP: Duration = Duration::from_secs(5);
/// The most samples or nudges between two polls, so that other tasks get their turn.
const MAX_PER_ROUND: usize = 1_000;

#[derive(Debug)]
pub(crate) enum Command {
    /// Reply when every permanent limiter that exists now has been answered.
    Ready(oneshot::Sender<()>),
    /// Release the leases and end.
    Shutdown(oneshot::Sender<Result<(), String>>),
}

pub(crate) struct WorkerParts<T> {
    pub(crate) engine: Engine,
    pub(crate) client: ControlPlaneClient<T>,
    pub(crate) registry: Weak<Registry>,
    pub(crate) nudges: UnboundedReceiver<Nudge>,
    pub(crate) commands: UnboundedReceiver<Command>,
    pub(crate) status: Arc<Status>,
    /// The service whose rules are fetched.
    pub(crate) service: String,
    pub(crate) rules: Arc<Rules>,
}

/// The task that leases for all limits of a process. It does nothing until it is [run](Self::run).
#[must_use = "no lease is requested unless the worker runs"]
pub struct Worker<T = DefaultTransport> {
    parts: WorkerParts<T>,
    waiters: Waiters,
    lease_requests: InFlight<(Seq, Outcome<CapacityResponse>)>,
    releases: InFlight<Outcome<()>>,
    rules_requests: InFlight<Outcome<FetchedRules>>,
    rules_poller: RulesPoller,
    /// At most one.
    hint_polls: InFlight<Outcome<FetchedHints>>,
    last_failure: Option<RequestFailure>,
    rejection_log: LogThrottle,
    gauge_log: LogThrottle,
    learning_log: LogThrottle,
    meter: LeaseMeter,
}

type InFlight<T> = FuturesUnordered<Pin<Box<dyn Future<Output = T> + Send>>>;

enum End {
    Shutdown(oneshot::Sender<Result<(), String>>),
    HandlesDropped,
}

impl<T: Transport> Worker<T> {
    pub(crate) fn new(parts: WorkerParts<T>) -> Self {
        Self {
            rules_poller: RulesPoller::new(
                parts.client.servers.len(),
                parts.engine.holder().server(),
            ),
            parts,
            waiters: Waiters::default(),
            lease_requests: FuturesUnordered::new(),
            releases: FuturesUnordered::new(),
            rules_requests: FuturesUnordered::new(),
            hint_polls: FuturesUnordered::new(),
            last_failure: None,
            rejection_log: LogThrottle::default(),
            gauge_log: LogThrottle::default(),
            learning_log: LogThrottle::default(),
            meter: LeaseMeter::default(),
        }
    }

    /// Leases until shutdown, or until every handle and everything made from one is dropped. Then
    /// it releases the leases, within half a second.
    ///
    /// # Cancel safety
    /// Dropped before its end, it releases nothing: the leases expire.
    pub async fn run(mut self) {
        self.parts.status.set(WorkerState::Running);
        let end = self.run_until_end().await;
        let released = self.release_all().await;
        if let Err(reason) = &released {
            tracing::info!(reason, "leases not released; they will expire");
        }
        self.parts.status.set(WorkerState::Stopped);
        match end {
            // The caller may no longer wait.
            End::Shutdown(reply) => drop(reply.send(released)),
            End::HandlesDropped => {}
        }
    }

    async fn run_until_end(&mut self) -> End {
        let mut has_handles = true;
        let rules = Arc::clone(&self.parts.rules);
        let mut nudges = Vec::new();
        loop {
            let wake = self.process_due();
            let pause = wake.since(clock::now()).min(MAX_SLEEP);
            if pause.is_zero() {
                yield_now().await;
            }
            tokio::select! {
                biased;
                command = self.parts.commands.recv(), if has_handles => match command {
                    Some(Command::Shutdown(reply)) => return End::Shutdown(reply),
                    Some(Command::Ready(reply)) => {
                        if self.take_nudges().is_none() {
                            return End::HandlesDropped;
                        }
                        let rules = self.parts.rules.are_pending();
                        let follows_rules = self.parts.rules.snapshot().is_some();
                        if !follows_rules && !self.parts.engine.has_permanent() {
                            tracing::warn!(
                                "`ready` waits for nothing: call it after `layer`, `rate` and the \
                                 like; limits by key lease nothing before their first request"
                            );
                        }
                        self.waiters.add(reply, &self.parts.engine, rules);
                    }
                    // Layers and rates may still exist.
                    None => has_handles = false,
                },
                // Responses before nudges, so that no flood of new keys delays a lease.
                Some((seq, outcome)) = self.lease_requests.next() => {
                    self.on_lease_response(seq, outcome);
                }
                Some(outcome) = self.releases.next() => self.log_release(&outcome),
                Some(outcome) = self.rules_requests.next() => self.on_rules_response(outcome),
                Some(outcome) = self.hint_polls.next() => self.on_hints_response(outcome),
                () = rules.requested() => self.rules_poller.start(clock::now()),
                taken = self.parts.nudges.recv_many(&mut nudges, MAX_PER_ROUND) => {
                    if taken == 0 {
                        return End::HandlesDropped;
                    }
                    let now = clock::now();
                    for nudge in nudges.drain(..) {
                        self.parts.engine.on_nudge(nudge, now);
                    }
                }
                () = sleep(pause) => {}
            }
        }
    }

    /// Processes the nudges in the channel; `None` when it is closed.
    fn take_nudges(&mut self) -> Option<()> {
        loop {
            match self.parts.nudges.try_recv() {
                Ok(nudge) => self.parts.engine.on_nudge(nudge, clock::now()),
                Err(TryRecvError::Empty) => return Some(()),
                Err(TryRecvError::Disconnected) => return None,
            }
        }
    }

    /// Releases every lease, at one server after the other. Each gets a part of the time.
    async fn release_all(&mut self) -> Result<(), String> {
        // Among them are units that cool down.
        self.take_nudges();
        self.lease_requests.clear();
        self.hint_polls.clear();
        let mut failure = String::from("no response in time");
        let servers = self.parts.client.servers.len();
        let time = SHUTDOWN_TIME.div_f64(servers.max(1) as f64);
        let release = async {
            for _ in 0..servers {
                let Some((endpoint, request)) = self.stop_engine(clock::now()) else {
                    return Ok(());
                };
                let client = &self.parts.client;
                let release = client.release(endpoint, CAPACITY_RELEASE, &request, time);
                let outcome = release.await;
                self.log_release(&outcome);
                match outcome.result {
                    Ok(()) => return Ok(()),
                    Err(error) => {
                        let server = self.parts.client.address(endpoint);
                        failure = format!("{server}: {}", error.reason);
                    }
                }
            }
            Err(())
        };
        match timeout(SHUTDOWN_TIME, release).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(())) | Err(_) => Err(failure),
        }
    }
}

/// Callers that wait for the first responses.
#[derive(Debug, Default)]
struct Waiters(Vec<Waiter>);

#[derive(Debug)]
struct Waiter {
    unanswered: HashSet<ResourceId>,
    /// Whether it waits for the first rules, and then for their limiters.
    rules: bool,
    reply: oneshot::Sender<()>,
}

impl Waiters {
    fn add(&mut self, reply: oneshot::Sender<()>, engine: &Engine, rules: bool) {
        self.0.push(Waiter {
            unanswered: engine.unanswered().collect(),
            rules,
            reply,
        });
        self.reply();
    }

    fn on_rules(&mut self, engine: &Engine) {
        for waiter in self.0.iter_mut().filter(|waiter| waiter.rules) {
            waiter.rules = false;
            waiter.unanswered.extend(engine.unanswered());
        }
        self.reply();
    }

    fn on_answered(&mut self, id: &ResourceId) {
        if self.0.is_empty() {
            return;
        }
        for waiter in &mut self.0 {
            waiter.unanswered.remove(id);
        }
        self.reply();
    }

    /// Replies to waiters that are done and drops those that were canceled.
    fn reply(&mut self) {
        let is_done = |waiter: &mut Waiter| {
            (waiter.unanswered.is_empty() && !waiter.rules) || waiter.reply.is_closed()
        };
        for waiter in self.0.extract_if(.., is_done) {
            waiter.reply.send(()).ok();
        }
    }
}

impl<T> fmt::Debug for Worker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("status", &self.parts.status.get())
            .finish_non_exhaustive()
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        let state = self.parts.status.get();
        if state == WorkerState::Stopped {
            return;
        }
        self.parts.status.set(WorkerState::Died);
        if self.parts.registry.strong_count() > 0 {
            tracing::error!(
                ?state,
                "lease worker dropped while limits are in use; leases will expire, then fallbacks apply"
            );
        }
    }
}
