//! One token bucket in one word: the generic cell rate algorithm (ITU-T I.371, annex A), on the time at which the bucket is full again.

use std::{
    num::NonZeroU32,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use doorman_openapi::Moment;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// How fast buckets fill, and how much they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    rate: NonZeroU32,
    /// What the burst takes to fill, in nanoseconds.
    whole: u64,
}

impl Pace {
    /// So many tokens a second, of which so many are saved up.
    pub(crate) fn new(rate: NonZeroU32, burst: NonZeroU32) -> Self {
        Self {
            rate,
            whole: u64::from(burst.get()) * NANOS_PER_SECOND / u64::from(rate.get()),
        }
    }

    /// What so many tokens take to fill, in nanoseconds; rounded up, so that rounding never gives anything away.
    fn nanos(self, tokens: u64) -> u64 {
        let nanos = tokens.saturating_mul(NANOS_PER_SECOND);
        nanos.div_ceil(u64::from(self.rate.get()))
    }
}

/// How deep into the bucket somebody may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// To the bottom of the burst.
    Burst,
    /// Half as deep again: the others cannot reach it, nor spend all that is below them.
    Refusals,
    /// As deep again as the burst.
    Reserve,
}

impl Depth {
    fn nanos(self, pace: Pace) -> u64 {
        match self {
            Self::Burst => pace.whole,
            Self::Refusals => pace.whole.saturating_add(pace.whole / 2),
            Self::Reserve => pace.whole.saturating_mul(2),
        }
    }
}

/// The bucket is spent; after so long there is enough in it, if nobody else takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) wait: Duration,
}

/// A bucket. It holds when it is full again, in nanoseconds of the clock: one that is full says nothing of its past, and is as good as
/// a new one.
#[derive(Debug, Default)]
pub(super) struct Bucket(AtomicU64);

impl Bucket {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Takes tokens out, if there are so many. A cost above the burst is admitted when the bucket is full, and charged whole: nothing else
    /// is admitted until that has come back.
    pub(super) fn take(
        &self,
        tokens: u64,
        pace: Pace,
        depth: Depth,
        now: Moment,
    ) -> Result<(), Spent> {
        self.take_rest(tokens, 0, pace, depth, now)
    }

    /// The same where a part of the tokens, `paid`, has been taken before: they count as if they were still there.
    pub(super) fn take_rest(
        &self,
        tokens: u64,
        paid: u64,
        pace: Pace,
        depth: Depth,
        now: Moment,
    ) -> Result<(), Spent> {
        let (cost, paid) = (pace.nanos(tokens), pace.nanos(paid));
        let mut full_at = self.0.load(Relaxed);
        loop {
            if let Some(wait) = wait(cost, full_at.saturating_sub(paid), pace, depth, now) {
                return Err(Spent { wait });
            }
            let rest = cost.saturating_sub(paid);
            let taken = full_at.max(now.as_nanos()).saturating_add(rest);
            match self
                .0
                .compare_exchange_weak(full_at, taken, Relaxed, Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(meanwhile) => full_at = meanwhile,
            }
        }
    }

    /// Takes tokens out, be there so many or not.
    pub(super) fn owe(&self, tokens: u64, pace: Pace, now: Moment) {
        let cost = pace.nanos(tokens);
        let owed = |full_at: u64| Some(full_at.max(now.as_nanos()).saturating_add(cost));
        self.0.fetch_update(Relaxed, Relaxed, owed).ok();
    }

    /// Puts tokens back that were taken before.
    pub(super) fn give_back(&self, tokens: u64, pace: Pace) {
        let back = pace.nanos(tokens);
        let fuller = |full_at: u64| Some(full_at.saturating_sub(back));
        self.0.fetch_update(Relaxed, Relaxed, fuller).ok();
    }

    /// Whether so much could be taken.
    pub(super) fn has(
        &self,
        tokens: u64,
        pace: Pace,
        depth: Depth,
        now: Moment,
    ) -> Result<(), Spent> {
        match wait(pace.nanos(tokens), self.0.load(Relaxed), pace, depth, now) {
            None => Ok(()),
            Some(wait) => Err(Spent { wait }),
        }
    }

    pub(super) fn is_full(&self, now: Moment) -> bool {
        self.0.load(Relaxed) <= now.as_nanos()
    }
}

