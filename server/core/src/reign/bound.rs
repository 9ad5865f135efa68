//! The time until which durable storage covers leases: the data directory, or etcd. No response
//! reports a lease beyond it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use doorman_openapi::{Capacity, Moment};
use tokio::{
    sync::{Notify, watch},
    time::{Duration, timeout},
};

use super::{terms::DurableTerms, writes::BoundWrites};
use crate::ledger::{Grant, GrantingTerms, KnownTerms};

/// How far ahead of the latest lease the bound is written.
const AHEAD: Duration = Duration::from_secs(3);
/// The bound is written again when less than this is left.
const MIN_AHEAD: Duration = Duration::from_millis(1500);
/// How long a response waits for the storage before its leases are shortened to the bound.
const PATIENCE: Duration = Duration::from_secs(1);

/// The end of the latest lease and the length of the longest one, and the part of both that the
/// next master will know of. Requests raise the first; the election writes it and raises the
/// second.
#[derive(Debug)]
pub struct DurableBound {
    /// The latest end of all granted leases, in nanoseconds on the clock.
    needed: AtomicU64,
    /// The longest booking of any lease, in nanoseconds.
    longest: AtomicU64,
    written: watch::Sender<WrittenBound>,
    /// `None`: the terms of leases are stored elsewhere.
    terms: Option<DurableTerms>,
    urgent: Notify,
    succeeded: AtomicU64,
    failed: AtomicU64,
}

/// A bound that should be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueBound {
    /// The end to write: ahead of the latest lease.
    pub until: Moment,
    /// The longest booking of any lease, in nanoseconds.
    pub longest: u64,
}

/// A bound that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenBound {
    /// No lease may be reported beyond it.
    pub until: Moment,
    /// No lease may be booked for longer, in nanoseconds.
    pub longest: u64,
}

/// The bound that leases need before they are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeededBound {
    /// Their latest end.
    pub ends: Moment,
    /// The longest of their bookings, in nanoseconds.
    pub longest: u64,
}

impl WrittenBound {
    fn covers(&self, needed: &NeededBound) -> bool {
        needed.ends <= self.until && needed.longest <= self.longest
    }
}

