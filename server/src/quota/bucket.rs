//! Token bucket in one atomic word, after the generic cell rate algorithm (ITU-T I.371, annex A).

use std::{
    num::NonZeroU32,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use doorman_openapi::Moment;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BucketConfig {
    /// Tokens per second.
    rate: NonZeroU32,
    /// The time to refill the burst, in nanoseconds.
    burst: u64,
}

impl BucketConfig {
    pub(super) fn new(rate: NonZeroU32, burst: NonZeroU32) -> Self {
        Self {
            rate,
            burst: u64::from(burst.get()) * NANOS_PER_SECOND / u64::from(rate.get()),
        }
    }

    /// The time to refill tokens, in nanoseconds; rounded up, so that rounding adds no tokens.
    fn refill(self, tokens: u64) -> u64 {
        let nanos = tokens.saturating_mul(NANOS_PER_SECOND);
        nanos.div_ceil(u64::from(self.rate.get()))
    }
}

/// How far a charge may overdraw the bucket. The overdraft is the reserve of renewals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overdraft {
    None,
    Half,
    Full,
}

/// The time at which the bucket is full again, in nanoseconds. A full bucket equals a new one.
#[derive(Debug, Default)]
pub(super) struct Bucket(AtomicU64);

impl Bucket {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(super) fn is_full(&self, now: Moment) -> bool {
        self.0.load(Relaxed) <= now.as_nanos()
    }

    pub(super) fn at(&self, config: BucketConfig, now: Moment) -> Account<'_> {
        Account {
            bucket: self,
            config,
            now,
        }
    }
}

/// A bucket with its configuration, at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Account<'a> {
    bucket: &'a Bucket,
    config: BucketConfig,
    now: Moment,
}

