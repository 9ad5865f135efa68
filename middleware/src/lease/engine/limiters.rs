//! The limiters that the worker leases for: their measured demand, and leases in their units.

use std::{mem, time::Duration};

use doorman_holder::{
    Demand, Dense, FOLLOW_UP_INTERVAL, FirstAnswer, LeaseStatus, Names, ResourceIndex,
    ResourceTerms, Sharing, TimerHeap,
};
use doorman_openapi::{Capacity, Moment, Reason, ResourceId, SafeCapacity, Seconds, Unit};

use super::bands::TrackedBands;
use crate::{
    demand::{
        GaugeSample, InUseDemand, ReportedDemand, Window, fading_demand, in_unit, window_length,
    },
    limiter::{LeaseLevel, LeaseState, Limiter, LimiterTable, Policy, SafeRate, Shortage},
    meter::LeasePhase,
    tuning::tuning,
};

/// The refresh interval, in seconds, before the first response.
const DEFAULT_INTERVAL: f64 = 1.0;
/// The part of a window after which a total of attempts that refunds have lowered counts.
const LOWERED_AFTER: f32 = 0.25;
/// How long it may take until others have given capacity back, in seconds.
const RECALL_TIME: f64 = 0.25;
/// Growth of the wants while requests wait: how much they would use is unknown.
const GROWTH_WHILE_WAITING: f64 = 2.0;
/// A lease above this multiple of the demand has surplus to give back.
const MUCH_SURPLUS: f64 = 1.1;
/// The only lane of the sampling timers.
const SAMPLES: u8 = 0;

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each changes on its own")]
pub(super) struct TrackedLimiter {
    /// Of its limiter.
    generation: u16,
    window: Window,
    window_length: f32,
    /// The period of the resource's rate, in seconds.
    period: f64,
    /// Of a gauge. Boxed, because most limiters are of rates.
    in_use: Option<Box<InUseDemand>>,
    /// All units of the gauge were given up for others, and there was no request since.
    yielded: bool,
    /// Boxed, because few resources have requests of several priorities.
    bands: Option<Box<TrackedBands>>,
    /// Boxed, because few resources use SUPPRESSION.
    suppression: Option<Box<SuppressionReports>>,
    last_attempt: Moment,
    /// The pause before the next sample while a shortage is being measured; 0 otherwise.
    fast_sample: f32,
    /// The most urgent shortage since the demand signal was last cleared.
    shortage: Option<Shortage>,
    /// The most urgent shortage that was measured already, until a period without one.
    known_shortage: Option<Shortage>,
    /// The last answer granted less than was wanted, because others have the rest.
    scarce: bool,
    /// The lease is the whole limit.
    holds_limit: bool,
    /// No capacity is requested for bursts until an answer shows that others do not need it: a page
    /// may seem to be a rate beyond the limit at first.
    bursts_in_doubt: bool,
    /// More of the last lease is to come.
    awaits_more: bool,
    leased: Capacity,
    /// Idle, without a lease until its next request.
    asleep: bool,
    /// For how many seconds refunds have kept the total of attempts below that of the samples.
    lower_for: f32,
    /// The cost admitted before it last slept, of which the control plane knows nothing any more.
    admitted_before: f64,
    /// The most cost reported as used since then: a refund does not lower it.
    used: f64,
    pub(super) answered: bool,
    /// The resource was once in another unit than its limiter.
    unit_mismatch: bool,
    lease_phase: LeasePhase,
}

#[derive(Debug)]
struct SuppressionReports {
    demand: ReportedDemand,
    /// The seconds that a report covers; `None` once the resource no longer uses SUPPRESSION.
    interval: Option<f64>,
}

