//! Measured demand of one limiter, of a rate or of a gauge.

use doorman_openapi::{Capacity, Moment, Unit};

use super::bands::TrackedBands;
use crate::{
    demand::{
        GaugeSample, InUseDemand, ReportedDemand, Window, fading_demand, in_unit, window_length,
    },
    limiter::Limiter,
};

/// The refresh interval, in seconds, before the first response.
const DEFAULT_INTERVAL: f64 = 1.0;
/// The part of a window after which a total of attempts that refunds have lowered counts.
const LOWERED_AFTER: f32 = 0.25;

/// The seconds without attempts after which little of counted tokens is wanted.
const UNUSED_TIME: f64 = 60.0;

#[derive(Debug)]
pub(super) struct MeasuredDemand {
    pub(super) window: Window,
    window_length: f32,
    /// The period of the resource's rate, in seconds.
    pub(super) period: f64,
    /// Boxed, because most limiters are of rates.
    pub(super) gauge: Option<Box<GaugeDemand>>,
    /// Boxed, because few resources have requests of several priorities.
    pub(super) bands: Option<Box<TrackedBands>>,
    /// Boxed, because few resources use SUPPRESSION.
    pub(super) suppression: Option<Box<ReportedDemand>>,
    pub(super) last_attempt: Moment,
    /// For how many seconds refunds have kept the total of attempts below that of the samples.
    lower_for: f32,
}

#[derive(Debug)]
pub(super) struct GaugeDemand {
    pub(super) in_use: InUseDemand,
    /// All units were given up for others, and there was no request since.
    pub(super) yielded: bool,
}

impl GaugeDemand {
    /// The units that it wants. Those of one request are kept without requests, so that the next
    /// one need not wait.
    pub(super) fn wanted(&self, is_scarce: bool) -> f64 {
        let one = self.in_use.one_request();
        match (self.yielded, is_scarce) {
            (true, _) => 0.0,
            (false, true) => self.in_use.peak().max(one),
            (false, false) => self.in_use.with_headroom().max(one),
        }
    }
}

impl MeasuredDemand {
    pub(super) fn new(limiter: Limiter<'_>, now: Moment) -> Self {
        let gauge = || GaugeDemand {
            in_use: InUseDemand::new(now),
            yielded: false,
        };
        Self {
            window: Window::new(now),
            window_length: window_length(DEFAULT_INTERVAL) as f32,
            period: 1.0,
            gauge: (limiter.unit() == Unit::Gauge).then(|| Box::new(gauge())),
            bands: None,
            suppression: None,
            last_attempt: now,
            lower_for: 0.0,
        }
    }

    pub(super) fn set_interval(&mut self, refresh_interval: f64) {
        self.window_length = window_length(refresh_interval) as f32;
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
    pub(super) fn record(&mut self, limiter: Limiter<'_>, now: Moment) -> f64 {
        let total = self.attempted(limiter, now);
        let length = self.window_length.into();
        let mut is_used = self.window.record(total, length, now);
        if let Some(gauge) = &mut self.gauge
            && let Some(units) = limiter.units_in_use()
        {
            let tally = limiter.tally();
            let level = units.in_use + units.waiting;
            let sample = GaugeSample {
                peak: limiter.take_peak().max(level),
                level,
                admitted: tally.admitted,
                rejected: tally.refused,
                largest: limiter.take_largest_cost(),
                limit: limiter.lease_level(now).limit,
            };
            gauge.in_use.record(sample, length, now);
            is_used |= level > 0.0;
            gauge.yielded &= !is_used;
        }
        if is_used {
            self.last_attempt = now;
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

    /// `wants`, or one attempt in the time without any: after a minute at most this, if the control
    /// plane counts tokens, which are for others then.
    pub(super) fn or_fading(
        &self,
        wants: f64,
        total: f64,
        counted: Option<f64>,
        now: Moment,
    ) -> f64 {
        if total == 0.0 || wants > 0.0 {
            return wants;
        }
        let quiet = now.seconds_since(self.last_attempt);
        let most = counted.filter(|_| quiet > UNUSED_TIME);
        fading_demand(quiet).min(most.unwrap_or(f64::INFINITY))
    }

    /// A demand in the resource's own unit, of attempts per second or units.
    pub(super) fn in_own_unit(&self, wants: f64) -> Capacity {
        match self.gauge {
            Some(_) => Capacity::saturating(wants),
            None => in_unit(wants, self.period),
        }
    }

    /// The seconds until the next sample at the usual pace.
    pub(super) fn next_sample(&self) -> f64 {
        let length = self.window_length.into();
        match &self.gauge {
            Some(gauge) => gauge.in_use.next_sample(length),
            None => self.window.next_sample(length),
        }
    }

    /// Whether it is sampled often, because its bucket, that of the whole limit, may never run low.
    pub(super) fn is_followed(&self) -> bool {
        self.suppression.is_some() && self.window.per_second() > 0.0
    }

    /// Begins or ends to count attempts between reports, which cover this many seconds.
    pub(super) fn set_suppression(
        &mut self,
        limiter: Limiter<'_>,
        interval: Option<f64>,
        slept: bool,
        now: Moment,
    ) {
        let Some(interval) = interval else {
            self.suppression = None;
            return;
        };
        let reported = self.suppression.get_or_insert_with(|| {
            let total = limiter.attempted().max(self.window.total());
            let rate = self.window.per_second();
            Box::new(match limiter.created_at() {
                // Nothing was reported before.
                Some(created_at) if !slept => ReportedDemand::new(0.0, 0.0, interval, created_at),
                Some(_) | None => ReportedDemand::new(total, rate, interval, now),
            })
        });
        reported.interval = interval;
    }

    /// Counts the attempts so far as reported, if the resource uses SUPPRESSION.
    pub(super) fn on_report(&mut self, limiter: Limiter<'_>, now: Moment) {
        if let Some(reported) = &mut self.suppression {
            reported.report(limiter.attempted().max(self.window.total()), now);
        }
    }
}