/// How long it takes until so much is there; `None` when it is.
fn wait(cost: u64, full_at: u64, pace: Pace, depth: Depth, now: Moment) -> Option<Duration> {
    let missing = full_at.saturating_sub(now.as_nanos());
    let depth = depth.nanos(pace);
    let wait = missing
        .saturating_add(cost.min(pace.whole))
        .saturating_sub(depth);
    (wait > 0).then(|| Duration::from_nanos(wait))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pace(rate: u32, burst: u32) -> Pace {
        Pace::new(rate.try_into().unwrap(), burst.try_into().unwrap())
    }

    /// A bucket as one describes it: so many tokens, in billionths, which come back at the rate. Those of the reserve are below zero.
    struct Reference {
        rate: i128,
        burst: i128,
        left: i128,
        at: u64,
    }

    impl Reference {
        fn take(&mut self, tokens: u64, depth: Depth, now: u64) -> bool {
            let came = i128::from(now - self.at) * self.rate;
            self.at = now;
            self.left = (self.left + came).min(self.burst);
            let cost = i128::from(tokens) * i128::from(NANOS_PER_SECOND);
            let bottom = match depth {
                Depth::Burst => 0,
                Depth::Refusals => -self.burst / 2,
                Depth::Reserve => -self.burst,
            };
            let admitted = self.left - cost.min(self.burst) >= bottom;
            if admitted {
                self.left -= cost;
            }
            admitted
        }
    }

    fn depths() -> impl Strategy<Value = Depth> {
        prop_oneof![
            Just(Depth::Burst),
            Just(Depth::Refusals),
            Just(Depth::Reserve)
        ]
    }

    proptest! {
        /// At rates by which a second can be divided, nothing is rounded.
        #[test]
        fn is_the_bucket_that_one_describes(
            rate in prop::sample::select(vec![1_u32, 2, 5, 8, 1_000, 400_000, 1_000_000]),
            burst in 1..2_000_000_u32,
            asked in prop::collection::vec((0..3_000_000_000_u64, 0..1_000_000_u64, depths()), 1..60)
        ) {
            let (pace, bucket) = (pace(rate, burst), Bucket::default());
            let full = i128::from(burst) * i128::from(NANOS_PER_SECOND);
            let mut reference = Reference { rate: rate.into(), burst: full, left: full, at: 0 };
            let mut now = 0;
            for (later, tokens, depth) in asked {
                now += later;
                let taken = bucket.take(tokens, pace, depth, Moment::from_nanos(now));
                prop_assert_eq!(taken.is_ok(), reference.take(tokens, depth, now));
            }
        }

        /// Whatever is rounded: no more than the burst and what came meanwhile is given away, and twice that with the reserve.
        #[test]
        fn gives_no_more_than_there_is(
            rate in 1..u32::MAX, burst in 1..u32::MAX,
            asked in prop::collection::vec((0..2_000_000_000_u64, 1..100_000_u64, depths()), 1..60)
        ) {
            let (pace, bucket) = (pace(rate, burst), Bucket::default());
            let (mut now, mut given) = (0, 0_u128);
            for (later, tokens, depth) in asked {
                now += later;
                let tokens = tokens.min(burst.into());
                if bucket.take(tokens, pace, depth, Moment::from_nanos(now)).is_ok() {
                    given += u128::from(tokens);
                }
                let came = u128::from(now) * u128::from(rate);
                let most = 2 * u128::from(burst) * u128::from(NANOS_PER_SECOND) + came;
                prop_assert!(given * u128::from(NANOS_PER_SECOND) <= most);
            }
        }

        /// Nobody gains or loses by paying a part before: what fits still fits, and in the end as much is gone.
        #[test]
        fn what_is_paid_in_two_parts_is_what_it_is_in_one(
            rate in prop::sample::select(vec![1_u32, 2, 5, 8, 1_000, 400_000]),
            burst in 1..1_000_000_u32, before in 0..2_000_000_u64,
            paid in 1..1_000_u64, more in 0..1_000_000_u64, depth in depths()
        ) {
            let pace = pace(rate, burst);
            let now = Moment::from_nanos(1);
            let [whole, parts] = [Bucket::default(), Bucket::default()].map(|bucket| {
                bucket.owe(before, pace, now);
                bucket
            });
            let taken = whole.take(paid + more, pace, depth, now);
            parts.owe(paid, pace, now);
            prop_assert_eq!(parts.take_rest(paid + more, paid, pace, depth, now), taken);
            if taken.is_err() {
                parts.give_back(paid, pace);
            }
            prop_assert_eq!(parts.0.into_inner().max(1), whole.0.into_inner().max(1));
        }

        #[test]
        fn the_wait_is_exact(
            rate in 1..2_000_000_u32, burst in 1..2_000_000_u32, before in 1..5_000_000_u64, tokens in 1..5_000_000_u64, depth in depths()
        ) {
            let (pace, bucket) = (pace(rate, burst), Bucket::default());
            let now = Moment::from_nanos(1);
            bucket.take(before, pace, depth, now).unwrap();
            if let Err(Spent { wait }) = bucket.take(tokens, pace, depth, now) {
                let early = now.after(wait - Duration::from_nanos(1));
                prop_assert!(bucket.take(tokens, pace, depth, early).is_err());
                prop_assert!(bucket.has(tokens, pace, depth, now.after(wait)).is_ok());
                prop_assert!(bucket.take(tokens, pace, depth, now.after(wait)).is_ok());
            }
        }
    }

    #[test]
    fn others_cannot_reach_the_reserve() {
        let (pace, bucket) = (pace(10, 100), Bucket::default());
        let now = Moment::from_nanos(1);
        while bucket.take(1, pace, Depth::Burst, now).is_ok() {}
        for _ in 0..100 {
            bucket.take(1, pace, Depth::Reserve, now).unwrap();
        }
        assert!(bucket.take(1, pace, Depth::Reserve, now).is_err());
        // And what was taken from it is put back before they are served again.
        let later = now.after(Duration::from_secs(10));
        assert!(bucket.take(1, pace, Depth::Burst, later).is_err());
        assert!(bucket.take(1, pace, Depth::Reserve, later).is_ok());
    }

    #[test]
    fn many_threads_get_no_more_than_one() {
        let (pace, bucket) = (pace(1, 1_000), Bucket::default());
        let now = Moment::from_nanos(1);
        let take = || (0..1_000).filter(|_| bucket.take(1, pace, Depth::Burst, now).is_ok());
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| take().count())).collect();
            threads.into_iter().map(|it| it.join().unwrap()).sum()
        });
        assert_eq!(taken, 1_000);
    }
}
