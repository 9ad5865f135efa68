//! Passes over all resources, or over all holders of one, that find the largest: for sorted pages.

use doorman_openapi::{Moment, ResourceId, SortBy};

use crate::ledger::{
    keys::EntrySlot,
    resource::entry::Entry,
    resource::outcomes::Tally,
    state::{Ledger, LiveResource},
    view::largest::Largest,
    view::listing::{HolderCursor, HolderListing, ListError, PageQuery},
};

/// A pass over the live resources.
pub type ResourceRanking = Ranking<ResourceId, ResourceId>;

/// A pass over the holders of a resource, which are named by their positions.
pub type HolderRanking = Ranking<u32, HolderCursor>;

/// A pass that finds the largest, and where it goes on.
#[derive(Debug)]
pub struct Ranking<K: Ord, C> {
    sort: SortBy,
    largest: Largest<K>,
    total: u64,
    next: Option<C>,
}

impl<K: Ord + Clone, C> Ranking<K, C> {
    /// A pass that has examined nothing. It finds the `limit` largest.
    #[must_use]
    pub fn new(sort: SortBy, limit: usize) -> Self {
        Self {
            sort,
            largest: Largest::new(limit),
            total: 0,
            next: None,
        }
    }

    /// The number of those that were counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The largest, the largest first.
    #[must_use]
    pub fn into_largest(self) -> Vec<K> {
        self.largest.into_keys()
    }

    fn count(&mut self, amount: f64, key: &K) {
        self.total = self.total.saturating_add(1);
        self.largest.consider(amount, key);
    }
}

impl Ledger {
    /// Examines a bounded number of resources that `query` does not hide; `false` at the end. May
    /// miss resources that appear between calls. A changed `per` counts from the resource's next
    /// refresh: the new template is not looked up for all resources.
    pub fn rank_resources(
        &self,
        ranking: &mut ResourceRanking,
        query: &PageQuery<'_>,
        now: Moment,
    ) -> bool {
        let (sort, after) = (ranking.sort, ranking.next.take());
        ranking.next = self.scan(query, usize::MAX, after.as_ref(), |id, key| {
            if let Some(live) = self.live.get(key.index()) {
                ranking.count(amount_of_resource(live, sort, now), id);
            }
        });
        ranking.next.is_some()
    }

    /// Examines a bounded number of holders that `query` does not hide; `false` at the end. May
    /// miss holders that appear between calls.
    ///
    /// # Errors
    /// [`ListError`] when there is no such list any more.
    pub fn rank_holders(
        &self,
        id: &ResourceId,
        ranking: &mut HolderRanking,
        query: &PageQuery<'_>,
        now: Moment,
    ) -> Result<bool, ListError> {
        let live = self.find(id)?;
        let (sort, from) = (ranking.sort, ranking.next.take());
        ranking.next = self.scan_holders(live, query, usize::MAX, from, |entry, _| {
            ranking.count(
                amount_of_holder(live, entry, sort, now),
                &entry.slot.number(),
            );
        })?;
        Ok(ranking.next.is_some())
    }

    /// The holders at some positions that a pass has found, without those that have left since.
    ///
    /// # Errors
    /// [`ListError::NotLive`].
    pub fn holders_at(
        &self,
        id: &ResourceId,
        positions: &[u32],
        query: &PageQuery<'_>,
        now: Moment,
    ) -> Result<HolderListing, ListError> {
        self.list(id, now, |live, current| {
            let holders = positions.iter().filter_map(|position| {
                let entry = live.resource.entries.at(EntrySlot::new(*position as usize));
                let entry = entry.filter(|entry| !entry.is_cleared())?;
                let holder = self.holders.id(entry.holder)?;
                // Another holder may have taken the position.
                let is_shown = query.shows(holder.as_str());
                is_shown.then(|| self.holder_status(live, entry, holder, current))
            });
            Ok((holders.collect(), None))
        })
    }
}

fn amount_of_resource(live: &LiveResource, sort: SortBy, now: Moment) -> f64 {
    let resource = &live.resource;
    let rates = || {
        let outcomes = resource.outcomes.as_ref();
        outcomes.map_or(Tally::default(), |it| it.per_second(now))
    };
    match sort {
        SortBy::Wants => resource.shown_wants(now) / resource.terms.period(),
        SortBy::Has => resource.sum_has() / resource.terms.period(),
        SortBy::Clients => resource.clients(),
        SortBy::Unmet => resource.unmet(&resource.terms, now) / resource.terms.period(),
        SortBy::Refused => rates().refused,
        SortBy::Overloaded => rates().overloaded,
        SortBy::HeldBack => {
            let effective = resource.effective.as_ref();
            let part = effective.map(|it| 1.0 - it.effective(now) / resource.terms.limit());
            part.unwrap_or(0.0).max(0.0)
        }
    }
}

fn amount_of_holder(live: &LiveResource, entry: &Entry, sort: SortBy, now: Moment) -> f64 {
    let wants = || live.resource.shown_wants_of(entry, now);
    let has = || entry.booking.lease(now).map_or(0.0, |lease| lease.amount);
    let totals = || {
        let outcomes = live.resource.outcomes.as_ref()?;
        outcomes.of_holder(entry.slot).map(|it| it.totals)
    };
    match sort {
        SortBy::Wants => wants(),
        SortBy::Has => has(),
        SortBy::Unmet => (wants() - has()).max(0.0),
        SortBy::Clients => entry.clients(),
        SortBy::Refused => totals().map_or(0.0, |it| it.refused.get()),
        SortBy::Overloaded => totals().map_or(0.0, |it| it.overloaded.get() as f64),
        SortBy::HeldBack => {
            let effective = live.resource.effective.as_ref();
            let suffers = effective.is_some_and(|it| it.suffers_alone(entry.slot, now));
            f64::from(u8::from(suffers))
        }
    }
}
