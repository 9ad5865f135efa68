//! The limiters that the worker leases for, by their numbers, and the timers of their samples.

use std::time::Duration;

use doorman_holder::{Demand, Dense, LeaseStatus, Names, ResourceIndex, TimerHeap};
use doorman_openapi::{Moment, ResourceId};

use super::tracked::{Publication, Sample, TrackedLimiter};
use crate::limiter::{Limiter, LimiterTable, Shortage};

/// The only lane of the sampling timers.
const SAMPLES: u8 = 0;

#[derive(Debug)]
pub(super) struct Limiters {
    table: LimiterTable,
    tracked: Dense<TrackedLimiter>,
    samples: TimerHeap<1>,
}

impl Limiters {
    pub(super) fn new(table: LimiterTable) -> Self {
        Self {
            table,
            tracked: Dense::default(),
            samples: TimerHeap::default(),
        }
    }

    /// Adds a limiter, in place of a forgotten one of the same number.
    pub(super) fn insert(&mut self, limiter: Limiter<'_>, now: Moment) {
        let index = ResourceIndex::new(limiter.number());
        self.tracked
            .insert(index, TrackedLimiter::new(limiter, now));
        self.schedule(index, Some(now));
    }

    pub(super) fn remove(&mut self, index: ResourceIndex) {
        self.samples.set(index, None);
        self.tracked.remove(index);
    }

    pub(super) fn find(&self, id: &ResourceId) -> Option<ResourceIndex> {
        self.table.find(id)
    }

    pub(super) fn get_mut(
        &mut self,
        index: ResourceIndex,
    ) -> Option<(Limiter<'_>, &mut TrackedLimiter)> {
        let tracked = self.tracked.get_mut(index)?;
        Some((self.table.get(index.number(), tracked.generation), tracked))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Limiter<'_>, &TrackedLimiter)> {
        self.tracked.iter().map(|(index, tracked)| {
            let limiter = self.table.get(index.number(), tracked.generation);
            (limiter, tracked)
        })
    }

    pub(super) fn next_sample_at(&self) -> Moment {
        let first = self.samples.first(SAMPLES);
        first.map_or(Moment::NEVER, |(at, _)| at)
    }

    /// Samples a limiter next at this moment; `None` leaves it to the time that is set.
    fn schedule(&mut self, index: ResourceIndex, next: Option<Moment>) {
        if let Some(next) = next {
            self.samples.set(index, Some((SAMPLES, next)));
        }
    }

    /// Samples the next limiter that is due and clears its demand signal.
    pub(super) fn sample_next(
        &mut self,
        idle_after: Duration,
        now: Moment,
    ) -> Option<(ResourceIndex, Sample)> {
        let (_, index) = self.samples.first(SAMPLES).filter(|(at, _)| *at <= now)?;
        let (limiter, tracked) = self.get_mut(index)?;
        let (sample, next) = tracked.sample_on_schedule(limiter, idle_after, now);
        self.schedule(index, Some(next));
        Some((index, sample))
    }

    /// Samples a limiter that signals a shortage, and soon again to measure its demand.
    pub(super) fn on_shortage(&mut self, limiter: Limiter<'_>, shortage: Shortage, now: Moment) {
        let index = ResourceIndex::new(limiter.number());
        if let Some(tracked) = self.tracked.get_mut(index)
            && tracked.generation == limiter.generation()
        {
            let next = tracked.on_shortage(limiter, shortage, now);
            self.schedule(index, next);
        }
    }

    /// The demand for a request sent now; `hinted` if the control plane asked for it.
    pub(super) fn report(
        &mut self,
        index: ResourceIndex,
        hinted: bool,
        now: Moment,
    ) -> Option<Demand> {
        let (limiter, tracked) = self.get_mut(index)?;
        let (demand, next) = tracked.report(limiter, hinted, now);
        self.schedule(index, next);
        Some(demand)
    }

    /// Begins to measure the demands for hints. Returns when the last of them is known.
    pub(super) fn measure_for_hints<'a>(
        &mut self,
        ids: impl Iterator<Item = &'a ResourceId>,
        now: Moment,
    ) -> Moment {
        let seconds = ids.filter_map(|id| {
            let index = self.find(id)?;
            let (limiter, tracked) = self.get_mut(index)?;
            tracked.measure_for_hint(limiter, now)
        });
        now.after_seconds(seconds.fold(0.0, f64::max))
    }

    /// Publishes a status to its limiter; `None` if the limiter is forgotten.
    pub(super) fn publish(
        &mut self,
        index: ResourceIndex,
        status: &LeaseStatus,
        now: Moment,
    ) -> Option<Publication> {
        let (limiter, tracked) = self.get_mut(index)?;
        let (publication, next) = tracked.publish(limiter, status, now);
        self.schedule(index, next);
        Some(publication)
    }
}
