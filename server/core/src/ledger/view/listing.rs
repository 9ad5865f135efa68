//! Pages of resources and of holders, for operators.

use std::{borrow::Cow, ops::Bound};

use doorman_openapi::{Capacity, ClientId, GlobSet, Moment, ResourceId, ResourceView};

use crate::ledger::{
    algorithm::BandShares,
    holders::HolderId,
    keys::ResourceKey,
    resource::entry::Entry,
    resource::signal::Signal,
    state::{Ledger, LiveResource},
    terms::Role,
    view::explain::{CurrentTerms, HolderStatus},
    view::feedback::feedback_view,
};

/// The most items that one call scans. Many may be vacant or hidden.
const MAX_SCANNED: usize = 1024;

/// The most holders of one name that one call lists.
const MAX_NAMED: usize = 32;

const SHARES_BELOW_ONE: &str = "an equal share is less than one request per refresh interval; \
     choose SUPPRESSION, or SHARED_BUCKET with a short refresh_interval";

/// Limits of one listing call. The work is bounded: a page may be short although others follow.
#[derive(Debug, Clone, Copy)]
pub struct PageQuery<'a> {
    /// The most items to return.
    pub limit: usize,
    /// Hides items whose name does not begin with this.
    pub prefix: &'a str,
    /// Hides items that match none of these; `None` hides nothing.
    pub allowed: Option<&'a GlobSet>,
}

impl PageQuery<'_> {
    /// A query that hides nothing.
    #[must_use]
    pub const fn unfiltered(limit: usize) -> Self {
        Self {
            limit,
            prefix: "",
            allowed: None,
        }
    }

    /// Fewer when each item is compared with many globs.
    pub(in crate::ledger) fn max_scanned(&self) -> usize {
        let globs = self.allowed.map_or(1, GlobSet::len);
        MAX_SCANNED.checked_div(globs).unwrap_or(MAX_SCANNED).max(1)
    }

    fn allows(&self, name: &str) -> bool {
        self.allowed.is_none_or(|globs| globs.matches(name))
    }

    pub(in crate::ledger) fn shows(&self, name: &str) -> bool {
        name.starts_with(self.prefix) && self.allows(name)
    }
}

/// A page of live resources.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceListing {
    /// The resources.
    pub resources: Vec<ResourceView>,
    /// Where to continue: after this one. `None` at the end.
    pub next: Option<ResourceId>,
}

/// A position in the list of a resource's holders. Holders keep their position while they stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HolderCursor {
    /// Tells the resource from a later one of the same name.
    pub incarnation: u64,
    /// The next slot to scan.
    pub slot: u32,
}

/// A page of holders, and their resource at that time.
#[derive(Debug, Clone, PartialEq)]
pub struct HolderListing {
    /// The resource.
    pub resource: ResourceView,
    /// The holders.
    pub holders: Vec<HolderStatus>,
    /// Where to continue; `None` at the end.
    pub next: Option<HolderCursor>,
}

/// Holders, and where to continue.
type FoundHolders = (Vec<HolderStatus>, Option<HolderCursor>);

/// Why there is no page of holders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListError {
    /// The resource has no holders.
    NotLive,
    /// The cursor belongs to an earlier resource of the same name.
    StaleCursor,
}

impl Ledger {
    /// Live resources, in order, after `after`.
    #[must_use]
    pub fn resources(
        &self,
        query: &PageQuery<'_>,
        after: Option<&ResourceId>,
        now: Moment,
    ) -> ResourceListing {
        // Each view may look through many templates.
        let limit = query.limit.min(self.max_part());
        let mut resources = Vec::new();
        let next = self.scan(query, limit, after, |_, key| {
            resources.extend(self.view(key, now));
        });
        ResourceListing { resources, next }
    }

