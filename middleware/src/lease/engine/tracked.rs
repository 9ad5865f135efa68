//! One limiter that the worker leases for: when it is sampled, what it wants, and what it got.

use std::{mem, time::Duration};

use doorman_holder::{Demand, FOLLOW_UP_INTERVAL, Feedback, FirstAnswer, LeaseStatus, Sharing};
use doorman_openapi::{Capacity, Moment, Outcomes, RequestCount, Unit};

use super::{
    conversion::{has_other_unit, lease_state, period},
    measured::MeasuredDemand,
    pace::Shortages,
    repeated_bursts::{RECALL_TIME, RepeatedBursts},
    supply::{Fit, Supply},
};
use crate::{
    demand::in_unit,
    limiter::{LeaseLevel, LeaseState, Limiter, Shortage},
    meter::LeasePhase,
    tuning::tuning,
};

/// Growth of the wants while requests wait: how much they would use is unknown.
const GROWTH_WHILE_WAITING: f64 = 2.0;
/// The time for which a limiter is kept whose unit is not that of its resource.
const KEPT_IN_OTHER_UNIT: Duration = Duration::from_secs(5);
/// The part of a limit of counted tokens that a process without requests wants.
const UNUSED_PART: f64 = 0.01;
/// A lease above this multiple of the demand has surplus to give back.
const MUCH_SURPLUS: f64 = 1.3;

#[derive(Debug)]
pub(super) struct TrackedLimiter {
    /// Of its limiter.
    pub(super) generation: u16,
    demand: MeasuredDemand,
    leasing: Leasing,
    pub(super) answered: bool,
    /// The resource was once in another unit than its limiter.
    unit_mismatch: bool,
    /// The control plane keeps what is spent of the lease: a new one brings its tokens.
    is_counted: bool,
}

/// The course of leasing since the limiter was created or last slept.
#[derive(Debug, Default)]
struct Leasing {
    /// Idle, without a lease until the next request.
    asleep: bool,
    /// Totals from before, of which the control plane knows nothing any more.
    before: Option<Box<Before>>,
    /// The most cost reported as used since then: a refund does not lower it.
    used: f64,
    leased: Capacity,
    supply: Supply,
    shortages: Shortages,
    /// No capacity is requested for bursts until an answer shows that others do not need it: a page
    /// may seem to be a rate beyond the limit at first.
    bursts_in_doubt: bool,
    fit: Fit,
    repeated_bursts: RepeatedBursts,
    /// The next report states the full wants even if hinted, because expected bursts did not come.
    gives_back: bool,
    phase: LeasePhase,
}

/// Totals of a limiter when it last slept.
#[derive(Debug)]
struct Before {
    admitted: f64,
    outcomes: Outcomes,
}

/// A sample of a limiter at its scheduled time.
#[derive(Debug)]
pub(super) struct Sample {
    /// `None` while a rise is being measured.
    pub(super) demand: Option<Demand>,
    /// Unused for long and with a full bucket, so that forgetting it gives nothing away.
    pub(super) idle: bool,
    /// Expected bursts did not come, so capacity is given back.
    pub(super) gives_back: bool,
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
    /// A lease in the other unit came, which is of no use here.
    pub(in crate::lease) gives_back: bool,
    pub(in crate::lease) is_first_answer: bool,
}

impl Leasing {
    fn admitted_before(&self) -> f64 {
        self.before.as_ref().map_or(0.0, |before| before.admitted)
    }
}

impl TrackedLimiter {
    pub(super) fn new(limiter: Limiter<'_>, now: Moment) -> Self {
        Self {
            generation: limiter.generation(),
            demand: MeasuredDemand::new(limiter, now),
            leasing: Leasing::default(),
            answered: false,
            unit_mismatch: false,
            is_counted: false,
        }
    }

    /// Whether it ever slept after an admission.
    fn slept(&self) -> bool {
        self.leasing.admitted_before() > 0.0
    }

