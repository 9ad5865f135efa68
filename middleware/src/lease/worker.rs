//! The task around the state machine: it keeps the time, looks at the limiters, carries requests and tells the limiters what they have.

mod end;
mod log;
mod ready;
mod rules;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use doorman_openapi::{Moment, ResourceId};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, error::TryRecvError},
        oneshot,
    },
    task::yield_now,
    time::sleep,
};

use self::{log::Unanswered, ready::Waiters};
use super::{
    Effect, Event, Holder, Holding,
    carrier::{Carrier, Outcome, RulesOutcome, Transport},
    publish,
    rarely::Counted,
    rules::Polling,
    tracked::Limiters,
};
use crate::{
    clock,
    limiter::{Nudge, Registry},
    meter::LeaseMeter,
    rules::Rules,
    status::{Status, WorkerState},
};

/// The way that is taken unless another is given; without the feature `reqwest` there is none.
#[cfg(feature = "reqwest")]
type Usual = super::HttpTransport;
#[cfg(not(feature = "reqwest"))]
type Usual = std::convert::Infallible;

/// How long the release of idle resources may take. Nobody waits for it.
const IDLE_RELEASE_TIME: Duration = Duration::from_secs(2);
/// It wakes at least so often: a timer stands still while the machine is suspended, and leases do not.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

/// With very many keys it does not keep other tasks from their thread for longer than so many looks.
const LOOKS_AT_A_TIME: usize = 1_000;
/// Nor for longer than so many nudges.
const NUDGES_AT_A_TIME: usize = 1_000;

/// What a handle asks of the worker.
#[derive(Debug)]
pub(crate) enum Command {
    /// Say when every fixed limiter that there is now has been answered for.
    Ready(oneshot::Sender<()>),
    /// Give the leases back and end.
    Shutdown(oneshot::Sender<Result<(), String>>),
}

/// What the worker is made of.
pub(crate) struct Parts<T> {
    pub(crate) holder: Holder,
    pub(crate) carrier: Carrier<T>,
    pub(crate) registry: Weak<Registry>,
    pub(crate) nudges: UnboundedReceiver<Nudge>,
    pub(crate) commands: UnboundedReceiver<Command>,
    pub(crate) status: Arc<Status>,
    pub(crate) idle_after: Duration,
    /// The name of the service, and the rules for it.
    pub(crate) service: String,
    pub(crate) rules: Arc<Rules>,
}

/// The one task of a process that leases for all of its limits. It does nothing until it is [run](Self::run).
#[must_use = "no lease comes unless the worker is run"]
pub struct Worker<T = Usual> {
    parts: Parts<T>,
    limiters: Limiters,
    waiters: Waiters,
    asking: UnderWay<Outcome>,
    releasing: UnderWay<Result<(), String>>,
    fetching: UnderWay<RulesOutcome>,
    polling: Polling,
    /// The last request that failed, for the log.
    last_failure: Option<Unanswered>,
    refusals: Counted,
    gauges: Counted,
    meter: LeaseMeter,
}

type UnderWay<T> = FuturesUnordered<Pin<Box<dyn Future<Output = T> + Send>>>;

/// Why the worker ends.
enum End {
    Told(oneshot::Sender<Result<(), String>>),
    HandlesGone,
}

impl<T: Transport> Worker<T> {
    pub(crate) fn new(parts: Parts<T>) -> Self {
        Self {
            polling: Polling::new(parts.carrier.servers.len()),
            fetching: FuturesUnordered::new(),
            parts,
            limiters: Limiters::default(),
            waiters: Waiters::default(),
            asking: FuturesUnordered::new(),
            releasing: FuturesUnordered::new(),
            last_failure: None,
            refusals: Counted::default(),
            gauges: Counted::default(),
            meter: LeaseMeter::default(),
        }
    }

    /// Leases until it is told to stop, or until every handle and everything made from one is dropped. Then it gives the leases back,
    /// for at most half a second.
    ///
    /// # Cancel safety
    /// Dropped before it has ended, it gives nothing back: the leases end by themselves, and so does what the limits may spend of them.
    pub async fn run(mut self) {
        self.parts.status.set(WorkerState::Running);
        let end = self.work().await;
        let released = self.give_back().await;
        if let Err(reason) = &released {
            tracing::info!(reason, "leases were not given back: they end by themselves");
        }
        self.parts.status.set(WorkerState::Stopped);
        match end {
            // Whoever asked may have gone away meanwhile.
            End::Told(reply) => drop(reply.send(released)),
            End::HandlesGone => {}
        }
    }

    async fn work(&mut self) -> End {
        let mut commanded = true;
        let rules = Arc::clone(&self.parts.rules);
        let mut nudges = Vec::new();
        loop {
            let wake = self.catch_up();
            let pause = wake.since(clock::now()).min(LONGEST_SLEEP);
            if pause.is_zero() {
                yield_now().await;
            }
            tokio::select! {
                biased;
                command = self.parts.commands.recv(), if commanded => match command {
                    Some(Command::Shutdown(reply)) => return End::Told(reply),
                    Some(Command::Ready(reply)) => {
                        if self.take_nudges().is_none() {
                            return End::HandlesGone;
                        }
                        let rules = self.parts.rules.are_awaited();
                        self.waiters.add(reply, &self.limiters, rules);
                    }
                    // The handles are gone, but not yet what was made from them.
                    None => commanded = false,
                },
                // Answers are few, nudges may be many: no flood of new keys holds up a lease.
                Some(outcome) = self.asking.next() => self.came_out(outcome),
                Some(_) = self.releasing.next() => {}
                Some(outcome) = self.fetching.next() => self.rules_came_out(outcome),
                () = rules.wanted() => self.polling.begin(clock::now()),
                // What they bring about goes together.
                taken = self.parts.nudges.recv_many(&mut nudges, NUDGES_AT_A_TIME) => {
                    if taken == 0 {
                        return End::HandlesGone;
                    }
                    for nudge in nudges.drain(..) {
                        self.nudged(nudge);
                    }
                }
                // What is due is done in every round.
                () = sleep(pause) => {}
            }
        }
    }

