//! The limiters that are leased for: when to look at each, and what it wants.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::Arc,
    time::Duration,
};

use doorman_openapi::{Capacity, Moment, ResourceId};

use super::{Demand, Told, publish};
use crate::{
    demand::{SinceReport, Window, fading, in_unit, window_length},
    limiter::Limiter,
    meter::LeaseState,
};

/// The window until a refresh interval is known.
const FIRST_INTERVAL: f64 = 1.0;

/// A demand that has been watched for so long when a lease is asked for is known.
const WATCHED: Duration = Duration::from_secs(1);

/// What was known of a demand when the lease on it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// It had begun only then, or not yet.
    Guessed,
    /// It had been watched for a while, or was stated.
    Measured,
}

#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) limiter: Arc<Limiter>,
    window: Window,
    window_length: f64,
    /// The seconds that the resource's rate is counted over.
    per: f64,
    since_report: SinceReport,
    /// How long a report stands, where what all holders want is added up; `None` where it is not.
    report_interval: Option<f64>,
    knowledge: Knowledge,
    /// When a lease was last asked for.
    asked_at: Moment,
    first_attempt: Option<Moment>,
    last_attempt: Moment,
    next_look: Moment,
    /// Whether the control plane has answered for it.
    pub(super) answered: bool,
    /// Whether it was said that the resource is not a rate.
    pub(super) warned: bool,
    pub(super) lease_state: LeaseState,
}

impl Tracked {
    fn look(&mut self, now: Moment) -> Demand {
        let total = self.limiter.attempted();
        if self.window.look(total, self.window_length, now) {
            self.first_attempt.get_or_insert(now);
            self.last_attempt = now;
        }
        let measured = || {
            let per_second = match self.report_interval {
                Some(interval) => self.since_report.wants(total, interval, now),
                None if total > 0.0 && self.window.wants() == 0.0 => {
                    fading(now.seconds_since(self.last_attempt))
                }
                None => self.window.wants(),
            };
            in_unit(per_second, self.per)
        };
        let wants = self.limiter.settings().wants.unwrap_or_else(measured);
        self.limiter.saw(wants.get());
        Demand {
            wants,
            used: Capacity::saturating(self.limiter.tally().admitted),
            priority: self.limiter.priority(),
        }
    }

    /// What is known of the demand by now. Once it is known it stays known.
    pub(super) fn knowledge(&mut self, now: Moment) -> Knowledge {
        let known = self.limiter.settings().wants.is_some()
            || self.first_attempt.is_some_and(|first| {
                first.after(WATCHED) <= self.asked_at
                    || first.after_seconds(self.window_length) <= now
            });
        if known {
            self.knowledge = Knowledge::Measured;
        }
        self.knowledge
    }

    /// When to look again.
    fn look_after(&self, now: Moment) -> Moment {
        now.after_seconds(self.window.next_look(self.window_length))
    }

    /// What the resource's answers say of how to measure.
    pub(super) fn measure(&mut self, refresh_interval: Duration, told: Option<&Told>) {
        let interval = refresh_interval.as_secs_f64();
        self.window_length = window_length(interval);
        self.per = publish::per(told);
        self.report_interval = told.is_some_and(|told| told.suppressed).then_some(interval);
    }
}

/// What a look has shown.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) id: ResourceId,
    pub(super) demand: Demand,
    /// Whether nothing has been attempted for long, and the bucket is full again: to forget it is to give nothing away.
    pub(super) idle: bool,
    /// Whether the demand is known by now, and was not before.
    pub(super) learned: bool,
}

#[derive(Debug, Default)]
pub(super) struct Limiters {
    /// Boxed, so that room for more, of which a map always has a good deal, costs little.
    tracked: HashMap<ResourceId, Box<Tracked>, foldhash::fast::RandomState>,
    /// One look at each, the next first.
    looks: BinaryHeap<Reverse<(Moment, ResourceId)>>,
}

impl Limiters {
    /// Takes a limiter up, in the place of a forgotten one of the same resource if need be.
    pub(super) fn insert(&mut self, limiter: Arc<Limiter>, now: Moment) {
        let id = limiter.resource().clone();
        let tracked = Tracked {
            limiter,
            window: Window::new(now),
            window_length: window_length(FIRST_INTERVAL),
            per: 1.0,
            since_report: SinceReport::new(now),
            report_interval: None,
            knowledge: Knowledge::Guessed,
            asked_at: now,
            first_attempt: None,
            last_attempt: now,
            next_look: now,
            answered: false,
            warned: false,
            lease_state: LeaseState::default(),
        };
        self.tracked.insert(id.clone(), Box::new(tracked));
        self.looks.push(Reverse((now, id)));
    }

    pub(super) fn get_mut(&mut self, id: &ResourceId) -> Option<&mut Tracked> {
        self.tracked.get_mut(id).map(Box::as_mut)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ResourceId, &Tracked)> {
        self.tracked
            .iter()
            .map(|(id, tracked)| (id, tracked.as_ref()))
    }

    /// When to look next.
    pub(super) fn next_look(&self) -> Moment {
        self.looks
            .peek()
            .map_or(Moment::NEVER, |Reverse((at, _))| *at)
    }

    /// What the limiter of a resource wants now, to be sent at once.
    pub(super) fn report(&mut self, id: &ResourceId, now: Moment) -> Option<Demand> {
        let tracked = self.get_mut(id)?;
        let demand = tracked.look(now);
        tracked.asked_at = now;
        if tracked.report_interval.is_some() {
            let total = tracked.limiter.attempted();
            tracked.since_report.reported(total, now);
        }
        Some(demand)
    }

    /// What a limiter that runs low wants. It is looked at again soon, and can then say once more that it runs low.
    pub(super) fn look_at_hungry(&mut self, id: &ResourceId, now: Moment) -> Option<Demand> {
        let tracked = self.tracked.get_mut(id)?;
        let demand = tracked.look(now);
        let soon = tracked.look_after(now);
        if soon < tracked.next_look {
            tracked.next_look = soon;
            self.looks.push(Reverse((soon, id.clone())));
        }
        Some(demand)
    }

    /// Looks at the next limiter whose time has come, and lets it report again that it runs low.
    pub(super) fn look_next(&mut self, idle_after: Duration, now: Moment) -> Option<Look> {
        while self.next_look() <= now {
            let Reverse((at, id)) = self.looks.pop()?;
            let tracked = self.tracked.get_mut(&id).filter(|t| t.next_look == at);
            let Some(tracked) = tracked else {
                // It was forgotten, and perhaps taken up again, since.
                continue;
            };
            let demand = tracked.look(now);
            let before = tracked.knowledge;
            let learned = tracked.knowledge(now) != before;
            tracked.limiter.heard();
            tracked.next_look = tracked.look_after(now);
            self.looks.push(Reverse((tracked.next_look, id.clone())));
            return Some(Look {
                demand,
                idle: tracked.last_attempt.after(idle_after) <= now && tracked.limiter.is_full(now),
                learned,
                id,
            });
        }
        None
    }

    /// Looks at it no more.
    pub(super) fn remove(&mut self, id: &ResourceId) {
        self.tracked.remove(id);
    }
}