impl TrackedLimiter {
    fn new(limiter: Limiter<'_>, now: Moment) -> Self {
        Self {
            generation: limiter.generation(),
            window: Window::new(now),
            window_length: window_length(DEFAULT_INTERVAL) as f32,
            period: 1.0,
            in_use: (limiter.unit() == Unit::Gauge).then(|| Box::new(InUseDemand::new(now))),
            yielded: false,
            bands: None,
            suppression: None,
            last_attempt: now,
            fast_sample: 0.0,
            shortage: None,
            known_shortage: None,
            scarce: false,
            holds_limit: false,
            bursts_in_doubt: false,
            awaits_more: false,
            leased: Capacity::ZERO,
            asleep: false,
            lower_for: 0.0,
            admitted_before: 0.0,
            used: 0.0,
            answered: false,
            unit_mismatch: false,
            lease_phase: LeasePhase::default(),
        }
    }

    /// Whether it ever slept after an admission.
    fn slept(&self) -> bool {
        self.admitted_before > 0.0
    }

    /// The running total of attempts, for a sample. Refunds lower it when new requests do not soon
    /// make up for them.
    fn attempted(&mut self, limiter: Limiter<'_>, now: Moment) -> f64 {
        let (total, before) = (limiter.attempted(), self.window.total());
        if total >= before {
            self.lower_for = 0.0;
            return total;
        }
        self.lower_for += self.window.age(now) as f32;
        if self.lower_for < self.window_length * LOWERED_AFTER {
            return before;
        }
        total
    }

    /// Samples the attempts and returns their total.
    fn record(&mut self, limiter: Limiter<'_>, now: Moment) -> f64 {
        let total = self.attempted(limiter, now);
        let length = self.window_length.into();
        let mut is_used = self.window.record(total, length, now);
        if let Some(demand) = &mut self.in_use
            && let Some(units) = limiter.units_in_use()
        {
            let tally = limiter.tally();
            let level = units.in_use + units.waiting;
            let sample = GaugeSample {
                peak: limiter.take_peak().max(level),
                level,
                admitted: tally.admitted,
                rejected: tally.refused,
            };
            demand.record(sample, length, now);
            is_used |= sample.level > 0.0;
        }
        if is_used {
            self.last_attempt = now;
            self.yielded = false;
        }
        self.record_bands(limiter, now);
        total
    }

    fn record_bands(&mut self, limiter: Limiter<'_>, now: Moment) {
        let Some(current) = limiter.current_bands() else {
            self.bands = None;
            return;
        };
        let mut tracked = match self.bands.take() {
            Some(tracked) if tracked.is_of(&current) => tracked,
            other => {
                let earlier = other.map(|tracked| *tracked);
                Box::new(TrackedBands::new(current, earlier, limiter, now))
            }
        };
        tracked.record(limiter, self.window_length.into(), now);
        self.bands = Some(tracked);
    }

    /// The units that a gauge wants. One is kept without requests, so that the next one need not
    /// wait.
    fn wanted_units(&self, demand: &InUseDemand) -> f64 {
        match (self.yielded, self.scarce) {
            (true, _) => 0.0,
            (false, true) => demand.peak().max(1.0),
            (false, false) => demand.with_headroom().max(1.0),
        }
    }

    fn sample(&mut self, limiter: Limiter<'_>, now: Moment) -> Demand {
        let total = self.record(limiter, now);
        self.demand(limiter, self.wants(limiter, total, now))
    }

    /// The demand as measured now, for a hint: others want what is only likely to be needed.
    fn sample_for_hint(&mut self, limiter: Limiter<'_>, now: Moment) -> Demand {
        let total = self.record(limiter, now);
        if let Some(demand) = &self.in_use
            && self.shortage.is_none()
        {
            let level = demand.level();
            self.yielded = level == 0.0;
            return self.demand(limiter, level);
        }
        if self.in_use.is_some() || self.suppression.is_some() || self.is_short() {
            return self.demand(limiter, self.wants(limiter, total, now));
        }
        self.bursts_in_doubt |= self.holds_limit;
        if !self.bursts_in_doubt {
            self.window.forget_bursts();
        }
        self.window.accept_fall();
        if let Some(bands) = &mut self.bands {
            bands.accept_fall();
        }
        let measured = self.window.per_second();
        self.demand(limiter, self.or_fading(measured, total, now))
    }

