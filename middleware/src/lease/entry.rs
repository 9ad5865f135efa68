//! One resource: what is held of it, and when to ask again.

use std::{sync::Arc, time::Duration};

use doorman_openapi::{
    Capacity, HeldLease, Moment, Reason, ResourceId, ResourceRequest, ResourceResponse, Seconds,
    Seq,
};

use super::{
    Demand, Holding, Leased, SharedBalance, Sharing, Told, backoff::LONGEST_WHILE_LAPSED,
    roll::Named,
};

/// A new resource waits so long for others, so that a burst of new keys goes in one request.
pub(super) const GATHERING: Duration = Duration::from_millis(3);
/// Nothing that a server says makes a holder ask more often than this.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// The refresh interval until one is told.
const UNTOLD_INTERVAL: Duration = Duration::from_secs(1);
/// No request is given up sooner, whatever the interval.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(2);
/// What is due within this part of its interval goes along with what is due now.
const RIDE: f64 = 0.1;
/// Refreshes come early by up to this part of the interval, so that a fleet that starts as one does not ask as one.
const SPREAD: f64 = 0.05;
/// A demand has outgrown what was asked when it is larger by more than the noise of a measured rate.
const OUTGROWN: f64 = 1.2;
/// It has leapt when it is larger by more than this: so few leaps lead from next to nothing to all there is that each may be told.
const LEAPT: f64 = 2.0;
/// What has outgrown its lease without a leap is told after a quarter of its interval, and no later than this: after a leap what is still
/// missing is no leap, and would be missing for as long as intervals of minutes say.
const LONGEST_OUTGROWN: Duration = Duration::from_millis(1250);
/// Early requests leave at moments that all resources share, so far apart: however many demands rise, each at its own time, no more
/// requests leave than there are such moments.
const EARLY_TOGETHER: Duration = Duration::from_millis(20);
/// Capacities closer than this are the same: the sums of a server are not exact.
const TOLERANCE: f64 = 1e-9;

/// Whether a request is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Until `due`. Becomes `UnderWay` when it is sent; a grown demand moves `due` forward.
    Waiting { due: Moment },
    /// Becomes `Waiting` when this very request is answered or has failed: the answer to any other is dead.
    UnderWay { seq: Seq },
}

#[derive(Debug)]
pub(super) struct Entry {
    resource: ResourceId,
    demand: Demand,
    /// What the newest request asked for.
    asked: Capacity,
    /// What it said had been used.
    reported: Capacity,
    lease: Option<Kept>,
    /// Of this resource once it has been answered for, of its template before.
    told: Option<Arc<Told>>,
    answered: bool,
    interval: Seconds,
    /// When the newest request was sent.
    sent: Option<Moment>,
    state: State,
    /// Whether the newest request said that a lease is held.
    claimed: bool,
    /// Whether the newest request reports a shrink.
    reporting: bool,
    /// Whether the newest request was sent early for a leap, which may have been a burst.
    leapt: bool,
    refused: bool,
}

/// A lease. How it is shared is rarely anything to remember, and has a place of its own then.
#[derive(Debug)]
struct Kept {
    capacity: Capacity,
    ends: Moment,
    blocked: bool,
    as_asked: bool,
    sharing: Option<Box<Sharing>>,
}

impl From<Leased> for Kept {
    fn from(leased: Leased) -> Self {
        let Leased {
            capacity,
            ends,
            blocked,
            as_asked,
            sharing,
        } = leased;
        Self {
            capacity,
            ends,
            blocked,
            as_asked,
            sharing: (sharing != Sharing::Divided).then(|| Box::new(sharing)),
        }
    }
}

impl Kept {
    fn leased(&self) -> Leased {
        Leased {
            capacity: self.capacity,
            ends: self.ends,
            blocked: self.blocked,
            as_asked: self.as_asked,
            sharing: self.sharing.as_deref().copied().unwrap_or_default(),
        }
    }
}

impl Named for Entry {
    fn resource(&self) -> &ResourceId {
        &self.resource
    }
}

impl Entry {
    pub(super) fn new(
        resource: ResourceId,
        demand: Demand,
        told: Option<Arc<Told>>,
        now: Moment,
    ) -> Self {
        Self {
            resource,
            demand,
            asked: Capacity::ZERO,
            reported: Capacity::ZERO,
            lease: None,
            told,
            answered: false,
            interval: UNTOLD_INTERVAL.into(),
            sent: None,
            state: State::Waiting {
                due: now.after(GATHERING),
            },
            claimed: false,
            reporting: false,
            leapt: false,
            refused: false,
        }
    }