    /// Visits at most `limit` live resources that a query does not hide, in order, after `after`.
    /// Returns after which one to continue.
    pub(in crate::ledger) fn scan(
        &self,
        query: &PageQuery<'_>,
        limit: usize,
        after: Option<&ResourceId>,
        mut visit: impl FnMut(&ResourceId, ResourceKey),
    ) -> Option<ResourceId> {
        let prefix = query.prefix;
        let from = match after {
            Some(id) if id.as_str() >= prefix => Bound::Excluded(id.as_str()),
            _ => Bound::Included(prefix),
        };
        let mut last: Option<&ResourceId> = None;
        let mut listed = self.by_id.range::<str, _>((from, Bound::Unbounded));
        let (mut scanned, mut visited): (usize, usize) = (0, 0);
        while let Some((id, key)) = listed.next() {
            let name = id.as_str();
            if !name.starts_with(prefix) {
                break;
            }
            if visited >= limit || scanned >= query.max_scanned() {
                return last.cloned();
            }
            scanned = scanned.saturating_add(1);
            if query.allows(name) {
                visited = visited.saturating_add(1);
                visit(id, *key);
            } else {
                // Skips to the next allowed name, to find a few among very many.
                match query.allowed.and_then(|globs| globs.seek(name)) {
                    None => break,
                    Some(Cow::Borrowed(_)) => {}
                    Some(Cow::Owned(next)) => {
                        let from = Bound::Included(next.as_str());
                        listed = self.by_id.range::<str, _>((from, Bound::Unbounded));
                    }
                }
            }
            last = Some(id);
        }
        None
    }

    /// One live resource. A resource is live while it has a holder, including one that has released
    /// its lease less than a lease length ago.
    #[must_use]
    pub fn resource(&self, id: &ResourceId, now: Moment) -> Option<ResourceView> {
        self.view(self.key_of(id)?, now)
    }

    /// The holders of a live resource, from a position on.
    ///
    /// # Errors
    /// [`ListError`] when there is no such list.
    pub fn holders(
        &self,
        id: &ResourceId,
        query: &PageQuery<'_>,
        from: Option<HolderCursor>,
        now: Moment,
    ) -> Result<HolderListing, ListError> {
        self.list(id, now, |live, current| {
            let mut holders = Vec::new();
            let next = self.scan_holders(live, query, query.limit, from, |entry, holder| {
                holders.push(self.holder_status(live, entry, holder, current));
            })?;
            Ok((holders, next))
        })
    }

