//! The bucket and its reference, driven by the same steps.

use doorman_openapi::Moment;

use super::{
    super::{Supply, TokenRange, Tokens},
    reference::{Bucket, Naive, Rate, moment, refill},
    windows::Windows,
};

/// How many ticks ahead the reference searches for the retry time.
const HORIZON: i64 = 5_000;

/// Asserts after every step that both agree.
pub(super) struct SideBySide {
    naive: Naive,
    bucket: Bucket,
    windows: Windows,
    horizon: i64,
}

impl SideBySide {
    pub(super) fn new(burst_ticks: i64, lapsed: Rate) -> Self {
        let mut windows = Windows::default();
        windows.switched(lapsed);
        Self {
            naive: Naive::new(burst_ticks, lapsed),
            bucket: Bucket::new(burst_ticks, lapsed),
            windows,
            horizon: HORIZON,
        }
    }

    pub(super) fn with_horizon(self, horizon: i64) -> Self {
        Self { horizon, ..self }
    }

    pub(super) fn pass(&mut self, ticks: i64) {
        for _ in 0..ticks {
            self.naive.pass_one_tick();
            self.windows.passed(self.naive.rate());
        }
    }

    pub(super) fn lease(&mut self, rate: Rate, ticks: i64, lapsed: Rate) {
        let ends = self.naive.tick + ticks;
        let supply = Supply::Lease {
            refill: refill(rate),
            ends: moment(ends),
            lapsed: refill(lapsed),
            tokens: Tokens::Kept,
        };
        self.switch(Some((rate, ends)), lapsed, supply);
    }

    pub(super) fn lose_lease(&mut self, lapsed: Rate) {
        let supply = Supply::NoLease {
            lapsed: refill(lapsed),
        };
        self.switch(None, lapsed, supply);
    }

    fn switch(&mut self, lease: Option<(Rate, i64)>, lapsed: Rate, supply: Supply) {
        self.naive.switch(lease, lapsed);
        self.bucket.switch(supply, self.now());
        self.windows.switched(self.naive.rate());
    }

    /// Returns whether a request is admitted. Checks the retry time of a rejected one.
    pub(super) fn request(&mut self, cost: i64) -> bool {
        let now = self.now();
        let range = self.bucket.next(cost, now);
        let admitted = self.bucket.admits(range, now);
        assert_eq!(
            admitted,
            self.naive.admits(cost),
            "{cost} at tick {}",
            self.naive.tick
        );
        if admitted {
            self.windows.admitted(cost, self.naive.bucket_size());
            self.naive.request(cost);
            self.bucket.spent = range.end();
        } else {
            self.check_retry_time(cost, range, now);
        }
        admitted
    }

    fn check_retry_time(&self, cost: i64, range: TokenRange, now: Moment) {
        let retry_at = self.bucket.schedule.reach(range, now, self.bucket.burst);
        let first = self.naive.first_admission(cost, self.horizon);
        match first {
            // Rounding of floats may delay it by less than a nanosecond.
            Some(first) => assert!(
                retry_at.is_some_and(|it| it >= first && it.as_nanos() - first.as_nanos() <= 1),
                "{cost} at tick {}: {retry_at:?} instead of {first:?}",
                self.naive.tick
            ),
            // It may be beyond the horizon.
            None => {
                let end = moment(self.naive.tick + self.horizon);
                assert!(retry_at.is_none_or(|moment| moment > end), "{retry_at:?}");
            }
        }
        if let Some(moment) = retry_at.filter(|&moment| moment < Moment::NEVER) {
            assert!(self.bucket.admits(range, moment), "retry rejected");
            let just_before = Moment::from_nanos(moment.as_nanos() - 1);
            assert!(
                !self.bucket.admits(range, just_before),
                "admitted before the retry time"
            );
        }
    }

    pub(super) fn check_windows(self) {
        self.windows.check();
    }

    fn now(&self) -> Moment {
        moment(self.naive.tick)
    }
}
