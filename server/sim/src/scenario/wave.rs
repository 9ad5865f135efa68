//! Demands over time, and the requests that follow from them.

use std::f64::consts::TAU;

use doorman_openapi::Moment;
use fastrand::Rng;

use super::{DemandPattern, MAX_WANTS, Requests};

/// Seconds between two values of a smooth demand.
const STEP: f64 = 1.0;

/// The most requests of one client in a second.
const MAX_REQUEST_RATE: f64 = 1e6;

/// The present value of a demand over time.
pub(crate) struct Wave {
    pub(crate) pattern: DemandPattern,
    pub(crate) wants: f64,
    is_peak: bool,
}

/// The requests of a user.
pub(crate) struct Traffic {
    kind: Requests,
    /// Seconds of the unit of the demand.
    per: f64,
    /// In requests a second.
    rate: f64,
    pub(crate) next: Moment,
    /// Counts the changes of the rate.
    pub(crate) plan: u32,
}

impl Wave {
    pub(crate) fn new(pattern: DemandPattern) -> Self {
        Self {
            pattern,
            wants: 0.0,
            is_peak: true,
        }
    }

    /// Moves to the next value. Returns the seconds until the one after.
    pub(crate) fn advance(&mut self, seconds: f64, is_first: bool, rng: &mut Rng) -> Option<f64> {
        match self.pattern {
            DemandPattern::Constant { wants } => {
                self.wants = wants;
                None
            }
            DemandPattern::RandomWalk { start, step, every } => {
                self.wants = if is_first {
                    start
                } else {
                    let factor = 1.0 + step * (2.0 * rng.f64() - 1.0);
                    (self.wants * factor).min(MAX_WANTS)
                };
                Some(every)
            }
            DemandPattern::Sine {
                mean,
                amplitude,
                period,
            } => {
                let value = mean + amplitude * (TAU * seconds / period).sin();
                self.wants = value.max(0.0);
                Some(STEP.min(period / 8.0))
            }
            DemandPattern::Spikes {
                base,
                peak,
                every,
                length,
            } => {
                self.is_peak = !self.is_peak;
                self.wants = if self.is_peak { peak } else { base };
                Some(if self.is_peak {
                    length
                } else {
                    exponential(every, rng)
                })
            }
            DemandPattern::Poisson { mean, every } => {
                self.wants = arrivals(mean * every, rng) as f64 / every;
                Some(every)
            }
        }
    }
}

impl Traffic {
    pub(crate) fn new(kind: Requests, per: f64) -> Self {
        Self {
            kind,
            per,
            rate: 0.0,
            next: Moment::NEVER,
            plan: 0,
        }
    }

    /// The seconds to the next request.
    pub(crate) fn gap(&self, rng: &mut Rng) -> f64 {
        match self.kind {
            Requests::Even => 1.0 / self.rate,
            Requests::Random => exponential(1.0, rng) / self.rate,
        }
    }

    /// Changes the rate. Returns whether the next request is planned anew.
    pub(crate) fn change(&mut self, wants: f64, time: Moment, rng: &mut Rng) -> bool {
        let rate = (wants / self.per).min(MAX_REQUEST_RATE);
        if rate == self.rate {
            return false;
        }
        // The part of a gap that is left of even requests.
        let left = if self.rate > 0.0 {
            (self.next.seconds_since(time) * self.rate).min(1.0)
        } else {
            rng.f64()
        };
        self.rate = rate;
        self.plan = self.plan.wrapping_add(1);
        self.next = match self.kind {
            _ if rate <= 0.0 => Moment::NEVER,
            Requests::Even => time.after_seconds(left / rate),
            Requests::Random => time.after_seconds(self.gap(rng)),
        };
        true
    }
}

/// A time until a random event, so many seconds on average.
pub(crate) fn exponential(mean: f64, rng: &mut Rng) -> f64 {
    (-mean * (1.0 - rng.f64()).ln()).max(0.001)
}

/// A number of random arrivals with a Poisson distribution.
fn arrivals(mean: f64, rng: &mut Rng) -> u64 {
    let mut count = 0;
    let mut time = exponential(1.0, rng);
    while time < mean {
        count += 1;
        time += exponential(1.0, rng);
    }
    count
}