    /// The demand for a request sent now, and when to sample next if that changes; `hinted` if the
    /// control plane asked for it.
    pub(super) fn report(
        &mut self,
        limiter: Limiter<'_>,
        hinted: bool,
        now: Moment,
    ) -> (Demand, Option<Moment>) {
        let gives_back = mem::take(&mut self.leasing.gives_back);
        let mut demand = if hinted && !gives_back {
            self.sample_for_hint(limiter, now)
        } else {
            self.sample(limiter, now)
        };
        demand.feedback = Some(self.feedback(limiter, now));
        self.demand.on_report(limiter, now);
        // The next sample may still be that of a quiet limiter.
        let is_soon = self.demand.is_followed() && !self.leasing.shortages.is_measuring();
        (demand, is_soon.then(|| self.next_sample(now)))
    }

    /// Statements of the target, for a request sent now.
    fn feedback(&self, limiter: Limiter<'_>, now: Moment) -> Feedback {
        limiter.clear_overloaded();
        let outcomes = limiter.outcomes();
        Feedback {
            outcomes: match &self.leasing.before {
                Some(before) => since(outcomes, &before.outcomes),
                None => outcomes,
            },
            paused_until: limiter.paused_until(),
            seen: limiter.take_seen(now),
        }
    }

    fn sample(&mut self, limiter: Limiter<'_>, now: Moment) -> Demand {
        let total = self.demand.record(limiter, now);
        self.demand(limiter, self.wants(limiter, total, now), now)
    }

    /// The demand as measured now, for a hint: others want what is only likely to be needed.
    fn sample_for_hint(&mut self, limiter: Limiter<'_>, now: Moment) -> Demand {
        let total = self.demand.record(limiter, now);
        if let Some(gauge) = &mut self.demand.gauge
            && self.leasing.shortages.signaled().is_none()
        {
            let level = gauge.in_use.level();
            gauge.yielded = level == 0.0;
            return self.demand(limiter, level, now);
        }
        if !self.may_have_fallen(limiter) {
            return self.demand(limiter, self.wants(limiter, total, now), now);
        }
        self.leasing.bursts_in_doubt |= self.leasing.supply == Supply::Whole;
        let demand = &mut self.demand;
        if !self.leasing.bursts_in_doubt {
            demand.window.forget_bursts();
        }
        demand.window.accept_fall();
        if let Some(bands) = &mut demand.bands {
            bands.accept_fall();
        }
        let measured = demand.window.per_second();
        let unused = self.wants_if_unused(&limiter.lease_level(now));
        let wants = self.demand.or_fading(measured, total, unused, now);
        self.demand(limiter, wants, now)
    }

    /// Begins to measure for a hint. Returns for how many seconds; `None` if the holder can answer
    /// at once: it has more than it wants, or is short, or its demand is too small to be measured
    /// soon.
    pub(super) fn measure_for_hint(&mut self, limiter: Limiter<'_>, now: Moment) -> Option<f64> {
        self.demand.record(limiter, now);
        let demand = &mut self.demand;
        let wants = in_unit(demand.window.per_second(), demand.period).get();
        if !self.may_have_fallen(limiter) || self.leasing.leased.get() > wants * MUCH_SURPLUS {
            return None;
        }
        if let Some(bands) = &mut self.demand.bands {
            bands.begin_stretch();
        }
        self.demand.window.begin_stretch()
    }

    /// Whether a stretch of attempts shows a fall: not at a gauge, under SUPPRESSION, while
    /// requests wait, which need all of the lease, or while the holder waits for a larger one
    /// because of a rise that was just measured.
    fn may_have_fallen(&self, limiter: Limiter<'_>) -> bool {
        let Leasing {
            supply, shortages, ..
        } = &self.leasing;
        let is_short = *supply == Supply::Growing && shortages.is_measuring();
        let is_measured = self.demand.gauge.is_none() && self.demand.suppression.is_none();
        let is_spent = limiter.waiting() > 0;
        is_measured && !is_short && !is_spent && self.leasing.repeated_bursts.expected().is_none()
    }