    /// Begins to measure for a hint. Returns for how many seconds; `None` if the holder can answer
    /// at once: it has more than it wants, or is short, or its demand is too small to be measured
    /// soon.
    fn measure_for_hint(&mut self, limiter: Limiter<'_>, now: Moment) -> Option<f64> {
        self.record(limiter, now);
        let wants = in_unit(self.window.per_second(), self.period).get();
        let is_needed = self.in_use.is_none()
            && self.suppression.is_none()
            && !self.is_short()
            && self.leased.get() <= wants * MUCH_SURPLUS;
        if !is_needed {
            return None;
        }
        if let Some(bands) = &mut self.bands {
            bands.begin_stretch();
        }
        self.window.begin_stretch()
    }

    /// Whether the holder waits for a larger lease, because of a rise that was just measured.
    fn is_short(&self) -> bool {
        self.awaits_more && self.fast_sample > 0.0
    }

    /// The demand with these wants, per second or in units, unless they are stated.
    fn demand(&mut self, limiter: Limiter<'_>, wants: f64) -> Demand {
        let stated = limiter.with_settings(|settings| settings.wants.get());
        let measured = || match self.in_use {
            Some(_) => Capacity::saturating(wants),
            None => in_unit(wants, self.period),
        };
        let wants = stated.unwrap_or_else(measured);
        limiter.record_wants(wants.get());
        let units = limiter.units_in_use();
        let used = limiter.tally().admitted - self.admitted_before;
        self.used = self.used.max(used);
        let bands = self.bands.as_ref();
        let divided = bands.and_then(|bands| bands.divide(wants, self.period));
        let (priority, bands) = match divided {
            Some(divided) => (divided.priority, divided.bands),
            None => (limiter.priority(), None),
        };
        Demand {
            wants,
            outstanding: units.map_or(Capacity::ZERO, |it| Capacity::saturating(it.in_use)),
            used: Capacity::saturating(self.used),
            priority,
            bands,
        }
    }

    /// The demand in attempts per second or in units, and what else the limiter could use while
    /// capacity is free.
    fn wants(&self, limiter: Limiter<'_>, total: f64, now: Moment) -> f64 {
        if let Some(demand) = &self.in_use {
            return self.wanted_units(demand);
        }
        let level = limiter.lease_level(now);
        let mut wants = self.window.generous();
        if let Some(reports) = &self.suppression
            && let Some(interval) = reports.interval
        {
            return reports.demand.per_second(total, interval, now);
        }
        if self.runs_out_soon(&level) {
            wants = wants.max(self.window.newest());
        }
        let mut growth = 0.0_f64;
        if limiter.waiting() > 0 {
            growth = GROWTH_WHILE_WAITING * level.rate;
        }
        if !self.scarce {
            if !self.bursts_in_doubt {
                growth = growth.max(level.rate_for(self.window.burst()));
            }
            if self.shortage >= Some(Shortage::Denied) {
                growth = growth.max(tuning().growth_while_denied * level.rate);
            }
        }
        let wants = wants.max(growth.min(level.limit));
        self.or_fading(wants, total, now)
    }

    fn or_fading(&self, wants: f64, total: f64, now: Moment) -> f64 {
        if total > 0.0 && wants == 0.0 {
            return fading_demand(now.seconds_since(self.last_attempt));
        }
        wants
    }

    /// Whether the newest demand spends what is left before the next sample, or before others give
    /// capacity back.
    fn runs_out_soon(&self, level: &LeaseLevel) -> bool {
        let excess = self.window.newest() - level.rate;
        level.left < excess * f64::from(self.fast_sample).max(RECALL_TIME)
    }

    fn next_sample(&self, now: Moment) -> Moment {
        let mut seconds = self.window.next_sample(self.window_length.into());
        if self.follows_demand() {
            seconds = seconds.min(FOLLOW_UP_INTERVAL.as_secs_f64());
        }
        now.after_seconds(seconds)
    }