    pub(super) fn due(&self) -> Option<Moment> {
        match self.state {
            State::Waiting { due } => Some(due),
            State::UnderWay { .. } => None,
        }
    }

    pub(super) fn ends(&self) -> Option<Moment> {
        self.lease.as_ref().map(|lease| lease.ends)
    }

    pub(super) fn interval(&self) -> Duration {
        self.interval.duration()
    }

    pub(super) fn is_under_way(&self, number: Seq) -> bool {
        self.state == State::UnderWay { seq: number }
    }

    pub(super) fn was_sent(&self) -> bool {
        self.sent.is_some()
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    /// What may be used now.
    fn held(&self, now: Moment) -> Option<Capacity> {
        let lease = self.lease.as_ref().filter(|lease| now < lease.ends);
        lease.map(|lease| lease.capacity)
    }

    /// Whether it goes along in a request that is sent now.
    pub(super) fn rides(&self, now: Moment) -> bool {
        let State::Waiting { due } = self.state else {
            return false;
        };
        let ahead = due.since(now);
        let interval = self.sent.map_or(Duration::ZERO, |sent| due.since(sent));
        ahead <= GATHERING || ahead <= interval.mul_f64(RIDE)
    }

    /// How long a request sent now may take: long enough for a slow server, but not past the end of the lease it renews, and where
    /// there is none, not so long that it stands in the way of the next try.
    pub(super) fn timeout(&self, now: Moment) -> Duration {
        let timeout = (self.interval() / 2).max(SHORTEST_TIMEOUT);
        match self.ends() {
            Some(ends) if now < ends => timeout.min(ends.since(now)).max(SHORTEST_INTERVAL),
            Some(_) | None => timeout.min(LONGEST_WHILE_LAPSED),
        }
    }

    /// It goes into the request of this number.
    pub(super) fn send(&mut self, seq: Seq, now: Moment) -> ResourceRequest {
        self.leapt = self.sent.is_some() && self.demand.wants.get() > self.asked.get() * LEAPT;
        self.asked = self.demand.wants;
        self.reported = self.demand.used;
        self.sent = Some(now);
        self.state = State::UnderWay { seq };
        let has = self.held(now);
        self.claimed = has.is_some();
        ResourceRequest {
            resource_id: self.resource.clone(),
            wants: self.demand.wants,
            priority: self.demand.priority,
            has: has.map(|capacity| HeldLease { capacity }),
            outstanding: Capacity::ZERO,
            used: Some(self.demand.used),
        }
    }

    /// So much is wanted now.
    pub(super) fn demanded(&mut self, demand: Demand, now: Moment) {
        self.demand = demand;
        self.hurry(now);
    }

    /// Asks early when the demand has outgrown both the lease and what was asked, though not too often: at once, nearly, when it is many
    /// times as much. And when it leapt and was no more than a burst, so that others need not do without for an interval: once, for who
    /// tells a fall has not leapt.
    fn hurry(&mut self, now: Moment) {
        let (State::Waiting { due }, Some(sent)) = (self.state, self.sent) else {
            return;
        };
        let wants = self.demand.wants.get();
        let held = self.held(now).unwrap_or_default().get();
        let grown = wants > held && wants > self.asked.get() * OUTGROWN;
        // What is measured from one report to the next falls with each.
        let fallen =
            self.leapt && !self.is_suppressed() && wants < held && wants * LEAPT < self.asked.get();
        if self.refused || !(grown || fallen) {
            return;
        }
        let pause = if wants > self.asked.get() * LEAPT {
            SHORTEST_INTERVAL
        } else {
            (self.interval() / 4).clamp(SHORTEST_INTERVAL, LONGEST_OUTGROWN)
        };
        let early = together(sent.after(pause).max(now));
        self.state = State::Waiting {
            due: due.min(early),
        };
    }

    /// The newest request was answered.
    pub(super) fn answered(
        &mut self,
        answer: &ResourceResponse,
        told: Arc<Told>,
        now: Moment,
        chance: &mut fastrand::Rng,
    ) {
        if self.claimed && self.held(now).is_none() {
            // What was said to be held is held no more, and a server that has restarted meanwhile may only have repeated it: others
            // may have it by now. Ask again, saying so.
            self.put_off(now);
            return;
        }
        let sent = self.sent.unwrap_or(now);
        let before = self.held(now).unwrap_or_default().get();
        let was_suppressed = self.is_suppressed();
        self.lease = lease_in(answer, sent, self.reported, now)
            .filter(|lease| now < lease.ends)
            .map(Kept::from);
        self.told = Some(told);
        self.answered = true;
        self.refused = false;
        let interval = answer.gets.refresh_interval.duration();
        self.interval = interval.max(SHORTEST_INTERVAL).into();

        let after = self.held(now).unwrap_or_default().get();
        let shrunk = after < before * (1.0 - TOLERANCE);
        let due = match (shrunk, std::mem::replace(&mut self.reporting, shrunk)) {
            (true, false) => now,
            // A server that shrinks the lease at every report is not reported to without end.
            (true, true) => now.after(SHORTEST_INTERVAL),
            // The demand was not yet measured as it counts where it is added up to those of others: say it anew.
            (false, _) if self.is_suppressed() && !was_suppressed => now.after(SHORTEST_INTERVAL),
            (false, _) => self.next(sent, now, chance),
        };
        self.state = State::Waiting { due };
        self.hurry(now);
    }

    fn is_suppressed(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.suppressed)
    }

