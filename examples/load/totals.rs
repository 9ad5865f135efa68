//! Counting what was offered to a target and what it answered.

use std::{
    iter::Sum,
    ops::Add,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Running totals since a load began. What is offered and not yet answered is in no other count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Requests that fell due.
    pub offered: u64,
    /// Answers 200.
    pub admitted: u64,
    /// Answers 429: the limit is spent.
    pub refused: u64,
    /// Answers 503: the service has no lease, or no room.
    pub unavailable: u64,
    /// Whatever else: another status, a broken connection, or no connection free for a second.
    pub failed: u64,
}

impl Totals {
    /// What was added since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    fn with(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            offered: each(self.offered, other.offered),
            admitted: each(self.admitted, other.admitted),
            refused: each(self.refused, other.refused),
            unavailable: each(self.unavailable, other.unavailable),
            failed: each(self.failed, other.failed),
        }
    }
}

impl Add for Totals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }
}

impl Sum for Totals {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

/// The totals of one target while its connections count.
#[derive(Debug, Default)]
pub(super) struct Counters {
    offered: AtomicU64,
    admitted: AtomicU64,
    refused: AtomicU64,
    unavailable: AtomicU64,
    failed: AtomicU64,
}

impl Counters {
    pub(super) fn offered(&self, requests: usize) {
        self.offered.fetch_add(requests as u64, Relaxed);
    }

    pub(super) fn failed(&self, requests: usize) {
        self.failed.fetch_add(requests as u64, Relaxed);
    }

    /// Counts one answer by its status; `None` when there was none.
    pub(super) fn answered(&self, status: Option<u16>) {
        let counter = match status {
            Some(200) => &self.admitted,
            Some(429) => &self.refused,
            Some(503) => &self.unavailable,
            Some(_) | None => &self.failed,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn totals(&self) -> Totals {
        Totals {
            offered: self.offered.load(Relaxed),
            admitted: self.admitted.load(Relaxed),
            refused: self.refused.load(Relaxed),
            unavailable: self.unavailable.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }
}