    /// Whether it is sampled often, because its bucket, that of the whole limit, may never run low.
    fn follows_demand(&self) -> bool {
        self.suppression.is_some() && self.window.per_second() > 0.0
    }

    /// Begins to measure a shortage, unless it is a known one. Returns when to sample.
    fn on_shortage(
        &mut self,
        limiter: Limiter<'_>,
        shortage: Shortage,
        now: Moment,
    ) -> Option<Moment> {
        let is_new = Some(shortage) > self.shortage.max(self.known_shortage);
        self.shortage = self.shortage.max(Some(shortage));
        if !is_new {
            return None;
        }
        self.fast_sample = tuning().first_fast_sample;
        if self.in_use.is_some() {
            // Units are counted, and need not be measured for a time.
            return Some(now);
        }
        self.record(limiter, now);
        Some(now.after_seconds(self.fast_sample.into()))
    }

    /// Samples at a scheduled time. Returns the demand, unless it is not yet clear, and when to
    /// sample next.
    fn sample_on_schedule(
        &mut self,
        limiter: Limiter<'_>,
        now: Moment,
    ) -> (Option<Demand>, Moment) {
        let demand = self.sample(limiter, now);
        let usual = self.next_sample(now);
        limiter.clear_demand_signal();
        let shortage = self.shortage.take();
        if self.fast_sample == 0.0 {
            self.known_shortage = shortage;
            return (Some(demand), usual);
        }
        self.known_shortage = self.known_shortage.max(shortage);
        let level = limiter.lease_level(now);
        let is_first = self.fast_sample == tuning().first_fast_sample;
        self.fast_sample *= 2.0;
        let next = now.after_seconds(self.fast_sample.into());
        let is_covered = self.in_use.is_some() || self.window.newest() <= level.rate;
        let is_over = is_covered && !level.runs_low;
        if is_over || next >= usual {
            self.fast_sample = 0.0;
            return (Some(demand), usual);
        }
        // One stretch is no proof of a rise, and too small a request would delay the right one.
        let unclear = is_first && self.in_use.is_none() && !self.runs_out_soon(&level);
        ((!unclear).then_some(demand), next)
    }

    /// Counts the time without requests from the first answer on: a service that waited for it
    /// starts with the lease.
    fn begin_to_be_idle(&mut self, limiter: Limiter<'_>, now: Moment) {
        if limiter.is_permanent() {
            self.last_attempt = self.last_attempt.max(now);
        }
    }

    /// Gives up the lease while idle. Returns whether the limiter sleeps.
    pub(super) fn sleep(&mut self, limiter: Limiter<'_>, now: Moment) -> bool {
        if self.asleep {
            return true;
        }
        // A stated demand reserves capacity for requests to come.
        let stated = limiter.with_settings(|settings| settings.wants.get().is_some());
        if stated || !self.answered || !limiter.sleep(now) {
            return false;
        }
        self.asleep = true;
        if let Some(demand) = &mut self.in_use {
            **demand = demand.begin_again(now);
        }
        self.admitted_before = limiter.tally().admitted;
        self.used = 0.0;
        self.leased = Capacity::ZERO;
        self.shortage = None;
        self.known_shortage = None;
        self.fast_sample = 0.0;
        self.scarce = false;
        self.holds_limit = false;
        self.bursts_in_doubt = false;
        self.awaits_more = false;
        // To have no lease is no loss.
        self.lease_phase = LeasePhase::default();
        true
    }

    /// A request came, which may not be counted yet.
    fn wake(&mut self, limiter: Limiter<'_>, now: Moment) {
        self.asleep = false;
        self.last_attempt = now;
        if let Some(reports) = &mut self.suppression
            && let Some(interval) = reports.interval
        {
            let total = limiter.attempted().max(self.window.total());
            reports.demand.report(total, interval, now);
        }
    }