    /// When to come back after an answer.
    fn next(&self, sent: Moment, now: Moment, chance: &mut fastrand::Rng) -> Moment {
        let refresh = sent.after(self.interval());
        let latest = match &self.lease {
            Some(lease) => refresh.min(now.after(lease.ends.since(now) / 2)),
            None => refresh.min(sent.after(LONGEST_WHILE_LAPSED)),
        };
        let wait = latest.since(now).mul_f64(1.0 - SPREAD * chance.f64());
        now.after(wait.max(SHORTEST_INTERVAL))
    }

    /// The newest request came to nothing: what is held stays, and it is asked for again.
    pub(super) fn put_off(&mut self, due: Moment) {
        self.state = State::Waiting { due };
    }

    /// The control plane does not want to hear of it before it is `due` again. Whether that is news.
    pub(super) fn refuse(&mut self, due: Moment) -> bool {
        self.put_off(due);
        !std::mem::replace(&mut self.refused, true)
    }

    /// The lease has run out, or was given back.
    pub(super) fn lose(&mut self) {
        self.lease = None;
    }

    /// What is held; nothing is sent before `not_before`.
    pub(super) fn holding(&self, not_before: Moment, now: Moment) -> Holding {
        Holding {
            lease: self
                .lease
                .as_ref()
                .map(Kept::leased)
                .filter(|lease| now < lease.ends),
            told: self.told.clone(),
            answered: self.answered,
            refresh_interval: self.interval(),
            refresh_at: self.due().unwrap_or(now).max(not_before),
        }
    }
}

/// The next moment at which early requests leave.
fn together(earliest: Moment) -> Moment {
    let nanos = earliest.as_nanos();
    let step = EARLY_TOGETHER.as_nanos() as u64;
    nanos
        .checked_next_multiple_of(step)
        .map_or(Moment::NEVER, Moment::from_nanos)
}

/// The lease that an answer brings, counted from when its request was sent. None at all is not the same as a lease on nothing:
/// who waits for capacity has no lease yet, who is shut out has a lease of 0.
fn lease_in(
    answer: &ResourceResponse,
    sent: Moment,
    reported: Capacity,
    now: Moment,
) -> Option<Leased> {
    let lease = answer.gets;
    let waiting = answer.reason == Reason::Pending && lease.capacity == Capacity::ZERO;
    (lease.lease_length > Seconds::ZERO && !waiting).then(|| Leased {
        blocked: answer.reason == Reason::Blocked,
        as_asked: answer.reason == Reason::Granted,
        capacity: lease.capacity,
        ends: sent.after(lease.lease_length.duration()),
        sharing: match (answer.balance, answer.admission_probability) {
            (Some(tokens), _) => Sharing::Bucket(SharedBalance {
                tokens,
                used: reported,
                received_at: now,
            }),
            (None, Some(probability)) => Sharing::Suppressed(probability),
            (None, None) => Sharing::Divided,
        },
    })
}
