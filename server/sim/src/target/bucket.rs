//! A target with a token bucket.

use super::{OwnLimit, TargetResponse, whole_seconds};
use crate::scenario::RateLimit;

/// Accepts a rate, and a burst after silence.
pub(super) struct Bucket {
    settings: RateLimit,
    /// Seconds of the rate that it holds.
    burst: f64,
    tokens: f64,
    /// The second up to which tokens are counted.
    counted: f64,
}

impl Bucket {
    pub(super) fn new(settings: RateLimit, burst: f64) -> Self {
        Self {
            tokens: (settings.rate.at(0.0) * burst).max(1.0),
            settings,
            burst,
            counted: 0.0,
        }
    }

    pub(super) fn request(&mut self, now: f64, latency: f64) -> TargetResponse {
        let rate = self.settings.rate.at(now);
        let refill = rate - self.settings.foreign.at(now);
        let size = (rate * self.burst).max(1.0);
        self.tokens = (self.tokens + refill * (now - self.counted)).clamp(0.0, size);
        self.counted = now;
        let is_accepted = self.tokens >= 1.0;
        if is_accepted {
            self.tokens -= 1.0;
        }
        let seen = (self.settings.headers && rate > 0.0).then(|| OwnLimit {
            remaining: self.tokens,
            reset: (size - self.tokens) / rate,
        });
        let response = if is_accepted {
            TargetResponse::served(latency)
        } else {
            let wait = (1.0 - self.tokens) / refill.max(f64::MIN_POSITIVE);
            TargetResponse {
                retry_after: self.settings.retry_after.then(|| whole_seconds(wait)),
                ..TargetResponse::refused()
            }
        };
        TargetResponse { seen, ..response }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{
        TargetResult,
        tests::{limit, steps},
    };

    /// The requests served of so many a second.
    fn served(bucket: &mut Bucket, rate: f64, from: f64, to: f64) -> usize {
        let count = ((to - from) * rate) as usize;
        let times = (0..count).map(|number| from + number as f64 / rate);
        let results = times.map(|now| bucket.request(now, 0.02).result);
        results.filter(|it| *it == TargetResult::Served).count()
    }

    #[test]
    fn it_serves_its_rate_and_a_burst() {
        let mut bucket = Bucket::new(limit(steps(&[(0.0, 100.0), (10.0, 20.0)])), 0.5);
        assert!((1048..=1052).contains(&served(&mut bucket, 300.0, 0.0, 10.0)));
        assert!((199..=202).contains(&served(&mut bucket, 300.0, 10.0, 20.0)));
        assert!((99..=100).contains(&served(&mut bucket, 10.0, 20.0, 30.0)));
    }

    #[test]
    fn small_burst_holds_one_request() {
        let mut bucket = Bucket::new(limit(steps(&[(0.0, 1.0)])), 0.2);
        assert!((10..=11).contains(&served(&mut bucket, 10.0, 0.0, 10.0)));
    }

    #[test]
    fn others_take_their_rate_first() {
        let mut bucket = Bucket::new(
            RateLimit {
                foreign: steps(&[(10.0, 80.0), (20.0, 200.0)]),
                ..limit(steps(&[(0.0, 100.0)]))
            },
            0.2,
        );
        served(&mut bucket, 300.0, 0.0, 10.0);
        assert!((198..=202).contains(&served(&mut bucket, 300.0, 10.0, 20.0)));
        assert_eq!(served(&mut bucket, 300.0, 20.1, 30.0), 0);
    }

    #[test]
    fn responses_state_the_limit_and_the_wait() {
        let mut bucket = Bucket::new(
            RateLimit {
                headers: true,
                retry_after: true,
                ..limit(steps(&[(0.0, 2.0)]))
            },
            5.0,
        );
        let first = bucket.request(0.0, 0.3);
        let seen = OwnLimit {
            remaining: 9.0,
            reset: 0.5,
        };
        assert_eq!((first.result, first.after), (TargetResult::Served, 0.3));
        assert_eq!((first.seen, first.retry_after), (Some(seen), None));
        for _ in 0..9 {
            bucket.request(0.0, 0.3);
        }
        let refused = bucket.request(0.0, 0.3);
        let empty = OwnLimit {
            remaining: 0.0,
            reset: 5.0,
        };
        assert_eq!(refused.result, TargetResult::Refused);
        assert_eq!(
            (refused.seen, refused.retry_after),
            (Some(empty), Some(1.0))
        );
    }
}