    /// The demand with these wants, per second or in units, unless they are stated.
    fn demand(&mut self, limiter: Limiter<'_>, wants: f64, now: Moment) -> Demand {
        let stated = limiter.with_settings(|settings| settings.wants.load());
        let wants = if limiter.has_other_unit() {
            // It can use nothing.
            Capacity::ZERO
        } else {
            stated.unwrap_or_else(|| self.demand.in_own_unit(wants))
        };
        limiter.record_wants(wants.get());
        let units = limiter.units_in_use();
        let leasing = &mut self.leasing;
        let used = limiter.tally().admitted - leasing.admitted_before();
        leasing.used = leasing.used.max(used);
        let bands = self.demand.bands.as_ref();
        let divided = bands.and_then(|bands| bands.divide(wants, self.demand.period));
        let (priority, bands) = divided.unwrap_or_else(|| (limiter.priority(), None));
        Demand {
            wants,
            outstanding: units.map_or(Capacity::ZERO, |it| Capacity::saturating(it.in_use)),
            used: Capacity::saturating(leasing.used),
            priority,
            bands,
            limited_as: limiter.has_other_unit().then(|| limiter.unit()),
            bucket: limiter.long_bucket(now),
            feedback: None,
        }
    }

    /// The demand in attempts per second or in units, and what else the limiter could use while
    /// capacity is free.
    fn wants(&self, limiter: Limiter<'_>, total: f64, now: Moment) -> f64 {
        let (demand, leasing) = (&self.demand, &self.leasing);
        let is_scarce = leasing.supply.is_scarce();
        if let Some(gauge) = &demand.gauge {
            return gauge.wanted(is_scarce);
        }
        if let Some(reported) = &demand.suppression {
            return reported.per_second(total, now);
        }
        let level = limiter.lease_level(now);
        let mut wants = demand.window.generous();
        if self.runs_out_soon(&level) {
            wants = wants.max(self.newest(&level));
        }
        let mut growth = 0.0_f64;
        if limiter.waiting() > 0 {
            growth = GROWTH_WHILE_WAITING * level.rate;
        }
        if !is_scarce {
            if !leasing.bursts_in_doubt {
                growth = growth.max(level.rate_for(demand.window.burst()));
            }
            if leasing.shortages.signaled() >= Some(Shortage::Denied) {
                growth = growth.max(tuning().growth_while_denied * level.rate);
            }
        }
        if let Some(expected) = leasing.repeated_bursts.expected() {
            growth = growth.max(expected);
        }
        let wants = wants.max(growth.min(level.limit));
        demand.or_fading(wants, total, self.wants_if_unused(&level), now)
    }

    /// The newest demand. One of many bursts, or of few requests, looks like a rate beyond the
    /// limit: unless all demands fit it counts by the mean, else it would take from others what
    /// they use.
    fn newest(&self, level: &LeaseLevel) -> f64 {
        let window = &self.demand.window;
        let newest = window.newest();
        let is_by_chance = window.is_bursty() || window.is_one_attempt();
        if newest > level.limit && is_by_chance && !self.leasing.fit.is_possible() {
            window.generous()
        } else {
            newest
        }
    }

    /// Whether the newest demand spends what is left before the next sample, or before others give
    /// capacity back.
    fn runs_out_soon(&self, level: &LeaseLevel) -> bool {
        let excess = self.newest(level) - level.rate;
        level.left < excess * self.leasing.shortages.pause().max(RECALL_TIME)
    }

    /// The demand of a limiter without requests for tokens that the control plane counts.
    fn wants_if_unused(&self, level: &LeaseLevel) -> Option<f64> {
        (self.is_counted && level.left >= 0.0).then_some(UNUSED_PART * level.limit)
    }

    fn next_sample(&self, now: Moment) -> Moment {
        let mut seconds = self.demand.next_sample();
        if self.demand.is_followed() {
            seconds = seconds.min(FOLLOW_UP_INTERVAL.as_secs_f64());
        }
        now.after_seconds(seconds)
    }

