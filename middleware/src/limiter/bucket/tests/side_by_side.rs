//! The bucket and its reference under one schedule.

use doorman_openapi::Moment;

use super::{
    super::{Supply, Take},
    reference::{Bucket, Naive, Rate, flow, moment},
    windows::Windows,
};

/// For so many ticks the reference looks for the moment that is promised.
const HORIZON: i64 = 5_000;

/// Both, and what they have admitted. Every step asserts that they agree.
pub(super) struct SideBySide {
    naive: Naive,
    bucket: Bucket,
    windows: Windows,
    horizon: i64,
}

impl SideBySide {
    pub(super) fn new(burst_ticks: i64, lapse: Rate) -> Self {
        let mut windows = Windows::default();
        windows.switched(lapse);
        Self {
            naive: Naive::new(burst_ticks, lapse),
            bucket: Bucket::new(burst_ticks, lapse),
            windows,
            horizon: HORIZON,
        }
    }

    /// The same, looking less far for what is promised.
    pub(super) fn with_horizon(self, horizon: i64) -> Self {
        Self { horizon, ..self }
    }

    pub(super) fn pass(&mut self, ticks: i64) {
        for _ in 0..ticks {
            self.naive.pass_one_tick();
            self.windows.passed(self.naive.rate());
        }
    }

    /// A lease of a rate for so many ticks, and what counts after it.
    pub(super) fn lease(&mut self, rate: Rate, ticks: i64, lapse: Rate) {
        let ends = self.naive.tick + ticks;
        let supply = Supply::Lease {
            flow: flow(rate),
            ends: moment(ends),
            lapse: flow(lapse),
            left: None,
        };
        self.switch(Some((rate, ends)), lapse, supply);
    }

    /// The lease is lost, or known to have ended.
    pub(super) fn lose(&mut self, lapse: Rate) {
        let supply = Supply::NoLease {
            lapse: flow(lapse),
            answered: false,
        };
        self.switch(None, lapse, supply);
    }

    fn switch(&mut self, lease: Option<(Rate, i64)>, lapse: Rate, supply: Supply) {
        self.naive.switch(lease, lapse);
        self.bucket.switch(supply, self.now());
        self.windows.switched(self.naive.rate());
    }

    /// Whether a request is admitted; one that is not is promised the exact moment.
    pub(super) fn ask(&mut self, cost: i64) -> bool {
        let now = self.now();
        let take = self.bucket.next(cost, now);
        let admitted = self.bucket.admits(take, now);
        assert_eq!(
            admitted,
            self.naive.admits(cost),
            "{cost} at tick {}",
            self.naive.tick
        );
        if admitted {
            self.windows.admitted(cost, self.naive.bucket_size());
            self.naive.ask(cost);
            self.bucket.spent = take.end();
        } else {
            self.is_promised_the_exact_moment(cost, take, now);
        }
        admitted
    }

    fn is_promised_the_exact_moment(&self, cost: i64, take: Take, now: Moment) {
        let promise = self.bucket.terms.reach(take, now, self.bucket.burst);
        let first = self.naive.first_admission(cost, self.horizon);
        match first {
            // The sum of two floats may come out too low by its last bit, which is less than the nanosecond that it is late then.
            Some(first) => assert!(
                promise.is_some_and(|it| it >= first && it.as_nanos() - first.as_nanos() <= 1),
                "{cost} at tick {}: {promise:?} instead of {first:?}",
                self.naive.tick
            ),
            // The reference may not have looked far enough.
            None => {
                let end = moment(self.naive.tick + self.horizon);
                assert!(promise.is_none_or(|promise| promise > end), "{promise:?}");
            }
        }
        if let Some(promise) = promise.filter(|&promise| promise < Moment::NEVER) {
            assert!(self.bucket.admits(take, promise), "refused when promised");
            let just_before = Moment::from_nanos(promise.as_nanos() - 1);
            assert!(
                !self.bucket.admits(take, just_before),
                "admitted before promised"
            );
        }
    }

    /// Nothing that was admitted in any window was too much.
    pub(super) fn end(self) {
        self.windows.are_within_the_limit();
    }

    fn now(&self) -> Moment {
        moment(self.naive.tick)
    }
}
