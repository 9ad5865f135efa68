//! The limiters that are leased for: when to look at each, and what it wants.

use std::{sync::Arc, time::Duration};

use doorman_openapi::{Capacity, Moment, ResourceId};

use super::{
    Demand, Told,
    agenda::Agenda,
    publish,
    roll::{Named, Roll},
};
use crate::{
    demand::{SinceReport, Window, fading, in_unit, window_length},
    limiter::{Limiter, Shortage},
    meter::LeasePhase,
};

/// The window until a refresh interval is known.
const FIRST_INTERVAL: f64 = 1.0;

/// A limiter that begins to refuse is looked at again after so long, in seconds, and if it goes on refusing after twice as long, and so
/// on up to the usual time between looks. So a demand that rises all of a sudden is known soon, and one that is always too much is
/// looked at no more often than others.
const FIRST_LOOK_WHILE_DENIED: f32 = 0.1;

/// A demand that has been watched for so long when a lease is asked for is known.
const WATCHED: Duration = Duration::from_secs(1);

/// What was known of a demand when the lease on it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// It had begun only then, or not yet.
    Guessed,
    /// It had been watched for a while.
    Measured,
    /// It is what the program says, whatever comes.
    Stated,
}

#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) limiter: Arc<Limiter>,
    window: Window,
    window_length: f32,
    /// The seconds that the resource's rate is counted over.
    per: f64,
    /// Where what all holders want is added up, or was: seldom, so that it has a place of its own.
    reports: Option<Box<Reports>>,
    knowledge: Knowledge,
    /// When a lease was last asked for.
    asked_at: Moment,
    first_attempt: Option<Moment>,
    last_attempt: Moment,
    /// How many seconds after it refuses or delays it is looked at again.
    look_while_denied: f32,
    /// Whether it has done so since it was last heard.
    denied: bool,
    /// Whether the control plane has answered for it.
    pub(super) answered: bool,
    /// Whether it was said that the resource is not a rate.
    pub(super) warned: bool,
    pub(super) lease_phase: LeasePhase,
}

#[derive(Debug)]
struct Reports {
    since_last: SinceReport,
    /// How long one stands, in seconds; `None` where nothing is added up any more.
    interval: Option<f64>,
}

impl Named for Tracked {
    fn resource(&self) -> &ResourceId {
        self.limiter.resource()
    }
}

impl Tracked {
    fn new(limiter: Arc<Limiter>, now: Moment) -> Self {
        Self {
            limiter,
            window: Window::new(now),
            window_length: window_length(FIRST_INTERVAL) as f32,
            per: 1.0,
            reports: None,
            knowledge: Knowledge::Guessed,
            asked_at: now,
            first_attempt: None,
            last_attempt: now,
            look_while_denied: FIRST_LOOK_WHILE_DENIED,
            denied: false,
            answered: false,
            warned: false,
            lease_phase: LeasePhase::default(),
        }
    }

    fn look(&mut self, now: Moment) -> Demand {
        let total = self.limiter.attempted();
        if self.window.look(total, self.window_length.into(), now) {
            self.first_attempt.get_or_insert(now);
            self.last_attempt = now;
        }
        let measured = || {
            let reports = self.reports.as_ref();
            let per_second = match reports.and_then(|reports| reports.interval.zip(Some(reports))) {
                Some((interval, reports)) => reports.since_last.wants(total, interval, now),
                None if total > 0.0 && self.window.wants() == 0.0 => {
                    fading(now.seconds_since(self.last_attempt))
                }
                None => self.window.wants(),
            };
            in_unit(per_second, self.per)
        };
        let wants = self.limiter.settings().wants.unwrap_or_else(measured);
        self.limiter.record_wants(wants.get());
        Demand {
            wants,
            used: Capacity::saturating(self.limiter.tally().admitted),
            priority: self.limiter.priority(),
        }
    }

    /// What is known of the demand by now. Once it is known it stays known.
    pub(super) fn knowledge(&mut self, now: Moment) -> Knowledge {
        let watched = self.first_attempt.is_some_and(|first| {
            first.after(WATCHED) <= self.asked_at
                || first.after_seconds(self.window_length.into()) <= now
        });
        if self.limiter.settings().wants.is_some() {
            self.knowledge = Knowledge::Stated;
        } else if watched {
            self.knowledge = Knowledge::Measured;
        }
        self.knowledge
    }