    /// The state for a status, in the limiter's running totals.
    fn lease_state(&self, limiter: Limiter<'_>, status: &LeaseStatus) -> LeaseState {
        let stated = limiter.with_settings(|settings| settings.wants.get().is_some());
        let mut state = lease_state(status, limiter.unit(), stated);
        if let LeaseState::Leased {
            sharing: Sharing::Bucket(balance),
            ..
        } = &mut state
        {
            balance.used = Capacity::saturating(balance.used.get() + self.admitted_before);
        }
        state
    }

    /// Takes over a status that was published. Returns whether to measure again: a larger lease
    /// came, and is not known to be enough.
    fn apply(&mut self, limiter: Limiter<'_>, status: &LeaseStatus, now: Moment) -> bool {
        let terms = status.terms.as_deref();
        let interval = status.refresh_interval.as_secs_f64();
        self.window_length = window_length(interval) as f32;
        self.period = period(terms);
        let limit = terms.and_then(|terms| terms.limit);
        self.scarce = status.lease.is_some_and(|lease| {
            lease.reason != Reason::Granted && limit.is_none_or(|limit| lease.capacity < limit)
        });
        self.awaits_more = status
            .lease
            .is_some_and(|lease| lease.reason == Reason::Pending);
        if let Some(lease) = &status.lease {
            self.holds_limit = limit.is_some_and(|limit| lease.capacity >= limit);
        }
        if let Some(lease) = &status.lease
            && self.in_use.is_none()
        {
            self.doubt_bursts(limiter, lease.capacity.get(), status.requested.get());
        }
        let interval = terms.is_some_and(|it| it.suppressed).then_some(interval);
        if let Some(reports) = &mut self.suppression {
            reports.interval = interval;
        } else if interval.is_some() {
            let demand = match limiter.created_at() {
                // Nothing was reported before.
                Some(created_at) if !self.slept() => ReportedDemand::new(0.0, 0.0, created_at),
                Some(_) | None => {
                    let rate = self.window.per_second();
                    ReportedDemand::new(limiter.attempted(), rate, now)
                }
            };
            self.suppression = Some(Box::new(SuppressionReports { demand, interval }));
        }
        let leased = status.lease.map_or(Capacity::ZERO, |lease| lease.capacity);
        let grown = leased > mem::replace(&mut self.leased, leased);
        if grown && !self.scarce {
            // Another shortage is that of this lease.
            self.known_shortage = None;
        }
        let measure = grown && (limiter.waiting() > 0 || self.shortage.is_some());
        if measure {
            self.fast_sample = tuning().first_fast_sample;
        }
        measure
    }

    /// Decides by a lease whether others need the capacity that bursts would use.
    fn doubt_bursts(&mut self, limiter: Limiter<'_>, leased: f64, requested: f64) {
        let burst = limiter.with_settings(|settings| settings.burst.get());
        let needed = in_unit(burst.rate_for(self.window.burst()), self.period).get();
        let in_doubt = mem::take(&mut self.bursts_in_doubt);
        if self.scarce && leased >= needed {
            self.bursts_in_doubt = true;
            return;
        }
        // A surplus is granted only while all demands fit.
        let all_fit = self.holds_limit || leased > requested;
        if self.scarce || in_doubt && !all_fit {
            self.window.forget_bursts();
        }
    }
}

#[derive(Debug)]
pub(super) struct Sample {
    pub(super) index: ResourceIndex,
    /// `None` while a rise is being measured.
    pub(super) demand: Option<Demand>,
    /// Unused for long and with a full bucket, so that forgetting it gives nothing away.
    pub(super) idle: bool,
}

/// A status that was published to its limiter.
#[derive(Debug)]
pub(in crate::lease) struct Publication {
    /// The phase of the lease, if it was another one before.
    pub(in crate::lease) new_phase: Option<LeasePhase>,
    /// The leased capacity in the resource's own unit; 0 without a lease.
    pub(in crate::lease) capacity: f64,
    /// Whether the limiter stays without requests.
    pub(in crate::lease) is_permanent: bool,
    /// The unit of the limiter, at the first time that the resource is in the other one.
    pub(in crate::lease) unit_mismatch: Option<Unit>,
    pub(in crate::lease) is_first_answer: bool,
}