impl Account<'_> {
    /// Takes tokens of which `prepaid` were taken before. A full bucket admits more than the burst
    /// and charges it whole: nothing else is admitted until that is refilled.
    ///
    /// # Errors
    /// The time until the bucket holds enough tokens, if nobody else takes them.
    pub(super) fn try_take(
        self,
        tokens: u64,
        prepaid: u64,
        overdraft: Overdraft,
    ) -> Result<(), Duration> {
        let cost = self.config.refill(tokens);
        let prepaid = self.config.refill(prepaid);
        let mut full_at = self.bucket.0.load(Relaxed);
        loop {
            let wait = self.wait(cost, full_at.saturating_sub(prepaid), overdraft);
            if !wait.is_zero() {
                return Err(wait);
            }
            let taken = self.later(full_at, cost.saturating_sub(prepaid));
            match self
                .bucket
                .0
                .compare_exchange_weak(full_at, taken, Relaxed, Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(current) => full_at = current,
            }
        }
    }

    /// Takes tokens even if the bucket does not hold them.
    pub(super) fn debit(self, tokens: u64) {
        let cost = self.config.refill(tokens);
        self.update(|full_at| self.later(full_at, cost));
    }

    /// Returns tokens that were taken before.
    pub(super) fn credit(self, tokens: u64) {
        let refund = self.config.refill(tokens);
        self.update(|full_at| full_at.saturating_sub(refund));
    }

    /// The time until the bucket holds so many tokens.
    pub(super) fn wait_for(self, tokens: u64, overdraft: Overdraft) -> Duration {
        let full_at = self.bucket.0.load(Relaxed);
        self.wait(self.config.refill(tokens), full_at, overdraft)
    }

    fn update(self, change: impl Fn(u64) -> u64) {
        self.bucket
            .0
            .fetch_update(Relaxed, Relaxed, |full_at| Some(change(full_at)))
            .ok();
    }

    /// When the bucket is full again after such a charge.
    fn later(self, full_at: u64, cost: u64) -> u64 {
        full_at.max(self.now.as_nanos()).saturating_add(cost)
    }

    fn wait(self, cost: u64, full_at: u64, overdraft: Overdraft) -> Duration {
        let burst = self.config.burst;
        let limit = match overdraft {
            Overdraft::None => burst,
            Overdraft::Half => burst.saturating_add(burst / 2),
            Overdraft::Full => burst.saturating_mul(2),
        };
        let missing = full_at.saturating_sub(self.now.as_nanos());
        let needed = missing.saturating_add(cost.min(burst));
        Duration::from_nanos(needed.saturating_sub(limit))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn config(rate: u32, burst: u32) -> BucketConfig {
        BucketConfig::new(rate.try_into().unwrap(), burst.try_into().unwrap())
    }

    /// Straightforward model of a bucket, in billionths of a token. An overdraft is negative.
    struct Model {
        rate: i128,
        burst: i128,
        tokens: i128,
        at: u64,
    }

    impl Model {
        fn take(&mut self, tokens: u64, overdraft: Overdraft, now: u64) -> bool {
            let refilled = i128::from(now - self.at) * self.rate;
            self.at = now;
            self.tokens = (self.tokens + refilled).min(self.burst);
            let cost = i128::from(tokens) * i128::from(NANOS_PER_SECOND);
            let bottom = match overdraft {
                Overdraft::None => 0,
                Overdraft::Half => -self.burst / 2,
                Overdraft::Full => -self.burst,
            };
            let admitted = self.tokens - cost.min(self.burst) >= bottom;
            if admitted {
                self.tokens -= cost;
            }
            admitted
        }
    }

    fn overdrafts() -> impl Strategy<Value = Overdraft> {
        prop_oneof![
            Just(Overdraft::None),
            Just(Overdraft::Half),
            Just(Overdraft::Full)
        ]
    }

    proptest! {
        /// These rates divide a second, so nothing is rounded.
        #[test]
        fn bucket_agrees_with_its_model(
            rate in prop::sample::select(vec![1_u32, 2, 5, 8, 1_000, 400_000, 1_000_000]),
            burst in 1..2_000_000_u32,
            charges in prop::collection::vec((0..3_000_000_000_u64, 0..1_000_000_u64, overdrafts()), 1..60)
        ) {
            let (config, bucket) = (config(rate, burst), Bucket::default());
            let full = i128::from(burst) * i128::from(NANOS_PER_SECOND);
            let mut model = Model { rate: rate.into(), burst: full, tokens: full, at: 0 };
            let mut now = 0;
            for (later, tokens, overdraft) in charges {
                now += later;
                let account = bucket.at(config, Moment::from_nanos(now));
                let taken = account.try_take(tokens, 0, overdraft);
                prop_assert_eq!(taken.is_ok(), model.take(tokens, overdraft, now));
            }
        }

        /// The burst, the overdraft and what was refilled.
        #[test]
        fn rounding_never_adds_tokens(
            rate in 1..u32::MAX, burst in 1..u32::MAX,
            charges in prop::collection::vec((0..2_000_000_000_u64, 1..100_000_u64, overdrafts()), 1..60)
        ) {
            let (config, bucket) = (config(rate, burst), Bucket::default());
            let (mut now, mut given) = (0, 0_u128);
            for (later, tokens, overdraft) in charges {
                now += later;
                let tokens = tokens.min(burst.into());
                let account = bucket.at(config, Moment::from_nanos(now));
                if account.try_take(tokens, 0, overdraft).is_ok() {
                    given += u128::from(tokens);
                }
                let refilled = u128::from(now) * u128::from(rate);
                let most = 2 * u128::from(burst) * u128::from(NANOS_PER_SECOND) + refilled;
                prop_assert!(given * u128::from(NANOS_PER_SECOND) <= most);
            }
        }

        #[test]
        fn prepaying_a_part_changes_no_decision_and_no_total(
            rate in prop::sample::select(vec![1_u32, 2, 5, 8, 1_000, 400_000]),
            burst in 1..1_000_000_u32, before in 0..2_000_000_u64,
            paid in 1..1_000_u64, more in 0..1_000_000_u64, overdraft in overdrafts()
        ) {
            let config = config(rate, burst);
            let now = Moment::from_nanos(1);
            let [whole, parts] = [Bucket::default(), Bucket::default()].map(|bucket| {
                bucket.at(config, now).debit(before);
                bucket
            });
            let taken = whole.at(config, now).try_take(paid + more, 0, overdraft);
            let account = parts.at(config, now);
            account.debit(paid);
            prop_assert_eq!(account.try_take(paid + more, paid, overdraft), taken);
            if taken.is_err() {
                account.credit(paid);
            }
            prop_assert_eq!(parts.0.into_inner().max(1), whole.0.into_inner().max(1));
        }

        #[test]
        fn wait_is_exact(
            rate in 1..2_000_000_u32, burst in 1..2_000_000_u32, before in 1..5_000_000_u64,
            tokens in 1..5_000_000_u64, overdraft in overdrafts()
        ) {
            let (config, bucket) = (config(rate, burst), Bucket::default());
            let now = Moment::from_nanos(1);
            bucket.at(config, now).try_take(before, 0, overdraft).unwrap();
            if let Err(wait) = bucket.at(config, now).try_take(tokens, 0, overdraft) {
                let early = bucket.at(config, now.after(wait - Duration::from_nanos(1)));
                prop_assert!(early.try_take(tokens, 0, overdraft).is_err());
                let on_time = bucket.at(config, now.after(wait));
                prop_assert!(on_time.wait_for(tokens, overdraft).is_zero());
                prop_assert!(on_time.try_take(tokens, 0, overdraft).is_ok());
            }
        }
    }

    #[test]
    fn charges_without_overdraft_cannot_reach_the_reserve() {
        let (config, bucket) = (config(10, 100), Bucket::default());
        let now = bucket.at(config, Moment::from_nanos(1));
        while now.try_take(1, 0, Overdraft::None).is_ok() {}
        for _ in 0..100 {
            now.try_take(1, 0, Overdraft::Full).unwrap();
        }
        assert!(now.try_take(1, 0, Overdraft::Full).is_err());
        // The reserve is refilled first.
        let later = now.now.after(Duration::from_secs(10));
        let later = bucket.at(config, later);
        assert!(later.try_take(1, 0, Overdraft::None).is_err());
        assert!(later.try_take(1, 0, Overdraft::Full).is_ok());
    }

    #[test]
    fn concurrent_charges_take_no_more_than_the_burst() {
        let (config, bucket) = (config(1, 1_000), Bucket::default());
        let now = bucket.at(config, Moment::from_nanos(1));
        let take = || (0..1_000).filter(|_| now.try_take(1, 0, Overdraft::None).is_ok());
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| take().count())).collect();
            threads.into_iter().map(|it| it.join().unwrap()).sum()
        });
        assert_eq!(taken, 1_000);
    }
}