    /// A limiter signals a shortage. Returns when to sample it, unless it is a known one.
    pub(super) fn on_shortage(
        &mut self,
        limiter: Limiter<'_>,
        shortage: Shortage,
        now: Moment,
    ) -> Option<Moment> {
        if self.leasing.asleep {
            self.wake(limiter, now);
            return Some(now);
        }
        let is_measuring = self.leasing.shortages.is_measuring();
        if !self.leasing.shortages.signal(shortage) {
            return None;
        }
        if self.demand.gauge.is_some() {
            // Units are counted, and need not be measured for a time.
            return Some(now);
        }
        if !is_measuring {
            let burst = self.demand.window.burst();
            self.leasing.repeated_bursts.begin_shortage(burst, now);
            self.leasing.fit.begin_shortage();
        }
        self.demand.record(limiter, now);
        self.expect_more_bursts(limiter, now);
        if self.leasing.repeated_bursts.expected().is_some() {
            return Some(now);
        }
        Some(now.after_seconds(self.leasing.shortages.pause()))
    }

    /// Notes that the bucket has no tokens for another burst. While all demands fit, what others do
    /// not use is recalled.
    fn expect_more_bursts(&mut self, limiter: Limiter<'_>, now: Moment) {
        let is_measured = self.demand.gauge.is_none() && self.demand.suppression.is_none();
        if !is_measured || has_stated_wants(limiter) {
            return;
        }
        let (leasing, window) = (&mut self.leasing, &self.demand.window);
        let (burst, signaled) = (window.burst(), leasing.shortages.signaled());
        let is_emptied =
            signaled >= Some(Shortage::Denied) || limiter.lease_level(now).left < burst;
        if leasing.fit.is_possible() && signaled.is_some() && is_emptied {
            leasing
                .repeated_bursts
                .note_emptied(burst, window.total(), now);
        }
    }

    /// Samples at a scheduled time. Returns when to sample next.
    pub(super) fn sample_on_schedule(
        &mut self,
        limiter: Limiter<'_>,
        idle_after: Duration,
        now: Moment,
    ) -> (Sample, Moment) {
        let expected = self.end_expectation(limiter, now);
        let (demand, mut next) = self.sample_at_pace(limiter, now);
        if let Some(at) = self.leasing.repeated_bursts.next_at(now) {
            next = next.min(at);
        }
        let gives_back =
            expected.is_some_and(|all| demand.as_ref().is_none_or(|it| it.wants < all));
        self.leasing.gives_back |= gives_back;
        // Requests of other limits in the right unit wait until it is forgotten.
        let idle = if limiter.has_other_unit() {
            let kept = idle_after.min(KEPT_IN_OTHER_UNIT);
            self.demand.last_attempt.after(kept) <= now
        } else {
            // The control plane keeps what a bucket lacks that it counts.
            let is_kept = self.is_counted && limiter.can_begin_anew(now);
            self.demand.last_attempt.after(idle_after) <= now && (is_kept || limiter.is_full(now))
        };
        if self.leasing.asleep && !idle {
            self.wake(limiter, now);
        }
        let sample = Sample {
            demand,
            idle,
            gives_back,
        };
        (sample, next)
    }

    /// Expects no more bursts once their time is over. Returns the wants for them.
    fn end_expectation(&mut self, limiter: Limiter<'_>, now: Moment) -> Option<Capacity> {
        let expected = self.leasing.repeated_bursts.expected()?;
        if self.leasing.repeated_bursts.expire_at() > Some(now) {
            return None;
        }
        let total = self.demand.record(limiter, now);
        if let Some((attempts, seconds)) = self.leasing.repeated_bursts.end(total, now) {
            self.demand.window.begin_with(attempts, seconds);
        }
        let wants = expected.min(limiter.lease_level(now).limit);
        Some(in_unit(wants, self.demand.period))
    }

