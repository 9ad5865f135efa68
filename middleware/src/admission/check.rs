//! What a request asks of the limits that apply to it, while it is decided on what is borrowed.

use std::{cell::OnceCell, sync::Arc, time::Duration};

use doorman_openapi::{Moment, ResourceId};
use smallvec::SmallVec;

use super::CompiledLimit;
use crate::{
    Cost,
    limiter::{FirstLease, Found, Limiter, LimiterSettings, Patience, Registry},
};

/// Of many rules only a few apply: the others take up no room.
pub(super) type Questions<'f> = SmallVec<[Question<'f>; 2]>;

/// What a request asks of one limit, and of whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'f> {
    pub(super) armed: &'f Arc<CompiledLimit>,
    pub(super) limiter: &'f Arc<Limiter>,
    pub(super) room: Room,
    /// `None`: it rides on what another limit of the request asks of the same limiter.
    pub(super) demand: Option<Demand>,
}

impl Question<'_> {
    /// Counts the request as admitted at once by this limit.
    pub(super) fn counts_as_admitted(&self, recent: Moment) {
        let Self { armed, limiter, .. } = self;
        armed.meter.admitted(false, || limiter.fallback_at(recent));
    }
}

/// Asks one question more.
///
/// What several limits ask of one limiter is asked by the first of them, for all. Taken one by one it might never be: a bucket that holds
/// no more than one token lets a dear request pass when it is full, but no second one. A limit that is only tried out spends nothing
/// of what another spends in earnest; several of them count what they would refuse if all were in earnest.
#[inline]
pub(super) fn ask<'f>(questions: &mut Questions<'f>, mut question: Question<'f>) {
    for earlier in questions.iter_mut() {
        if !Arc::ptr_eq(earlier.limiter, question.limiter) {
            continue;
        }
        match (earlier.armed.is_shadow(), question.armed.is_shadow()) {
            (true, false) => earlier.demand = None,
            (false, true) => question.demand = None,
            (true, true) | (false, false) => {
                if let Some(demand) = &mut earlier.demand
                    && let Some(more) = question.demand.take()
                {
                    *demand = demand.and(more);
                }
            }
        }
    }
    questions.push(question);
}

/// What is asked for, and of whom.
pub(super) fn demands<'a, 'f>(
    questions: &'a Questions<'f>,
) -> impl Iterator<Item = (&'a Question<'f>, &'a Demand)> {
    let asking =
        |question: &'a Question<'f>| question.demand.as_ref().map(|demand| (question, demand));
    questions.iter().filter_map(asking)
}

/// Whether there was room for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Own,
    Overflow,
}

/// What a request asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    pub(super) cost: Cost,
    /// How long it may wait for the first lease before anything is decided.
    pub(super) wait_for_lease: Duration,
    /// How long it may wait for its turn; `None`: not at all.
    pub(super) at_most: Option<Duration>,
    /// How many may wait already.
    pub(super) queue: u32,
}

impl Demand {
    /// What two limits ask for together, with the patience of the less patient.
    fn and(self, other: Self) -> Self {
        Self {
            cost: self.cost.plus(other.cost),
            wait_for_lease: self.wait_for_lease.max(other.wait_for_lease),
            // Not at all is less than any time.
            at_most: self.at_most.min(other.at_most),
            queue: self.queue.min(other.queue),
        }
    }

    pub(super) fn first_lease(&self) -> FirstLease {
        if self.wait_for_lease.is_zero() {
            FirstLease::NotNeeded
        } else {
            FirstLease::Awaited
        }
    }

    pub(super) fn patience(&self, now: Moment) -> Patience {
        self.at_most
            .map_or(Patience::Never, |at_most| Patience::Until {
                deadline: now.after(at_most),
                queue: self.queue,
            })
    }
}

/// A registry, and what is borrowed from it once something is looked up.
pub(super) struct Look<'r> {
    registry: &'r Registry,
    found: OnceCell<Found<'r>>,
}

impl<'r> Look<'r> {
    pub(super) fn into(registry: &'r Registry) -> Self {
        Self {
            registry,
            found: OnceCell::new(),
        }
    }

    /// The limiter of a key; `None` when there is no room for another.
    pub(super) fn keyed(
        &self,
        id: &[u8],
        settings: &Arc<LimiterSettings>,
    ) -> Option<&Arc<Limiter>> {
        self.registry.keyed(self.found(), id, settings)
    }

    /// The limiter that stands in for the keys without room.
    pub(super) fn overflow(
        &self,
        resource: &ResourceId,
        settings: &Arc<LimiterSettings>,
    ) -> &Arc<Limiter> {
        self.registry.overflow(self.found(), resource, settings)
    }

    fn found(&self) -> &Found<'r> {
        self.found.get_or_init(|| self.registry.found())
    }
}