/// The limiters, by their numbers.
#[derive(Debug)]
pub(super) struct Limiters {
    table: LimiterTable,
    tracked: Dense<TrackedLimiter>,
    samples: TimerHeap<1>,
}

impl Limiters {
    pub(super) fn new(table: LimiterTable) -> Self {
        Self {
            table,
            tracked: Dense::default(),
            samples: TimerHeap::default(),
        }
    }

    /// Adds a limiter, in place of a forgotten one of the same number.
    pub(super) fn insert(&mut self, limiter: Limiter<'_>, now: Moment) {
        let index = ResourceIndex::new(limiter.number());
        self.tracked
            .insert(index, TrackedLimiter::new(limiter, now));
        self.samples.set(index, Some((SAMPLES, now)));
    }

    pub(super) fn find(&self, id: &ResourceId) -> Option<ResourceIndex> {
        self.table.find(id)
    }

    pub(super) fn get_mut(
        &mut self,
        index: ResourceIndex,
    ) -> Option<(Limiter<'_>, &mut TrackedLimiter)> {
        let tracked = self.tracked.get_mut(index)?;
        Some((self.table.get(index.number(), tracked.generation), tracked))
    }

    /// Begins to measure the demands for hints. Returns when the last of them is known.
    pub(super) fn measure_for_hints<'a>(
        &mut self,
        ids: impl Iterator<Item = &'a ResourceId>,
        now: Moment,
    ) -> Moment {
        let seconds = ids.filter_map(|id| {
            let index = self.find(id)?;
            let (limiter, tracked) = self.get_mut(index)?;
            tracked.measure_for_hint(limiter, now)
        });
        now.after_seconds(seconds.fold(0.0, f64::max))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Limiter<'_>, &TrackedLimiter)> {
        self.tracked.iter().map(|(index, tracked)| {
            let limiter = self.table.get(index.number(), tracked.generation);
            (limiter, tracked)
        })
    }

    pub(super) fn next_sample_at(&self) -> Moment {
        let first = self.samples.first(SAMPLES);
        first.map_or(Moment::NEVER, |(at, _)| at)
    }

    /// The demand for a request sent now; `hinted` if the control plane asked for it.
    pub(super) fn report(
        &mut self,
        index: ResourceIndex,
        hinted: bool,
        now: Moment,
    ) -> Option<Demand> {
        let tracked = self.tracked.get_mut(index)?;
        let limiter = self.table.get(index.number(), tracked.generation);
        let demand = if hinted {
            tracked.sample_for_hint(limiter, now)
        } else {
            tracked.sample(limiter, now)
        };
        if let Some(reports) = &mut tracked.suppression
            && let Some(interval) = reports.interval
        {
            let total = limiter.attempted().max(tracked.window.total());
            reports.demand.report(total, interval, now);
            if tracked.follows_demand() && tracked.fast_sample == 0.0 {
                // The next sample may still be that of a quiet limiter.
                let next = tracked.next_sample(now);
                self.samples.set(index, Some((SAMPLES, next)));
            }
        }
        Some(demand)
    }

    /// Samples a limiter that signals a shortage, and soon again to measure its demand.
    pub(super) fn on_shortage(&mut self, limiter: Limiter<'_>, shortage: Shortage, now: Moment) {
        let index = ResourceIndex::new(limiter.number());
        let Some(tracked) = self.tracked.get_mut(index) else {
            return;
        };
        if tracked.generation != limiter.generation() {
            return;
        }
        let next = if tracked.asleep {
            tracked.wake(limiter, now);
            Some(now)
        } else {
            tracked.on_shortage(limiter, shortage, now)
        };
        if let Some(next) = next {
            self.samples.set(index, Some((SAMPLES, next)));
        }
    }

    /// Publishes a status to its limiter; `None` if the limiter is forgotten.
    pub(super) fn publish(
        &mut self,
        index: ResourceIndex,
        status: &LeaseStatus,
        now: Moment,
    ) -> Option<Publication> {
        let tracked = self.tracked.get_mut(index)?;
        let limiter = self.table.get(index.number(), tracked.generation);
        if tracked.apply(limiter, status, now) {
            let soon = now.after_seconds(tracked.fast_sample.into());
            self.samples.set(index, Some((SAMPLES, soon)));
        }
        let state = tracked.lease_state(limiter, status);
        let has_other_unit = has_other_unit(status.terms.as_deref(), limiter.unit());
        limiter.set_unit_mismatch(has_other_unit);
        limiter.publish(state, now);
        let is_first_answer = status.first_answer == FirstAnswer::Received
            && !mem::replace(&mut tracked.answered, true);
        if is_first_answer {
            tracked.begin_to_be_idle(limiter, now);
        }
        let (phase, capacity) = match state {
            LeaseState::Leased { rate, .. } => {
                let phase = rate.map_or(LeasePhase::Blocked, |_| LeasePhase::Leased);
                (phase, rate.unwrap_or_default() * tracked.period)
            }
            LeaseState::NoLease { .. }
            | LeaseState::Unlimited
            | LeaseState::Fixed { .. }
            | LeaseState::Local(_) => (tracked.lease_phase.without_lease(), 0.0),
        };
        let is_new_phase = mem::replace(&mut tracked.lease_phase, phase) != phase;
        let is_new_mismatch = has_other_unit && !mem::replace(&mut tracked.unit_mismatch, true);
        Some(Publication {
            new_phase: is_new_phase.then_some(phase),
            capacity,
            is_permanent: limiter.is_permanent(),
            unit_mismatch: is_new_mismatch.then(|| limiter.unit()),
            is_first_answer,
        })
    }

    /// Samples the next limiter that is due and clears its demand signal.
    pub(super) fn sample_next(&mut self, idle_after: Duration, now: Moment) -> Option<Sample> {
        let (_, index) = self.samples.first(SAMPLES).filter(|(at, _)| *at <= now)?;
        let tracked = self.tracked.get_mut(index)?;
        let limiter = self.table.get(index.number(), tracked.generation);
        let (demand, next) = tracked.sample_on_schedule(limiter, now);
        self.samples.set(index, Some((SAMPLES, next)));
        let idle = tracked.last_attempt.after(idle_after) <= now && limiter.is_full(now);
        if tracked.asleep && !idle {
            tracked.wake(limiter, now);
        }
        Some(Sample {
            index,
            demand,
            idle,
        })
    }

    pub(super) fn remove(&mut self, index: ResourceIndex) {
        self.samples.set(index, None);
        self.tracked.remove(index);
    }
}

