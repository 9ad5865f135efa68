//! All resources of a holder, ordered by when to request them and when their leases end.

use doorman_openapi::{Moment, ResourceId};

use super::resource::Resource;
use crate::index::{Dense, Names, ResourceIndex, Timer, TimerHeap};

/// The most resources in one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLimits {
    pub(super) normal: usize,
    pub(super) rejected: usize,
}

/// Resources that wait to be requested. A flood in one lane costs the others nothing.
#[derive(Debug, Clone, Copy)]
enum Lane {
    Renewal,
    New,
    RejectedRenewal,
    RejectedNew,
}

const LANES: usize = 4;
/// The only lane of the lease ends.
const ENDS: u8 = 0;

/// Every change of a resource goes through here, so that the timers are always right.
#[derive(Debug, Clone)]
pub(super) struct Resources<N> {
    names: N,
    resources: Dense<Resource>,
    due: TimerHeap<LANES>,
    lease_ends: TimerHeap<1>,
}

impl<N: Names> Resources<N> {
    pub(super) fn new(names: N) -> Self {
        Self {
            names,
            resources: Dense::default(),
            due: TimerHeap::default(),
            lease_ends: TimerHeap::default(),
        }
    }

    pub(super) fn find(&self, id: &ResourceId) -> Option<ResourceIndex> {
        self.names.find(id)
    }

    pub(super) fn id(&self, index: ResourceIndex) -> Option<ResourceId> {
        self.names.id(index)
    }

    pub(super) fn get(&self, index: ResourceIndex) -> Option<&Resource> {
        self.resources.get(index)
    }

    pub(super) fn get_all(&self, indices: &[ResourceIndex]) -> impl Iterator<Item = &Resource> {
        indices.iter().filter_map(|index| self.get(*index))
    }

    pub(super) fn insert(&mut self, id: &ResourceId, resource: Resource) -> Option<ResourceIndex> {
        let index = self.names.insert(id)?;
        let (due, end) = timers(&resource);
        self.resources.insert(index, resource);
        self.set_timers(index, due, end);
        Some(index)
    }

    pub(super) fn remove(&mut self, index: ResourceIndex) -> Option<Resource> {
        let removed = self.resources.remove(index)?;
        self.set_timers(index, None, None);
        self.names.remove(index);
        Some(removed)
    }

    pub(super) fn update<T>(
        &mut self,
        index: ResourceIndex,
        change: impl FnOnce(&mut Resource) -> T,
    ) -> Option<T> {
        let resource = self.resources.get_mut(index)?;
        let result = change(resource);
        let (due, end) = timers(resource);
        self.set_timers(index, due, end);
        Some(result)
    }

    pub(super) fn update_all(&mut self, change: impl Fn(&mut Resource)) {
        let all: Vec<ResourceIndex> = self.resources.iter().map(|(index, _)| index).collect();
        for index in all {
            self.update(index, &change);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.resources.len()
    }

    fn set_timers(&mut self, index: ResourceIndex, due: Option<Timer>, end: Option<Timer>) {
        self.due.set(index, due);
        self.lease_ends.set(index, end);
    }

    /// The resources of a request sent now: those due and nearly due, if any is due. Rejected
    /// resources are requested apart and after the others, so that they cannot cause a request for
    /// others to be rejected. Apart from new leases, which wait until `new_leases_from` then,
    /// renewals go first.
    pub(super) fn next_batch(
        &self,
        limits: BatchLimits,
        new_leases_from: Option<Moment>,
        now: Moment,
    ) -> Vec<ResourceIndex> {
        let rejected = limits.normal.min(limits.rejected);
        let lane = |lane, limit| take_due(self.lane(lane), limit, now);
        let renewals = if new_leases_from.is_some() {
            lane(Lane::Renewal, limits.normal)
        } else {
            let all = merge(self.lane(Lane::Renewal), self.lane(Lane::New));
            take_due(all, limits.normal, now)
        };
        let batch = or_else(renewals, || lane(Lane::RejectedRenewal, rejected));
        if !batch.is_empty() || new_leases_from.is_some_and(|from| now < from) {
            return batch;
        }
        let batch = lane(Lane::New, limits.normal);
        or_else(batch, || lane(Lane::RejectedNew, rejected))
    }

    fn lane(&self, lane: Lane) -> impl Iterator<Item = Timed<'_>> {
        self.in_order(&self.due, lane as u8)
    }

