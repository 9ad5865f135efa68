//! What operators see of the books.

use std::ops::Bound;

use doorman_openapi::{HolderView, Moment, ResourceId, ResourceView};

use super::{Core, Feedback, HolderKey, Live};

const SHARES_BELOW_ONE: &str = "an equal share comes to less than one request a refresh interval: SHARED_BUCKET or SUPPRESSION \
     hold so many clients to so small a rate better";

/// How many places of the books one page of holders looks at: most of them may be empty, after many holders have gone.
const PLACES_A_PAGE: usize = 4096;

impl Core {
    /// Live resources whose identifier starts with `prefix`, in order, after `after`.
    #[must_use]
    pub fn resources(
        &self,
        prefix: &str,
        after: Option<&ResourceId>,
        limit: usize,
        now: Moment,
    ) -> Vec<ResourceView> {
        let from = match after {
            Some(id) if id.as_str() >= prefix => Bound::Excluded(id.as_str()),
            _ => Bound::Included(prefix),
        };
        self.by_id
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(|(id, _)| id.as_str().starts_with(prefix))
            .filter_map(|(_, key)| self.view(*key, now))
            .take(limit)
            .collect()
    }

    /// One live resource; `None` when nobody holds it, waits for it, or gave it back less than a lease length ago.
    #[must_use]
    pub fn resource(&self, id: &ResourceId, now: Moment) -> Option<ResourceView> {
        self.view(*self.keys.get(id)?, now)
    }

    /// The holders of a live resource, in an order that does not change while they stay, from position `from` on, with the position of
    /// the next page if there may be more. A page looks at a bounded number of places, so that nobody waits long for the books: where
    /// many holders have gone it may hold few, or none, although others follow.
    ///
    /// `unix_now` is the wall clock in Unix seconds, for the ends that people read.
    #[must_use]
    pub fn holders(
        &self,
        id: &ResourceId,
        from: u64,
        limit: usize,
        now: Moment,
        unix_now: u64,
    ) -> Option<(Vec<HolderView>, Option<u64>)> {
        let live = self.live.get(*self.keys.get(id)? as usize)?;
        let name = |key: HolderKey| {
            self.holders
                .id(key)
                .map(|id| (id.kind(), id.as_str().to_owned()))
        };
        let Ok(from) = u32::try_from(from) else {
            return Some((Vec::new(), None));
        };
        let places = live.resource.holders(from, now, unix_now, name);
        let mut page = Vec::new();
        for (seen, (slot, holder)) in places.enumerate() {
            if seen >= PLACES_A_PAGE || holder.is_some() && page.len() >= limit {
                return Some((page, Some(u64::from(slot))));
            }
            page.extend(holder);
        }
        Some((page, None))
    }

    pub(super) fn view(&self, key: u32, now: Moment) -> Option<ResourceView> {
        let live = self.live.get(key as usize)?;
        let Live { id, resource, .. } = live;
        let newer = self.newer_terms(live);
        let (terms, learning_until) = match &newer {
            Some((terms, learning_until)) => (terms, *learning_until),
            None => (resource.terms(), resource.learning_until()),
        };
        let feedback = match newer {
            None => resource.feedback(now),
            // It is told as soon as the resource is next asked for.
            Some(_) => Feedback::None,
        };
        Some(ResourceView {
            resource_id: id.clone(),
            capacity: terms.template().map(|template| template.capacity()),
            sum_has: resource.sum_has(),
            sum_wants: resource.sum_wants(),
            clients: resource.clients(),
            in_learning_mode: now < learning_until,
            template: terms
                .template()
                .map(|template| template.identifier_glob().to_owned()),
            algorithm: terms.rule().kind,
            balance: feedback.balance(),
            admission_probability: feedback.admission_probability(),
            warning: terms
                .splits_below_one(resource.clients())
                .then(|| SHARES_BELOW_ONE.to_owned()),
        })
    }
}