    /// Holders of a live resource, as `read` finds them, with the resource.
    pub(in crate::ledger) fn list(
        &self,
        id: &ResourceId,
        now: Moment,
        read: impl FnOnce(&LiveResource, &mut CurrentTerms<'_>) -> Result<FoundHolders, ListError>,
    ) -> Result<HolderListing, ListError> {
        let live = self.find(id)?;
        self.with_current_terms(live, now, |current| {
            let (holders, next) = read(live, current)?;
            Ok(HolderListing {
                resource: live.view(current),
                holders,
                next,
            })
        })
    }

    /// Visits at most `limit` holders that a query does not hide, from a position on. Returns where
    /// to continue.
    pub(in crate::ledger) fn scan_holders(
        &self,
        live: &LiveResource,
        query: &PageQuery<'_>,
        limit: usize,
        from: Option<HolderCursor>,
        mut visit: impl FnMut(&Entry, &HolderId),
    ) -> Result<Option<HolderCursor>, ListError> {
        let incarnation = live.incarnation;
        let from = match from {
            None => 0,
            Some(cursor) if cursor.incarnation == incarnation => cursor.slot,
            Some(_) => return Err(ListError::StaleCursor),
        };
        let mut visited: usize = 0;
        let slots = live.resource.entries.slots_from(from as usize);
        for (scanned, (slot, entry)) in slots.enumerate() {
            let entry = entry.filter(|entry| !entry.is_cleared());
            let holder = entry.and_then(|entry| self.holders.id(entry.holder));
            let holder = holder.filter(|holder| query.shows(holder.as_str()));
            let is_full = holder.is_some() && visited >= limit;
            if is_full || scanned >= query.max_scanned() {
                let slot = u32::try_from(slot).unwrap_or(u32::MAX);
                return Ok(Some(HolderCursor { incarnation, slot }));
            }
            if let (Some(entry), Some(holder)) = (entry, holder) {
                visited = visited.saturating_add(1);
                visit(entry, holder);
            }
        }
        Ok(None)
    }

    /// The holders with this name: the runs of a client, of which the newest are listed, and a
    /// node.
    ///
    /// # Errors
    /// [`ListError::NotLive`].
    pub fn holders_named(
        &self,
        id: &ResourceId,
        name: &ClientId,
        now: Moment,
    ) -> Result<HolderListing, ListError> {
        self.list(id, now, |live, current| {
            let named = self.holders.named(name.as_str(), 0).take(MAX_SCANNED);
            let holders = named.filter_map(|(_, key)| {
                let entry = live.resource.entries.get(key);
                let entry = entry.filter(|entry| !entry.is_cleared())?;
                Some(self.holder_status(live, entry, self.holders.id(key)?, current))
            });
            Ok((holders.take(MAX_NAMED).collect(), None))
        })
    }

    pub(in crate::ledger) fn find(&self, id: &ResourceId) -> Result<&LiveResource, ListError> {
        let key = self.key_of(id).ok_or(ListError::NotLive)?;
        self.live.get(key.index()).ok_or(ListError::NotLive)
    }

    /// Calls `read` with the terms that apply to the next refresh.
    pub(in crate::ledger) fn with_current_terms<T>(
        &self,
        live: &LiveResource,
        now: Moment,
        read: impl FnOnce(&mut CurrentTerms<'_>) -> T,
    ) -> T {
        let resource = &live.resource;
        let newer = self.newer_terms(live);
        let (terms, learning_until, signal) = match &newer {
            None => {
                let signal = resource.current_signal(now);
                (&resource.terms, resource.learning_until, signal)
            }
            // Its signal follows with the next refresh.
            Some((terms, learning_until)) => (terms, *learning_until, Signal::None),
        };
        read(&mut CurrentTerms {
            terms,
            learning_until,
            signal,
            bands: BandShares::default(),
            now,
        })
    }

    /// A holder of a live resource.
    pub(in crate::ledger) fn holder_status(
        &self,
        live: &LiveResource,
        entry: &Entry,
        holder: &HolderId,
        current: &mut CurrentTerms<'_>,
    ) -> HolderStatus {
        let mut status = live.resource.holder_status(entry, holder, current);
        let address = self.holders.address(entry.holder);
        status.view.address = address.map(ToString::to_string);
        status.view.duplicate_client = self.holders.is_duplicate(entry.holder);
        status
    }

    pub(in crate::ledger) fn view(&self, key: ResourceKey, now: Moment) -> Option<ResourceView> {
        let live = self.live.get(key.index())?;
        Some(self.with_current_terms(live, now, |current| live.view(current)))
    }
}

impl LiveResource {
    pub(in crate::ledger) fn view(&self, current: &CurrentTerms<'_>) -> ResourceView {
        let resource = &self.resource;
        let clients = resource.clients();
        let terms = current.terms;
        let template = terms.template();
        let learning = current.is_learning();
        let warns = resource.shares_are_below_one(terms, current.now);
        let unmet = resource.unmet(terms, current.now);
        let parent = resource.parent.as_ref();
        let parent = parent.map(|it| it.view(template.map(|it| it.capacity()), current.now));
        let effective = resource.effective.as_deref();
        let effective = effective.filter(|it| it.role() != Role::Node);
        let law = effective.zip(terms.control());
        let law = law.map(|(it, (control, role))| (it.law_under(control, current.now), role));
        ResourceView {
            resource_id: self.id.clone(),
            capacity: match &parent {
                // A lease from the parent is what holders share.
                Some(parent) if terms.rule().divides() => template.map(|_| parent.has),
                _ => template.map(|template| template.capacity()),
            },
            parent,
            unit: template.map(|template| template.unit()),
            per: template.map(|template| template.per()),
            sum_has: resource.sum_has(),
            sum_wants: resource.shown_wants(current.now),
            unmet,
            unmet_for: (unmet > 0.0).then(|| self.unmet.lasts(current.now)),
            unmet_since: None,
            free: resource.free(current),
            fill_level: resource.fill_level(terms, current.now),
            // A sum of whole numbers, exact up to 2^53.
            clients: clients as u64,
            in_learning_mode: learning,
            learning_ends_in: learning.then(|| current.learning_until.since(current.now).into()),
            template: template.map(|template| template.identifier_glob().to_owned()),
            algorithm: Some(terms.rule().kind),
            lease_length: terms.algorithm().lease_length,
            refresh_interval: terms.algorithm().refresh_interval,
            safe_capacity: terms.safe_capacity(clients),
            balance: current.signal.balance(),
            admission_probability: current.signal.admission_probability(),
            outcomes: resource.outcomes.as_ref().map(|it| it.view(current.now)),
            effective: (law.as_ref()).map(|it| Capacity::saturating(it.0.effective(current.now))),
            feedback: law.map(|(law, role)| feedback_view(&law, role, current.now)),
            warning: warns.then(|| SHARES_BELOW_ONE.to_owned()),
        }
    }
}