    /// Does all that is due now; when to come back.
    fn catch_up(&mut self) -> Moment {
        let now = clock::now();
        // A limiter that is looked at can nudge anew: not while what it and others have said before is still to be heard.
        let looks = if self.parts.nudges.is_empty() {
            LOOKS_AT_A_TIME
        } else {
            0
        };
        for _ in 0..looks {
            let Some(look) = self.limiters.look_next(self.parts.idle_after, now) else {
                break;
            };
            if look.idle && self.forget(&look.id) {
                self.handle(Event::Forget { resource: look.id }, now);
            } else {
                if look.learned
                    && let Some(holding) = self.parts.holder.holding(&look.id, now)
                {
                    self.changed(&look.id, &holding, now);
                }
                self.demand(look.id, look.demand, now);
            }
        }
        while self.parts.holder.wake_at() <= now {
            for id in self.parts.holder.due(now) {
                if let Some(demand) = self.limiters.report(&id, now) {
                    self.demand(id, demand, now);
                }
            }
            self.handle(Event::Tick, now);
        }
        self.fetch_rules(now);
        let leases = self.parts.holder.wake_at().min(self.limiters.next_look());
        leases.min(self.polling.wake_at())
    }

    /// Forgets an idle limiter, if nobody needs it.
    fn forget(&mut self, id: &ResourceId) -> bool {
        let Some(registry) = self.parts.registry.upgrade() else {
            return false;
        };
        let forgotten = self
            .limiters
            .get_mut(id)
            .is_some_and(|tracked| registry.forget(&tracked.limiter));
        if forgotten {
            self.limiters.remove(id);
            self.meter.forget(id);
        }
        forgotten
    }

    /// Takes what nudges there are; `None` when there will be no more.
    fn take_nudges(&mut self) -> Option<()> {
        loop {
            match self.parts.nudges.try_recv() {
                Ok(nudge) => self.nudged(nudge),
                Err(TryRecvError::Empty) => return Some(()),
                Err(TryRecvError::Disconnected) => return None,
            }
        }
    }

    fn nudged(&mut self, nudge: Nudge) {
        let now = clock::now();
        match nudge {
            // It is looked at at once.
            Nudge::New(limiter) => self.limiters.insert(limiter, now),
            Nudge::Shortage(limiter, need) => {
                let id = limiter.resource();
                if let Some(demand) = self.limiters.look_at_hungry(id, need, now) {
                    self.demand(id.clone(), demand, now);
                }
            }
        }
    }

    fn came_out(&mut self, outcome: Outcome) {
        let Outcome {
            seq,
            endpoint,
            called,
            result,
        } = outcome;
        let event = match result {
            Ok(response) => Event::Answered { seq, response },
            Err(failed) => {
                let server = self.parts.carrier.name(endpoint);
                self.last_failure = Some(Unanswered {
                    reason: format!("{server}: {}", failed.reason),
                    called,
                });
                self.tell_failure();
                let failure = failed.failure;
                Event::Failed { seq, failure }
            }
        };
        self.meter.came_out(&event);
        self.handle(event, clock::now());
    }

    fn demand(&mut self, resource: ResourceId, demand: super::Demand, now: Moment) {
        self.handle(Event::Demand { resource, demand }, now);
    }

    fn handle(&mut self, event: Event, now: Moment) {
        for effect in self.parts.holder.handle(event, now) {
            match effect {
                Effect::Send {
                    seq,
                    endpoint,
                    request,
                    timeout,
                } => {
                    let asking = self.parts.carrier.ask(seq, endpoint, &request, timeout);
                    self.asking.push(Box::pin(asking));
                }
                Effect::SendRelease {
                    endpoint, request, ..
                } => {
                    let time = IDLE_RELEASE_TIME;
                    let releasing = self.parts.carrier.give_back(endpoint, &request, time);
                    self.releasing.push(Box::pin(releasing));
                }
                Effect::Changed { resource, holding } => self.changed(&resource, &holding, now),
                Effect::Warn(warning) => self.warn(&warning, now),
            }
        }
    }

    /// Tells a limiter what it has.
    fn changed(&mut self, resource: &ResourceId, holding: &Holding, now: Moment) {
        let Some(tracked) = self.limiters.get_mut(resource) else {
            return;
        };
        let told = holding.told.as_deref();
        tracked.measure(holding.refresh_interval, told);
        let fallback = tracked.limiter.settings().fallback.get();
        let standing = publish::standing(holding, tracked.knowledge(now), fallback);
        let per = publish::per(told);
        let in_use = publish::counts_in_use(told);
        tracked.limiter.set_unit_mismatch(in_use);
        tracked.limiter.publish(standing, now);
        self.meter
            .published(&mut tracked.lease_phase, &tracked.limiter, standing, per);
        if in_use
            && !std::mem::replace(&mut tracked.warned, true)
            && let Some(left_out) = self.gauges.now(now)
        {
            tracing::error!(
                %resource,
                left_out,
                "the resource counts what is in use at one time, and a limit wears it as a rate: the fallback counts"
            );
        }
        if holding.answered && !std::mem::replace(&mut tracked.answered, true) {
            self.waiters.answered(resource);
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
                "the leasing worker was dropped while limits need it: no lease comes any more, and the fallbacks count"
            );
        }
    }
}
