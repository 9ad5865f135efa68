//! Fixed-size table of token buckets.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use doorman_openapi::Moment;

use super::bucket::Bucket;

/// Buckets of one set.
const WAYS: usize = 8;

/// 65,536 buckets in about 1.1 MiB.
const SETS: usize = 8_192;

/// A set-associative table with a bucket for each caller that has spent tokens.
///
/// Only a full bucket, which equals a new one, is reassigned: no flood of invented callers makes
/// the table forget a spent one. Callers whose set has no full bucket share one.
///
/// It has no lock: when two threads reassign one bucket, a charge may go to another caller or none.
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

    /// `key` is a seeded hash of caller and class, so that no caller can aim at the bucket of
    /// another.
    pub(super) fn bucket(&self, key: u64, now: Moment) -> &Bucket {
        static UNREACHABLE: Bucket = Bucket::new();
        let index = usize::try_from(key % SETS as u64).unwrap_or_default();
        let Some(set) = self.0.get(index) else {
            return &UNREACHABLE;
        };
        let slots = set.keys.iter().zip(&set.buckets);
        if let Some((_, bucket)) = slots.clone().find(|(slot, _)| slot.load(Relaxed) == key) {
            return bucket;
        }
        let reassign = |slot: &AtomicU64| {
            let before = slot.load(Relaxed);
            slot.compare_exchange(before, key, Relaxed, Relaxed).is_ok()
        };
        slots
            .filter(|(_, bucket)| bucket.is_full(now))
            .find(|(slot, _)| reassign(slot))
            .map_or(&set.shared, |(_, bucket)| bucket)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::bucket::{BucketConfig, Overdraft},
        *,
    };

    fn now() -> Moment {
        Moment::from_nanos(1)
    }

    fn take(bucket: &Bucket, tokens: u64, now: Moment) -> bool {
        let config = BucketConfig::new(1.try_into().unwrap(), 10.try_into().unwrap());
        let account = bucket.at(config, now);
        account.try_take(tokens, 0, Overdraft::None).is_ok()
    }

    fn spend(table: &BucketTable, key: u64, tokens: u64) -> bool {
        take(table.bucket(key, now()), tokens, now())
    }

    #[test]
    fn each_caller_has_its_own_bucket() {
        let table = BucketTable::new();
        for key in 0..1_000 {
            assert!(spend(&table, key, 10), "{key}");
        }
        for key in 0..1_000 {
            assert!(!spend(&table, key, 1), "{key}");
        }
    }

    #[test]
    fn flood_of_callers_never_resets_a_spent_bucket() {
        let table = BucketTable::new();
        assert!(spend(&table, 7, 10));
        // They fill its own set, and the rest of the table.
        for key in 0..1_000_000_u64 {
            spend(&table, key.wrapping_mul(0x9e37_79b9_7f4a_7c15), 10);
            spend(&table, 7 + key * SETS as u64, 10);
        }
        assert!(!spend(&table, 7, 1));
        // Callers without a slot share a bucket.
        let late = 7 + 2_000_000 * SETS as u64;
        assert!(!spend(&table, late, 1));
        assert!(std::ptr::eq(
            table.bucket(late, now()),
            table.bucket(late + SETS as u64, now())
        ));
    }

    #[test]
    fn full_buckets_are_reassigned() {
        let table = BucketTable::new();
        for number in 0..100 {
            spend(&table, number * SETS as u64, 10);
        }
        let later = now().after(Duration::from_secs(10));
        let one = table.bucket(SETS as u64 * 1_000, later);
        assert!(take(one, 10, later));
        let other = table.bucket(SETS as u64 * 1_001, later);
        assert!(!std::ptr::eq(one, other));
        assert!(take(other, 10, later));
    }

    #[test]
    fn table_size_is_bounded() {
        assert!(SETS * size_of::<Set>() <= 1_200_000);
    }
}
