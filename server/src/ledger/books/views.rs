//! What operators see of the resources.

use std::{borrow::Cow, ops::Bound};

use doorman_openapi::{Moment, ResourceId, ResourceView, Seconds};

use super::{Ledger, Live, PageQuery};

const SHARES_BELOW_ONE: &str = "an equal share comes to less than one request a refresh interval: SHARED_BUCKET or SUPPRESSION \
     hold so many clients to so small a rate better";

/// Some live resources.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourcePage {
    /// The resources: none, maybe, although others follow.
    pub resources: Vec<ResourceView>,
    /// After which to go on; `None` when none follows.
    pub next: Option<ResourceId>,
}

impl Ledger {
    /// Live resources whose identifier starts with `prefix`, in order, after `after`: as many as one look finds.
    #[must_use]
    pub fn resources(
        &self,
        prefix: &str,
        look: &PageQuery<'_>,
        after: Option<&ResourceId>,
        now: Moment,
    ) -> ResourcePage {
        let from = match after {
            Some(id) if id.as_str() >= prefix => Bound::Excluded(id.as_str()),
            _ => Bound::Included(prefix),
        };
        // What has to be sought anew among many templates costs more.
        let limit = look.limit.min(self.part());
        let mut resources = Vec::new();
        let mut last: Option<&ResourceId> = None;
        let mut listed = self.by_id.range::<str, _>((from, Bound::Unbounded));
        let mut seen: usize = 0;
        while let Some((id, key)) = listed.next() {
            let name = id.as_str();
            if !name.starts_with(prefix) {
                break;
            }
            if resources.len() >= limit || seen >= look.places() {
                return ResourcePage {
                    resources,
                    next: last.cloned(),
                };
            }
            seen = seen.saturating_add(1);
            if look.finds(name) {
                resources.extend(self.view(*key, now));
            } else {
                // A few of very many are found as fast as many of few: the others are not passed one by one.
                match look.seek(name) {
                    None => break,
                    Some(Cow::Borrowed(_)) => {}
                    Some(Cow::Owned(further)) => {
                        let from = Bound::Included(further.as_str());
                        listed = self.by_id.range::<str, _>((from, Bound::Unbounded));
                    }
                }
            }
            last = Some(id);
        }
        ResourcePage {
            resources,
            next: None,
        }
    }

    /// One live resource; `None` when nobody holds it, waits for it, or gave it back less than a lease length ago.
    #[must_use]
    pub fn resource(&self, id: &ResourceId, now: Moment) -> Option<ResourceView> {
        self.view(*self.keys.get(id)?, now)
    }

    pub(super) fn view(&self, key: u32, now: Moment) -> Option<ResourceView> {
        let live = self.live.get(key as usize)?;
        let Live { id, resource, .. } = live;
        let clients = resource.clients();
        Some(self.on_the_newest_terms(live, now, |on| {
            let terms = on.terms;
            let template = terms.template();
            let learning = (now < on.learning_until).then(|| on.learning_until.since(now));
            ResourceView {
                resource_id: id.clone(),
                capacity: template.map(|template| template.capacity()),
                sum_has: resource.sum_has(),
                sum_wants: resource.sum_wants(),
                free: resource.free(terms),
                fill_level: resource.fill_level(terms),
                // Whole numbers were added up: exact up to 2^53, above it nearly so.
                clients: clients as u64,
                in_learning_mode: learning.is_some(),
                learning_ends_in: learning.map(Seconds::from),
                template: template.map(|template| template.identifier_glob().to_owned()),
                algorithm: terms.rule().kind,
                lease_length: terms.algorithm().lease_length,
                refresh_interval: terms.algorithm().refresh_interval,
                safe_capacity: terms.safe_capacity(clients),
                balance: on.feedback.balance(),
                admission_probability: on.feedback.admission_probability(),
                warning: terms
                    .splits_below_one(clients)
                    .then(|| SHARES_BELOW_ONE.to_owned()),
            }
        }))
    }
}