/// Converts from the resource's own unit to tokens per second, or units of a gauge. A resource in
/// another unit than its limiter has no lease.
pub(super) fn lease_state(status: &LeaseStatus, unit: Unit, wants_stated: bool) -> LeaseState {
    let terms = status.terms.as_deref();
    let per = period(terms);
    let usable = terms.filter(|terms| terms.unit == unit);
    let safe = usable.map(|terms| match terms.safe {
        SafeCapacity::Unlimited => SafeRate::Unlimited,
        SafeCapacity::AtMost(capacity) => SafeRate::PerSecond(capacity.get() / per),
    });
    let policy = usable.and_then(|terms| terms.limit).map(|limit| Policy {
        limit: limit.get(),
        per,
    });
    match status.lease {
        Some(lease) if !has_other_unit(terms, unit) => LeaseState::Leased {
            rate: (lease.reason != Reason::Blocked).then_some(lease.capacity.get() / per),
            ends: lease.ends,
            safe,
            refresh_at: status.refresh_at,
            policy,
            sharing: lease.sharing,
            // A stated demand does not grow.
            may_grow: matches!(lease.reason, Reason::Granted | Reason::Pending)
                && !wants_stated
                && policy.is_none_or(|policy| lease.capacity.get() < policy.limit),
        },
        Some(_) | None => LeaseState::NoLease {
            safe,
            refresh_at: status.refresh_at,
            policy,
            awaits_answer: status.first_answer == FirstAnswer::Awaited,
        },
    }
}

