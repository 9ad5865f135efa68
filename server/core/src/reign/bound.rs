//! The time until which durable storage covers leases: the data directory, or etcd. No response
//! reports a lease beyond it.

use std::time::Duration;

use doorman_openapi::{Capacity, Moment};

use super::{terms::DurableTerms, writes::BoundWrites};
use crate::ledger::{Grant, GrantingTerms, KnownTerms};

/// How far ahead of the latest lease the bound is written.
const AHEAD: Duration = Duration::from_secs(3);
/// The bound is written again when less than this is left.
const MIN_AHEAD: Duration = Duration::from_millis(1500);

/// The end of the latest lease and the length of the longest one, and the part of both that the
/// next master will know of. Requests raise the first; the election writes it and raises the
/// second.
#[derive(Debug, Clone)]
pub struct DurableBound {
    /// The latest end of all granted leases.
    needed: Moment,
    /// The longest booking of any lease, in nanoseconds.
    longest: u64,
    /// No lease may be reported beyond it, nor be booked for longer.
    written: Bound,
    /// `None`: the terms of leases are stored elsewhere.
    terms: Option<DurableTerms>,
    writes: BoundWrites,
}

/// The end of leases and the length of the longest one: the next master must know of leases so late
/// and so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Their latest end.
    pub until: Moment,
    /// The longest of their bookings, in nanoseconds.
    pub longest: u64,
}

impl Bound {
    fn covers(&self, needed: &Self) -> bool {
        needed.until <= self.until && needed.longest <= self.longest
    }
}

impl DurableBound {
    /// Starts with the bound that is durable, and the longest booking of any earlier lease, in
    /// nanoseconds, which is durable too.
    #[must_use]
    pub fn new(written: Moment, longest: u64) -> Self {
        Self {
            needed: Moment::ORIGIN,
            longest,
            written: Bound {
                until: written,
                longest,
            },
            terms: None,
            writes: BoundWrites::default(),
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

    /// The terms of leases, to write them.
    pub fn terms_mut(&mut self) -> Option<&mut DurableTerms> {
        self.terms.as_mut()
    }

    /// Requires that these terms become durable.
    pub fn note_terms(&mut self, terms: GrantingTerms) {
        let ends = self.needed.max(terms.terms_before_until);
        if let Some(durable) = &mut self.terms {
            durable.note(terms, ends);
        }
    }

    /// How much of the terms of these leases is durable.
    #[must_use]
    pub fn known_terms(&self, granted: &[Grant]) -> KnownTerms {
        let terms = self.terms.as_ref();
        terms.map_or(KnownTerms::All, |terms| terms.known(granted))
    }

    /// Records granted leases. Returns the bound to write before they are reported; `None` if the
    /// durable one covers them.
    pub fn require(&mut self, granted: &[Grant]) -> Option<Bound> {
        let leases = || granted.iter().filter(|it| it.capacity > Capacity::ZERO);
        let needed = Bound {
            until: leases().map(|it| it.booked_until).max()?,
            longest: leases().map(Grant::booking_nanos).max()?,
        };
        self.longest = self.longest.max(needed.longest);
        self.needed = self.needed.max(needed.until);
        (!self.covers(&needed)).then_some(needed)
    }

    /// Whether the durable bound covers leases that need this one.
    #[must_use]
    pub fn covers(&self, needed: &Bound) -> bool {
        self.written.covers(needed)
    }

    /// Requires that the bound covers leases of earlier masters.
    pub fn require_until(&mut self, ends: Moment) {
        self.needed = self.needed.max(ends);
    }

    /// Requires that the first bound has this length, in nanoseconds, of leases of earlier masters.
    pub fn require_longest(&mut self, longest: u64) {
        self.longest = self.longest.max(longest);
    }

    /// Shortens leases granted at `handled` to the bound. `None` if it covers no lease at all:
    /// without a response a holder keeps the lease of an earlier master, which a response without
    /// capacity would end.
    #[must_use]
    pub fn shorten(&self, granted: Vec<Grant>, handled: Moment) -> Option<Vec<Grant>> {
        let Bound { until, longest } = self.written;
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
        self.written.until
    }

    /// The bound to write now; `None` while the durable one is enough.
    #[must_use]
    pub fn due(&self) -> Option<Bound> {
        let Self {
            needed,
            longest,
            written,
            ..
        } = *self;
        let is_due = needed > Moment::ORIGIN
            && (written.until < needed.after(MIN_AHEAD) || written.longest < longest);
        // It replaces the durable one, which may be later although its bookings are shorter.
        is_due.then(|| Bound {
            until: needed.after(AHEAD).max(written.until),
            longest,
        })
    }

    /// Records a bound that is durable.
    pub fn record_written(&mut self, bound: Bound) {
        self.writes.written += 1;
        self.written = Bound {
            until: self.written.until.max(bound.until),
            longest: self.written.longest.max(bound.longest),
        };
    }

    /// Records that a bound could not be written.
    pub fn record_failure(&mut self) {
        self.writes.failed += 1;
    }

    /// How often it was written.
    #[must_use]
    pub fn writes(&self) -> BoundWrites {
        self.writes
    }
}