impl DurableBound {
    /// Starts with the bound that is durable, and the longest booking of any earlier lease, in
    /// nanoseconds, which is durable too.
    #[must_use]
    pub fn new(written: Moment, longest: u64) -> Self {
        Self {
            needed: AtomicU64::new(0),
            longest: AtomicU64::new(longest),
            written: watch::Sender::new(WrittenBound {
                until: written,
                longest,
            }),
            terms: None,
            urgent: Notify::new(),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Stores the terms of leases, too.
    #[must_use]
    pub fn with_terms(self, terms: DurableTerms) -> Self {
        let terms = Some(terms);
        Self { terms, ..self }
    }

    /// The terms of leases.
    #[must_use]
    pub fn terms(&self) -> Option<&DurableTerms> {
        self.terms.as_ref()
    }

    /// Requires that these terms become durable.
    pub fn note_terms(&self, terms: GrantingTerms) {
        if let Some(durable) = &self.terms {
            let needed = Moment::from_nanos(self.needed.load(Relaxed));
            let ends = needed.max(terms.terms_before_until());
            durable.note(terms, ends);
        }
    }

    /// Whether leases may have to wait until their terms are durable.
    #[must_use]
    pub fn has_new_terms(&self) -> bool {
        self.terms.as_ref().is_some_and(|terms| !terms.is_stored())
    }

    /// Returns leases once their terms are durable. `None` if that takes longer than a second: the
    /// next master would not know their unit.
    pub async fn cover_terms(&self, granted: Vec<Grant>) -> Option<Vec<Grant>> {
        if let Some(terms) = &self.terms
            && terms.known(&granted) < KnownTerms::All
        {
            self.urgent.notify_one();
            if !terms.wait(&granted, PATIENCE).await {
                return None;
            }
        }
        Some(granted)
    }

    /// Returns leases granted at `handled` once the bound covers them, or shortened to the bound
    /// when the write takes longer than a second. Renewals are covered already; only a lease that
    /// ends seconds after all before it, such as the first one, waits. `None` as
    /// [`shorten`](Self::shorten) does.
    pub async fn cover(&self, granted: Vec<Grant>, handled: Moment) -> Option<Vec<Grant>> {
        let Some(needed) = self.require(&granted) else {
            return Some(granted);
        };
        self.urgent.notify_one();
        let mut written = self.written.subscribe();
        drop(
            timeout(
                PATIENCE,
                written.wait_for(|written| written.covers(&needed)),
            )
            .await,
        );
        self.shorten(granted, handled)
    }

    /// Records granted leases. Returns the bound to write before they are reported; `None` if the
    /// durable one covers them.
    pub fn require(&self, granted: &[Grant]) -> Option<NeededBound> {
        let leases = || granted.iter().filter(|it| it.capacity > Capacity::ZERO);
        let needed = NeededBound {
            ends: leases().map(|it| it.booked_until).max()?,
            longest: leases().map(Grant::booking_nanos).max()?,
        };
        self.longest.fetch_max(needed.longest, Relaxed);
        self.needed.fetch_max(needed.ends.as_nanos(), Relaxed);
        (!self.covers(&needed)).then_some(needed)
    }

    /// Whether the durable bound covers leases that need this one.
    #[must_use]
    pub fn covers(&self, needed: &NeededBound) -> bool {
        self.written.borrow().covers(needed)
    }

    /// Requires that the bound covers leases of earlier masters.
    pub fn require_until(&self, ends: Moment) {
        self.needed.fetch_max(ends.as_nanos(), Relaxed);
    }

    /// Requires that the first bound has this length, in nanoseconds, of leases of earlier masters.
    pub fn require_longest(&self, longest: u64) {
        self.longest.fetch_max(longest, Relaxed);
    }

    /// Shortens leases granted at `handled` to the bound. `None` if it covers no lease at all:
    /// without a response a holder keeps the lease of an earlier master, which a response without
    /// capacity would end.
    #[must_use]
    pub fn shorten(&self, granted: Vec<Grant>, handled: Moment) -> Option<Vec<Grant>> {
        let WrittenBound { until, longest } = *self.written.borrow();
        let is_uncovered =
            |it: &Grant| it.capacity > Capacity::ZERO && (until < it.booked_until || longest == 0);
        if (until <= handled || longest == 0) && granted.iter().any(is_uncovered) {
            return None;
        }
        let shortened = granted.into_iter();
        Some(
            shortened
                .map(|it| it.capped_at(until, handled).capped_to(longest))
                .collect(),
        )
    }

    /// The durable bound.
    #[must_use]
    pub fn get(&self) -> Moment {
        self.written.borrow().until
    }

    /// The bound to write now; `None` while the durable one is enough.
    #[must_use]
    pub fn due(&self) -> Option<DueBound> {
        let needed = Moment::from_nanos(self.needed.load(Relaxed));
        let longest = self.longest.load(Relaxed);
        let written = *self.written.borrow();
        let is_due = needed > Moment::ORIGIN
            && (written.until < needed.after(MIN_AHEAD) || written.longest < longest);
        // It replaces the durable one, which may be later although its bookings are shorter.
        is_due.then(|| DueBound {
            until: needed.after(AHEAD).max(written.until),
            longest,
        })
    }

    /// Records a bound that is durable, and wakes the responses that wait for it.
    pub fn record_written(&self, bound: WrittenBound) {
        self.succeeded.fetch_add(1, Relaxed);
        self.written.send_if_modified(|written| {
            let before = *written;
            written.until = before.until.max(bound.until);
            written.longest = before.longest.max(bound.longest);
            *written != before
        });
    }

    /// Records that a bound could not be written.
    pub fn record_failure(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    /// How often it was written.
    #[must_use]
    pub fn writes(&self) -> BoundWrites {
        BoundWrites {
            written: self.succeeded.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }

    /// Waits until a response waits for the bound.
    pub async fn urgent(&self) {
        self.urgent.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use doorman_config::Document;
    use doorman_openapi::{CapacityRequest, Epoch};

    use super::*;
    use crate::ledger::{Ledger, Predecessor, Settings, UnmatchedPolicy};

    const NOW: Moment = Moment::from_nanos(1_000_000_000_000);
    const LONGEST: u64 = 63_000_000_000;

    /// A lease of a minute, booked for 63 s.
    fn lease() -> Vec<Grant> {
        let settings = Settings {
            max_leases: 10,
            unmatched: UnmatchedPolicy::Grant,
            predecessor: Predecessor::None,
            epoch: Epoch::ZERO,
        };
        let mut ledger = Ledger::new(Arc::new(Document::built_in()), settings, NOW);
        let request = r#"{"client_id":"c","resources":[{"resource_id":"db","wants":5}]}"#;
        let request: CapacityRequest = serde_json::from_str(request).unwrap();
        ledger.refresh(&request.clone().into(), NOW)
    }

    #[tokio::test(start_paused = true)]
    async fn covered_lease_is_reported_immediately() {
        let bound = DurableBound::new(NOW.after_seconds(63.0), LONGEST);
        let reported = bound.cover(lease(), NOW).await.unwrap();
        assert_eq!(reported[0].lease_length.get(), 60.0);
        // The latest lease: the bound is written further ahead.
        let due = DueBound {
            until: NOW.after_seconds(66.0),
            longest: LONGEST,
        };
        assert_eq!(bound.due(), Some(due));
    }

    #[tokio::test(start_paused = true)]
    async fn uncovered_lease_waits_for_the_disk() {
        let bound = Arc::new(DurableBound::new(NOW, 0));
        // A server that grants nothing writes nothing.
        assert_eq!(bound.due(), None);
        let waits = tokio::spawn({
            let bound = Arc::clone(&bound);
            async move { bound.cover(lease(), NOW).await }
        });
        bound.urgent().await;
        let next = bound.due().unwrap().until;
        assert_eq!(next, NOW.after_seconds(66.0));
        assert!(!waits.is_finished());
        bound.record_written(WrittenBound {
            until: next,
            longest: LONGEST,
        });
        assert_eq!(waits.await.unwrap().unwrap()[0].lease_length.get(), 60.0);
        assert_eq!(bound.due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn leases_shorten_then_expire_when_writes_fail() {
        let bound = DurableBound::new(NOW.after_seconds(21.0), LONGEST);
        let reported = bound.cover(lease(), NOW).await.unwrap();
        assert!(
            (reported[0].lease_length.get() - 20.0).abs() < 1e-6,
            "{reported:?}"
        );
        // The holder keeps the lease that it has.
        let bound = DurableBound::new(NOW, LONGEST);
        assert!(bound.cover(lease(), NOW).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn lease_longer_than_all_before_waits_for_the_disk() {
        // The end is covered, by another lease that ends later.
        let bound = Arc::new(DurableBound::new(NOW.after_seconds(300.0), 21_000_000_000));
        let waits = tokio::spawn({
            let bound = Arc::clone(&bound);
            async move { bound.cover(lease(), NOW).await }
        });
        bound.urgent().await;
        // The write replaces the bound, whose end stays.
        let due = DueBound {
            until: NOW.after_seconds(300.0),
            longest: LONGEST,
        };
        assert_eq!(bound.due(), Some(due));
        bound.record_written(WrittenBound {
            until: Moment::ORIGIN,
            longest: LONGEST,
        });
        assert_eq!(waits.await.unwrap().unwrap()[0].lease_length.get(), 60.0);

        // It is shortened to the longest that is durable, or withheld.
        let bound = DurableBound::new(NOW.after_seconds(300.0), 21_000_000_000);
        let reported = bound.cover(lease(), NOW).await.unwrap();
        assert!(
            (reported[0].lease_length.get() - 20.0).abs() < 1e-6,
            "{reported:?}"
        );
        let bound = DurableBound::new(NOW.after_seconds(300.0), 0);
        assert!(bound.cover(lease(), NOW).await.is_none());
    }
}
