//! The buckets of all callers, in memory that does not grow.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use doorman_openapi::Moment;

use super::bucket::Bucket;

/// How many callers find a place in one set.
const WAYS: usize = 8;

/// How many sets there are: 65,536 callers in some 1.1 MiB.
const SETS: usize = 8_192;

/// Names a caller: a hash with a seed of this process, so that nobody can aim at the place of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BucketKey(pub(super) u64);

/// A bucket for each caller that has spent anything of it.
///
/// Only a bucket that is full gives its place to another caller, since it says no more than a new one: nobody can have a spent bucket
/// forgotten, however many callers are invented, and nothing is lost with what is forgotten. Callers that find no place, because all of
/// their set are being spent from, share one.
///
/// To find a bucket takes no lock and no memory. Where two threads change one place at the same time, what one request takes may be
/// taken from the bucket of another caller, or of none.
#[derive(Debug)]
pub(super) struct BucketTable(Box<[Set]>);

#[derive(Debug, Default)]
struct Set {
    keys: [AtomicU64; WAYS],
    buckets: [Bucket; WAYS],
    shared: Bucket,
}

impl BucketTable {
    pub(super) fn new() -> Self {
        Self((0..SETS).map(|_| Set::default()).collect())
    }

    /// The bucket of a caller.
    pub(super) fn bucket(&self, key: BucketKey, now: Moment) -> &Bucket {
        static NOWHERE: Bucket = Bucket::new();
        let BucketKey(key) = key;
        let index = usize::try_from(key % SETS as u64).unwrap_or_default();
        let Some(set) = self.0.get(index) else {
            return &NOWHERE;
        };
        let known = set.keys.iter().zip(&set.buckets);
        if let Some((_, bucket)) = known.clone().find(|(it, _)| it.load(Relaxed) == key) {
            return bucket;
        }
        let takes = |it: &AtomicU64| {
            let before = it.load(Relaxed);
            it.compare_exchange(before, key, Relaxed, Relaxed).is_ok()
        };
        let mut free = known.filter(|(_, bucket)| bucket.is_full(now));
        free.find(|(it, _)| takes(it))
            .map_or(&set.shared, |(_, bucket)| bucket)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::bucket::{Depth, Pace},
        *,
    };

    fn pace() -> Pace {
        Pace::new(1.try_into().unwrap(), 10.try_into().unwrap())
    }

    fn now() -> Moment {
        Moment::from_nanos(1)
    }

    fn spend(table: &BucketTable, key: u64, tokens: u64) -> bool {
        let bucket = table.bucket(BucketKey(key), now());
        bucket.take(tokens, pace(), Depth::Burst, now()).is_ok()
    }

    #[test]
    fn each_caller_has_its_own() {
        let table = BucketTable::new();
        for key in 0..1_000 {
            assert!(spend(&table, key, 10), "{key}");
        }
        for key in 0..1_000 {
            assert!(!spend(&table, key, 1), "{key}");
        }
    }

    #[test]
    fn no_flood_of_invented_callers_has_a_spent_bucket_forgotten() {
        let table = BucketTable::new();
        assert!(spend(&table, 7, 10));
        // They fill the very set, and the rest of the table.
        for key in 0..1_000_000_u64 {
            spend(&table, key.wrapping_mul(0x9e37_79b9_7f4a_7c15), 10);
            spend(&table, 7 + key * SETS as u64, 10);
        }
        assert!(!spend(&table, 7, 1));
        // Those who find no place share one.
        let late = 7 + 2_000_000 * SETS as u64;
        assert!(!spend(&table, late, 1));
        assert!(std::ptr::eq(
            table.bucket(BucketKey(late), now()),
            table.bucket(BucketKey(late + SETS as u64), now())
        ));
    }

    #[test]
    fn callers_find_places_again_when_those_of_others_are_full() {
        let table = BucketTable::new();
        for number in 0..100 {
            spend(&table, number * SETS as u64, 10);
        }
        let later = now().after(Duration::from_secs(10));
        let one = table.bucket(BucketKey(SETS as u64 * 1_000), later);
        assert!(one.take(10, pace(), Depth::Burst, later).is_ok());
        let other = table.bucket(BucketKey(SETS as u64 * 1_001), later);
        assert!(!std::ptr::eq(one, other));
        assert!(other.take(10, pace(), Depth::Burst, later).is_ok());
    }

    #[test]
    fn the_memory_is_that_of_all_places_and_no_more() {
        assert!(SETS * size_of::<Set>() <= 1_200_000);
    }
}