    /// Returns the demand, unless it is not yet clear, and when to sample next.
    fn sample_at_pace(&mut self, limiter: Limiter<'_>, now: Moment) -> (Option<Demand>, Moment) {
        let total = self.demand.record(limiter, now);
        self.expect_more_bursts(limiter, now);
        let demand = self.demand(limiter, self.wants(limiter, total, now), now);
        let usual = self.next_sample(now);
        limiter.clear_demand_signal();
        let Some(samples) = self.leasing.shortages.on_sample() else {
            return (Some(demand), usual);
        };
        let is_gauge = self.demand.gauge.is_some();
        let level = limiter.lease_level(now);
        let is_covered = is_gauge || self.newest(&level) <= level.rate;
        let next = now.after_seconds(self.leasing.shortages.pause());
        if is_covered && !level.runs_low || next >= usual {
            self.leasing.shortages.end_measuring();
            self.leasing.fit.end_shortage();
            self.leasing.repeated_bursts.end_shortage();
            return (Some(demand), usual);
        }
        // One stretch is no proof of a rise, and too small a request would delay the right one.
        let is_unclear = samples == 0
            && !is_gauge
            && self.leasing.repeated_bursts.expected().is_none()
            && !self.runs_out_soon(&level);
        ((!is_unclear).then_some(demand), next)
    }

    /// Gives up the lease while idle. Returns whether the limiter sleeps.
    pub(super) fn sleep(&mut self, limiter: Limiter<'_>, now: Moment) -> bool {
        if self.leasing.asleep {
            return true;
        }
        // Before it sleeps: what is admitted then is used.
        let before = Before {
            admitted: limiter.tally().admitted,
            outcomes: limiter.outcomes(),
        };
        // A stated demand reserves capacity for requests to come.
        // One in another unit learns of a correction only while it is refreshed.
        let stays = has_stated_wants(limiter) || limiter.has_other_unit();
        if stays || !self.answered || !limiter.sleep(now) {
            return false;
        }
        if let Some(gauge) = &mut self.demand.gauge {
            gauge.in_use = gauge.in_use.begin_again(now);
        }
        self.leasing = Leasing {
            asleep: true,
            before: Some(Box::new(before)),
            ..Leasing::default()
        };
        true
    }

    /// A request came, which may not be counted yet.
    fn wake(&mut self, limiter: Limiter<'_>, now: Moment) {
        self.leasing.asleep = false;
        self.demand.last_attempt = now;
        self.demand.on_report(limiter, now);
    }

    /// Publishes a status to the limiter. Returns when to sample next, if a larger lease came that
    /// is not known to be enough.
    pub(super) fn publish(
        &mut self,
        limiter: Limiter<'_>,
        status: &LeaseStatus,
        now: Moment,
    ) -> (Publication, Option<Moment>) {
        let before = self.leasing.leased;
        let next = self.apply(limiter, status, now);
        let state = self.lease_state(limiter, status);
        let has_other_unit = has_other_unit(status, limiter.unit());
        limiter.publish(state, now);
        limiter.set_hears_overloads(status.reports_overloads);
        let is_permanent = limiter.is_permanent();
        let is_first_answer =
            status.first_answer == FirstAnswer::Received && !mem::replace(&mut self.answered, true);
        if is_first_answer && is_permanent {
            // The time without requests counts from the first answer on: a service that waited for
            // it starts with the lease.
            self.demand.last_attempt = self.demand.last_attempt.max(now);
        }
        let (phase, capacity) = match state {
            LeaseState::Leased {
                rate: Some(rate), ..
            } => (LeasePhase::Leased, rate * self.demand.period),
            LeaseState::Leased { rate: None, .. } => (LeasePhase::Blocked, 0.0),
            LeaseState::NoLease { .. }
            | LeaseState::OtherUnit { .. }
            | LeaseState::Unlimited
            | LeaseState::Fixed { .. }
            | LeaseState::Local(_) => (self.leasing.phase.without_lease(), 0.0),
        };
        let is_new_phase = mem::replace(&mut self.leasing.phase, phase) != phase;
        let is_new_mismatch = has_other_unit && !mem::replace(&mut self.unit_mismatch, true);
        let publication = Publication {
            new_phase: is_new_phase.then_some(phase),
            capacity,
            is_permanent,
            unit_mismatch: is_new_mismatch.then(|| limiter.unit()),
            gives_back: has_other_unit && self.leasing.leased > before,
            is_first_answer,
        };
        (publication, next)
    }