    /// The accepted renewals, earliest first.
    #[cfg(test)]
    pub(super) fn renewals(&self) -> impl Iterator<Item = Timed<'_>> {
        self.lane(Lane::Renewal)
    }

    /// The resources with a lease, earliest end first.
    pub(super) fn leased(&self) -> impl Iterator<Item = Timed<'_>> {
        self.in_order(&self.lease_ends, ENDS)
    }

    fn in_order<'a, const LANES: usize>(
        &'a self,
        timers: &'a TimerHeap<LANES>,
        lane: u8,
    ) -> impl Iterator<Item = Timed<'a>> {
        timers
            .iter(lane)
            .filter_map(|(time, index)| Some((time, index, self.resources.get(index)?)))
    }

    /// When the first resource is due, given that new leases wait until `new_leases_from`.
    pub(super) fn first_due(&self, new_leases_from: Option<Moment>) -> Option<Moment> {
        let first = |lane: Lane| Some(self.due.first(lane as u8)?.0);
        let renewals = [first(Lane::Renewal), first(Lane::RejectedRenewal)];
        let new = [first(Lane::New), first(Lane::RejectedNew)]
            .map(|due| due.map(|due| due.max(new_leases_from.unwrap_or_default())));
        renewals.into_iter().chain(new).flatten().min()
    }

    pub(super) fn first_lease_end(&self) -> Option<Moment> {
        self.lease_ends.first(ENDS).map(|(end, _)| end)
    }

    pub(super) fn without_lease(&self) -> usize {
        self.resources
            .len()
            .saturating_sub(self.lease_ends.len(ENDS))
    }
}

/// When a resource is due, unless it is in flight, and when its lease ends.
fn timers(resource: &Resource) -> (Option<Timer>, Option<Timer>) {
    let end = resource.lease_end();
    let lane = match (end, resource.is_rejected()) {
        (Some(_), false) => Lane::Renewal,
        (Some(_), true) => Lane::RejectedRenewal,
        (None, false) => Lane::New,
        (None, true) => Lane::RejectedNew,
    };
    let due = resource.due().map(|due| (lane as u8, due));
    (due, end.map(|end| (ENDS, end)))
}

fn or_else(
    batch: Vec<ResourceIndex>,
    other: impl FnOnce() -> Vec<ResourceIndex>,
) -> Vec<ResourceIndex> {
    if batch.is_empty() { other() } else { batch }
}

/// A resource with its timer.
type Timed<'a> = (Moment, ResourceIndex, &'a Resource);

fn merge<'a>(
    one: impl Iterator<Item = Timed<'a>>,
    other: impl Iterator<Item = Timed<'a>>,
) -> impl Iterator<Item = Timed<'a>> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some((first, ..)), Some((second, ..))) if second < first => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    })
}

/// The first `limit` resources to send now, if the first of them is due.
fn take_due<'a>(
    mut waiting: impl Iterator<Item = Timed<'a>>,
    limit: usize,
    now: Moment,
) -> Vec<ResourceIndex> {
    let Some((due, first, _)) = waiting.next() else {
        return Vec::new();
    };
    if due > now {
        return Vec::new();
    }
    let mut batch = vec![first];
    // Bounded, because resources that do not join may come before others that do.
    let more = waiting
        .take(2 * limit)
        .filter(|(.., resource)| resource.joins(now))
        .map(|(_, index, _)| index);
    batch.extend(more.take(limit.saturating_sub(1)));
    batch
}