/// Whether a resource is known to be in another unit than its limiter.
fn has_other_unit(terms: Option<&ResourceTerms>, unit: Unit) -> bool {
    terms.is_some_and(|terms| terms.unit != unit)
}

/// The period of the resource's rate, in seconds; 1 for a gauge.
fn period(terms: Option<&ResourceTerms>) -> f64 {
    terms
        .filter(|terms| terms.unit == Unit::Rate)
        .map(|terms| terms.per)
        .map(Seconds::get)
        .filter(|per| *per > 0.0)
        .unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::lease::ActiveLease;

    fn status(unit: Unit, safe: SafeCapacity) -> LeaseStatus {
        LeaseStatus {
            lease: Some(ActiveLease {
                capacity: Capacity::saturating(600.0),
                ends: Moment::from_nanos(20),
                reason: Reason::Granted,
                sharing: Sharing::Divided,
            }),
            terms: Some(Arc::new(ResourceTerms {
                template: None,
                limit: Some(Capacity::saturating(6000.0)),
                unit,
                per: Seconds::from(Duration::from_secs(60)),
                safe,
                suppressed: false,
            })),
            first_answer: FirstAnswer::Received,
            requested: Capacity::saturating(600.0),
            refresh_interval: Duration::from_secs(1),
            refresh_at: Moment::from_nanos(10),
        }
    }

    #[test]
    fn capacity_per_minute_becomes_rate_per_second() {
        let safe = SafeCapacity::AtMost(Capacity::saturating(60.0));
        let leased = status(Unit::Rate, safe);
        let policy = Some(Policy {
            limit: 6000.0,
            per: 60.0,
        });
        assert_eq!(
            lease_state(&leased, Unit::Rate, false),
            LeaseState::Leased {
                rate: Some(10.0),
                ends: Moment::from_nanos(20),
                safe: Some(SafeRate::PerSecond(1.0)),
                refresh_at: Moment::from_nanos(10),
                policy,
                sharing: Sharing::Divided,
                may_grow: true,
            }
        );
        let lapsed = LeaseStatus {
            lease: None,
            ..leased
        };
        assert_eq!(
            lease_state(&lapsed, Unit::Rate, false),
            LeaseState::NoLease {
                safe: Some(SafeRate::PerSecond(1.0)),
                refresh_at: Moment::from_nanos(10),
                policy,
                awaits_answer: false,
            }
        );
    }

    #[test]
    fn unknown_terms_are_not_made_up() {
        let unknown = LeaseStatus {
            terms: None,
            ..status(Unit::Rate, SafeCapacity::Unlimited)
        };
        assert!(matches!(
            lease_state(&unknown, Unit::Rate, false),
            LeaseState::Leased { rate, safe: None, policy: None, .. } if rate == Some(600.0)
        ));
    }

    #[test]
    fn other_unit_gives_no_lease() {
        for (unit, other) in [(Unit::Gauge, Unit::Rate), (Unit::Rate, Unit::Gauge)] {
            let status = status(unit, SafeCapacity::Unlimited);
            assert!(matches!(
                lease_state(&status, other, false),
                LeaseState::NoLease { safe: None, .. }
            ));
        }
    }

    #[test]
    fn units_of_a_gauge_are_not_converted() {
        let gauge = status(Unit::Gauge, SafeCapacity::AtMost(Capacity::saturating(2.0)));
        assert!(matches!(
            lease_state(&gauge, Unit::Gauge, false),
            LeaseState::Leased { rate, safe, policy, .. }
                if rate == Some(600.0)
                    && safe == Some(SafeRate::PerSecond(2.0))
                    && policy == Some(Policy { limit: 6000.0, per: 1.0 })
        ));
    }
}