    /// When to look again.
    fn look_after(&self, now: Moment) -> Moment {
        now.after_seconds(self.window.next_look(self.window_length.into()))
    }

    /// It says that it needs more: when to look again.
    fn needs(&mut self, need: Shortage, now: Moment) -> Moment {
        let usual = self.look_after(now);
        if need < Shortage::Denied {
            return usual;
        }
        self.denied = true;
        let soon = now.after_seconds(self.look_while_denied.into());
        self.look_while_denied = (2.0 * self.look_while_denied).min(self.window_length);
        soon.min(usual)
    }

    /// From now on it can say again that it needs more.
    fn heard(&mut self) {
        if !std::mem::take(&mut self.denied) {
            self.look_while_denied = FIRST_LOOK_WHILE_DENIED;
        }
        self.limiter.clear_demand_signal();
    }

    /// What the resource's answers say of how to measure.
    pub(super) fn measure(&mut self, refresh_interval: Duration, told: Option<&Told>) {
        let interval = refresh_interval.as_secs_f64();
        self.window_length = window_length(interval) as f32;
        self.per = publish::per(told);
        let report_interval = told.is_some_and(|told| told.suppressed).then_some(interval);
        if let Some(reports) = &mut self.reports {
            reports.interval = report_interval;
        } else if report_interval.is_some() {
            self.reports = Some(Box::new(Reports {
                // Nothing was reported of it before.
                since_last: SinceReport::new(self.limiter.created_at()),
                interval: report_interval,
            }));
        }
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
    tracked: Roll<Tracked>,
    /// One look at each, the next first.
    looks: Agenda,
}

impl Limiters {
    /// Takes a limiter up, in the place of a forgotten one of the same resource if need be.
    pub(super) fn insert(&mut self, limiter: Arc<Limiter>, now: Moment) {
        if let Some(number) = self.tracked.insert(Tracked::new(limiter, now)) {
            self.looks.set(number, Some(now));
        }
    }

    pub(super) fn get_mut(&mut self, id: &ResourceId) -> Option<&mut Tracked> {
        self.tracked.get_mut(self.tracked.number(id)?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Tracked> {
        self.tracked.iter()
    }

    /// When to look next.
    pub(super) fn next_look(&self) -> Moment {
        let first = self.looks.first();
        first.map_or(Moment::NEVER, |(at, _)| at)
    }

    /// What the limiter of a resource wants now, to be sent at once.
    pub(super) fn report(&mut self, id: &ResourceId, now: Moment) -> Option<Demand> {
        let tracked = self.get_mut(id)?;
        let demand = tracked.look(now);
        tracked.asked_at = now;
        if let Some(reports) = &mut tracked.reports
            && reports.interval.is_some()
        {
            reports
                .since_last
                .reported(tracked.limiter.attempted(), now);
        }
        Some(demand)
    }

    /// What a limiter wants that needs more. It is looked at again soon, and can then say once more that it does.
    pub(super) fn look_at_hungry(
        &mut self,
        id: &ResourceId,
        need: Shortage,
        now: Moment,
    ) -> Option<Demand> {
        let number = self.tracked.number(id)?;
        let tracked = self.tracked.get_mut(number)?;
        let demand = tracked.look(now);
        let soon = tracked.needs(need, now);
        let known = self.looks.of(number);
        self.looks
            .set(number, known.into_iter().chain([soon]).min());
        Some(demand)
    }

    /// Looks at the next limiter whose time has come, and lets it report again that it runs low.
    pub(super) fn look_next(&mut self, idle_after: Duration, now: Moment) -> Option<Look> {
        let (_, number) = self.looks.first().filter(|(at, _)| *at <= now)?;
        let tracked = self.tracked.get_mut(number)?;
        let demand = tracked.look(now);
        let before = tracked.knowledge;
        let learned = tracked.knowledge(now) != before;
        tracked.heard();
        self.looks.set(number, Some(tracked.look_after(now)));
        Some(Look {
            id: tracked.limiter.resource().clone(),
            demand,
            idle: tracked.last_attempt.after(idle_after) <= now && tracked.limiter.is_full(now),
            learned,
        })
    }

    /// Looks at it no more.
    pub(super) fn remove(&mut self, id: &ResourceId) {
        if let Some(number) = self.tracked.number(id) {
            self.looks.set(number, None);
            self.tracked.remove(number);
        }
    }
}
