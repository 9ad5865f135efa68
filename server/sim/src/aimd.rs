//! A limit that a client keeps alone, without leases: additive increase, multiplicative decrease.
//!
//! It is the rule of TCP (Chiu and Jain, "Analysis of the Increase and Decrease Algorithms for
//! Congestion Avoidance in Computer Networks", 1989), for a rate instead of a window.

use doorman_openapi::Moment;

/// The part of the first rate that is added each second. It takes 14 seconds from 30 % to all of it,
/// about as long as the capacity of a resource with `feedback` takes.
const INCREASE: f64 = 0.05;
/// The factor after an overload, that of CUBIC (RFC 9438).
const DECREASE: f64 = 0.7;
/// Seconds from a decrease until the next one, or an increase: refusals come for a while.
const PAUSE: f64 = 1.0;
/// Seconds without a rejection after which the rate does not grow: its client wants no more.
const IDLE: f64 = 1.0;
/// Seconds of the rate that are saved up, at least one request. The default of the layer.
const BURST: f64 = 1.0;

/// A limit of one client. Times are of its clock.
#[derive(Debug, Clone)]
pub(super) struct AimdLimit {
    /// In requests a second.
    rate: f64,
    first_rate: f64,
    tokens: f64,
    /// Up to when tokens are counted.
    counted: Moment,
    lowered: Option<Moment>,
    rejected: Option<Moment>,
}

impl AimdLimit {
    pub(super) fn new(rate: f64) -> Self {
        Self {
            rate,
            first_rate: rate,
            tokens: f64::INFINITY,
            counted: Moment::ORIGIN,
            lowered: None,
            rejected: None,
        }
    }

    /// Decides a request.
    pub(super) fn admit(&mut self, now: Moment) -> bool {
        let elapsed = now.seconds_since(self.counted);
        let within = |last: Option<Moment>, seconds: f64| {
            last.is_some_and(|it| now.seconds_since(it) < seconds)
        };
        if within(self.rejected, IDLE) && !within(self.lowered, PAUSE) {
            self.rate += INCREASE * self.first_rate * elapsed;
        }
        let most = (BURST * self.rate).max(1.0);
        self.tokens = (self.tokens + self.rate * elapsed).min(most);
        self.counted = now;
        let is_admitted = self.tokens >= 1.0;
        if is_admitted {
            self.tokens -= 1.0;
        } else {
            self.rejected = Some(now);
        }
        is_admitted
    }

    /// An admitted request was overloaded.
    pub(super) fn on_overload(&mut self, now: Moment) {
        let is_pause_over = |it: Moment| now.seconds_since(it) >= PAUSE;
        if self.lowered.is_none_or(is_pause_over) {
            self.rate *= DECREASE;
            self.lowered = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests admitted of a hundred a second.
    fn admitted(limit: &mut AimdLimit, from: f64, to: f64) -> usize {
        let count = ((to - from) * 100.0) as usize;
        let times = (0..count).map(|number| at(from + number as f64 / 100.0));
        times.filter(|now| limit.admit(*now)).count()
    }

    fn at(seconds: f64) -> Moment {
        Moment::ORIGIN.after_seconds(1_000.0 + seconds)
    }

    #[test]
    fn rate_grows_while_requests_are_rejected() {
        let mut limit = AimdLimit::new(20.0);
        // The burst, and ten seconds of 20 to 30 a second.
        let admitted = admitted(&mut limit, 0.0, 10.0);
        assert!((250..=275).contains(&admitted), "{admitted}");
        let grown = limit.rate;
        limit.admit(at(20.0));
        limit.admit(at(30.0));
        assert_eq!(limit.rate, grown);
    }

    #[test]
    fn overloads_of_a_second_lower_the_rate_once() {
        let mut limit = AimdLimit::new(20.0);
        for tenths in 0..15 {
            limit.on_overload(at(f64::from(tenths) / 10.0));
        }
        assert!((limit.rate - 20.0 * 0.49).abs() < 1e-9, "{}", limit.rate);
    }
}