    /// The state for a status, in the limiter's running totals.
    fn lease_state(&self, limiter: Limiter<'_>, status: &LeaseStatus) -> LeaseState {
        let mut state = lease_state(status, limiter.unit(), has_stated_wants(limiter));
        if let LeaseState::Leased {
            sharing: Sharing::Bucket(balance),
            ..
        } = &mut state
        {
            let used = balance.used.get() + self.leasing.admitted_before();
            balance.used = Capacity::saturating(used);
        }
        state
    }

    fn apply(&mut self, limiter: Limiter<'_>, status: &LeaseStatus, now: Moment) -> Option<Moment> {
        let terms = status.terms.as_deref();
        let interval = status.refresh_interval.as_secs_f64();
        self.demand.set_interval(interval);
        self.demand.period = period(terms);
        let limit = terms.and_then(|terms| terms.limit);
        self.leasing.supply = Supply::new(status.lease.as_ref(), limit);
        if let Some(lease) = &status.lease
            && self.demand.gauge.is_none()
        {
            self.doubt_bursts(limiter, lease.capacity.get(), status.requested.get());
        }
        let interval = terms.is_some_and(|it| it.suppressed).then_some(interval);
        let slept = self.slept();
        self.demand.set_suppression(limiter, interval, slept, now);
        let leased = status.lease.map_or(Capacity::ZERO, |lease| lease.capacity);
        self.is_counted = match status.lease.map(|it| it.sharing) {
            Some(Sharing::Grown(_)) => true,
            // A larger lease of a counted resource would bring tokens.
            Some(Sharing::Divided) => self.is_counted && leased <= self.leasing.leased,
            Some(Sharing::Bucket(_) | Sharing::Suppressed(_)) | None => false,
        };
        if leased <= mem::replace(&mut self.leasing.leased, leased) {
            return None;
        }
        let Leasing {
            supply, shortages, ..
        } = &mut self.leasing;
        if !supply.is_scarce() {
            // Another shortage is that of this lease.
            shortages.forget_measured();
        }
        if limiter.waiting() == 0 && shortages.signaled().is_none() {
            return None;
        }
        shortages.measure();
        Some(now.after_seconds(shortages.pause()))
    }

    /// Decides by a lease whether others need the capacity that bursts would use.
    fn doubt_bursts(&mut self, limiter: Limiter<'_>, leased: f64, requested: f64) {
        let window = &mut self.demand.window;
        let burst = limiter.with_settings(|settings| settings.burst.load());
        let needed = in_unit(burst.rate_for(window.burst()), self.demand.period).get();
        let supply = self.leasing.supply;
        self.leasing.fit.note(supply, leased, requested);
        if self.leasing.repeated_bursts.expected().is_some() {
            return;
        }
        let in_doubt = mem::take(&mut self.leasing.bursts_in_doubt);
        if supply.is_scarce() && leased >= needed {
            self.leasing.bursts_in_doubt = true;
            return;
        }
        if supply.is_scarce() || in_doubt && supply != Supply::Whole && leased <= requested {
            window.forget_bursts();
        }
    }
}

/// Running totals since others.
fn since(totals: Outcomes, before: &Outcomes) -> Outcomes {
    let cost = |total: Capacity, before: Capacity| Capacity::saturating(total.get() - before.get());
    let count = |total: RequestCount, before: RequestCount| {
        RequestCount::saturating(total.get().saturating_sub(before.get()))
    };
    Outcomes {
        refused: cost(totals.refused, before.refused),
        ok: count(totals.ok, before.ok),
        overloaded: count(totals.overloaded, before.overloaded),
        failed: count(totals.failed, before.failed),
        ok_seconds: totals
            .ok_seconds
            .map(|total| cost(total, before.ok_seconds.unwrap_or_default())),
    }
}

/// Whether the program states the demand, so that it is not measured.
fn has_stated_wants(limiter: Limiter<'_>) -> bool {
    limiter.with_settings(|settings| settings.wants.load().is_some())
}
