//! Calls of holders, handled in parts.
//!
//! A request may name 10,000 resources, a release may concern a million leases. The caller locks
//! the ledger once per part, and each part is decided at the time at which it is handled.

use doorman_openapi::{HolderKind, MAX_BANDS, MAX_ENTRIES_PER_PRIORITY, Moment, ResourceId};

use crate::ledger::{
    call::{Asked, LeaseCall, ReleaseCall, ReleasedHolders, Sent},
    holders::HolderId,
    keys::{HolderKey, ResourceKey},
    resource::decision::Grant,
    resource::order::RequestStamp,
    state::Ledger,
    stats::LedgerEvent,
};

/// The most bands per part; a resource has at least one.
pub(in crate::ledger) const MAX_PART: usize = 64;

/// Looking through this many templates costs about as much as a decision.
const TEMPLATES_PER_DECISION: usize = 1024;

/// The most resources per part of a renewal check, which is cheaper than a decision.
const MAX_CHECKED: usize = 256;

/// The progress of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReleaseProgress {
    /// The resources that were examined, at least one for each holder.
    pub scanned: usize,
    /// The leases that were released.
    pub released: usize,
    /// Where to continue; `None` when done.
    pub next: Option<ReleasePosition>,
}

/// Where a release continues. The default is its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReleasePosition {
    /// The position of the holder among those of its name.
    holder: u64,
    /// The next of the named resources, or the key of the next resource.
    resource: usize,
}

/// A part of the resources of a release for one holder.
struct ReleasedPart {
    keys: Vec<ResourceKey>,
    scanned: usize,
    next: Option<usize>,
}

/// Whether a request only renews leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewalCheck {
    /// The holder has a lease on each resource.
    AllHeld,
    /// The holder has no lease on some resource.
    SomeNew,
    /// The holder has a lease on each resource before this position. Continue there.
    HeldSoFar(usize),
}

impl Ledger {
    /// Decides a call, in the order of its resources.
    pub fn refresh(&mut self, call: &LeaseCall, now: Moment) -> Vec<Grant> {
        let mut grants = Vec::with_capacity(call.len());
        while grants.len() < call.len() {
            grants.append(&mut self.refresh_part(call, grants.len(), now));
        }
        grants
    }

    /// Decides the next resources of a call, from position `from` on. A tenant is limited to
    /// [its quota](super::Settings::max_leases_per_tenant) of leases.
    pub fn refresh_part(&mut self, call: &LeaseCall, from: usize, now: Moment) -> Vec<Grant> {
        let holder = self.begin(call, now);
        let replaced = self.holders.replaced_by(holder, &call.replaces);
        let (kind, stamp) = (call.holder.kind(), self.stamp(call.sent));
        let rest = call.resources.iter().skip(from);
        // The leases of replaced holders end in the same part.
        let cost = replaced.len().saturating_add(1);
        let part = part(rest, self.max_leased_part(now) / cost);
        let grants = part.map(|asked| {
            let ask = asked.ask(kind, stamp);
            let grant = self.refresh_one(holder, &replaced, &asked.resource_id, &ask, now);
            self.note_other_unit(call, asked, &grant);
            grant
        });
        let grants = grants.collect();
        if call.polls {
            self.end_poll_without_leases(holder, now);
        }
        self.holders.end_request();
        grants
    }

    /// A client can use nothing of a gauge that it limits as a rate, or the reverse.
    fn note_other_unit(&mut self, call: &LeaseCall, asked: &Asked, grant: &Grant) {
        if let (Some(unit), HolderId::Client(client, _)) = (asked.limited_as, &call.holder)
            && grant.template.as_ref().is_some_and(|it| it.unit() != unit)
        {
            let resource = asked.resource_id.clone();
            let event = LedgerEvent::OtherUnit(resource, client.clone(), unit);
            self.events.push(event);
        }
    }

    /// Registers the sender of a call, until [`Holders::end_request`]. Counts it if it is a
    /// duplicate: another run of a client that has a lease,
    /// or asks for one.
    ///
    /// [`Holders::end_request`]: super::holders::Holders::end_request
    pub(super) fn register(&mut self, call: &LeaseCall, now: Moment) -> HolderKey {
        let max_leases = self.settings.max_leases_per_tenant();
        let key = (self.holders).begin_request(&call.holder, call.tenant, max_leases, now);
        if let HolderId::Client(client, _) = &call.holder
            && !self.holders.has_leases(key)
            && self.holders.is_duplicate(key)
            && self.holders.count_duplicate(key)
        {
            self.stats.duplicate_clients += 1;
            self.events.push_duplicate(client);
        }
        key
    }

    /// Registers the sender of a call, until its end.
    fn begin(&mut self, call: &LeaseCall, now: Moment) -> HolderKey {
        let key = self.register(call, now);
        if call.polls {
            self.await_poll(key, now);
        }
        match call.holder.kind() {
            HolderKind::Client => {}
            HolderKind::Node => self.holders.set_address(key, call.address.as_ref()),
        }
        key
    }

    /// Releases leases. Those that do not exist are ignored.
    pub fn release(&mut self, call: &ReleaseCall, now: Moment) {
        let mut from = Some(ReleasePosition::default());
        while let Some(position) = from {
            let progress = self.release_part(call, &|_| true, position, now);
            from = progress.next;
        }
    }

    /// Releases the next leases on resources that are `allowed`, from a position on. Holders that
    /// come later are not released.
    pub fn release_part(
        &mut self,
        call: &ReleaseCall,
        allowed: &(dyn Fn(&ResourceId) -> bool + Sync),
        from: ReleasePosition,
        now: Moment,
    ) -> ReleaseProgress {
        let mut progress = ReleaseProgress::default();
        let mut left = MAX_PART;
        let mut at = from;
        while let Some((position, holder)) = self.released_holder(call, at.holder) {
            if position != at.holder {
                (at.holder, at.resource) = (position, 0);
            }
            if left == 0 {
                progress.next = Some(at);
                break;
            }
            let part = self.released_part(call, holder, at.resource, left);
            let released = self.release_keys(call, holder, &part.keys, allowed, now);
            // A holder without leases is work, too.
            let scanned = part.scanned.max(1);
            progress.scanned = progress.scanned.saturating_add(scanned);
            progress.released = progress.released.saturating_add(released);
            left = left.saturating_sub(scanned);
            (at.holder, at.resource) = match part.next {
                Some(next) => (position, next),
                None => (position.saturating_add(1), 0),
            };
        }
        progress
    }

    /// The first holder of a release, from a position on, with its position.
    fn released_holder(&self, call: &ReleaseCall, from: u64) -> Option<(u64, HolderKey)> {
        match &call.holders {
            ReleasedHolders::One(id) => {
                let only = self.holders.find(id).filter(|_| from == 0);
                only.map(|holder| (0, holder))
            }
            ReleasedHolders::Runs(client) => self.holders.runs_of(client.as_str(), from).next(),
        }
    }

    /// The next resources of a release for one holder: at most `max` are examined.
    fn released_part(
        &self,
        call: &ReleaseCall,
        holder: HolderKey,
        from: usize,
        max: usize,
    ) -> ReleasedPart {
        if let (ReleasedHolders::One(_), Some(ids)) = (&call.holders, call.resource_ids()) {
            let part = ids.iter().skip(from).take(max);
            let next = from.saturating_add(max);
            ReleasedPart {
                scanned: part.len(),
                keys: part.filter_map(|id| self.key_of(id)).collect(),
                next: (next < ids.len()).then_some(next),
            }
        } else {
            // For all runs of a client only resources that they hold are examined, also if
            // resources are named.
            // Released entries are retained for a while, so the position is a resource key.
            let rest = self.holders.resources(holder, ResourceKey::new(from));
            let keys: Vec<_> = rest.take(max).collect();
            let last = keys.last().filter(|_| keys.len() == max);
            ReleasedPart {
                scanned: keys.len(),
                next: last.map(|last| last.index().saturating_add(1)),
                keys,
            }
        }
    }

    /// Returns how many leases were released.
    fn release_keys(
        &mut self,
        call: &ReleaseCall,
        holder: HolderKey,
        keys: &[ResourceKey],
        allowed: &(dyn Fn(&ResourceId) -> bool + Sync),
        now: Moment,
    ) -> usize {
        let stamp = self.stamp(call.sent);
        let mut released: usize = 0;
        for key in keys {
            let live = self.live.get(key.index());
            if let Some(live) = live.filter(|live| call.names(&live.id) && allowed(&live.id)) {
                let tokens = call.tokens.get(&live.id).copied();
                let had_lease = self.release_one(holder, *key, stamp, tokens, now);
                released = released.saturating_add(usize::from(had_lease));
            }
        }
        released
    }

    pub(in crate::ledger) fn stamp(&self, sent: Sent) -> RequestStamp {
        sent.stamp(self.settings.epoch)
    }

    /// Checks the next resources of a call, from position `from` on.
    ///
    /// While leases of a predecessor may be outstanding, a claim is believed, so that its holder is
    /// not taken for a new one.
    #[must_use]
    pub fn check_renewal(&self, call: &LeaseCall, from: usize, now: Moment) -> RenewalCheck {
        let holder = self.holders.find(&call.holder);
        let mut rest = call.resources.iter().skip(from).take(MAX_CHECKED);
        if !rest.all(|asked| self.is_renewal(holder, asked, now)) {
            return RenewalCheck::SomeNew;
        }
        let next = from.saturating_add(MAX_CHECKED);
        if next < call.len() {
            RenewalCheck::HeldSoFar(next)
        } else {
            RenewalCheck::AllHeld
        }
    }

    fn is_renewal(&self, holder: Option<HolderKey>, asked: &Asked, now: Moment) -> bool {
        let has_lease = || {
            let live = self.live_resource(&asked.resource_id)?;
            Some(live.resource.has_lease(holder?, now))
        };
        let may_hold = || self.outstanding_until().is_some_and(|end| now < end);
        has_lease() == Some(true) || asked.may_have_lease && may_hold()
    }

    /// The most bands or resources per part: fewer when each is looked up among many templates.
    pub(in crate::ledger) fn max_part(&self) -> usize {
        max_part(self.document.templates().len())
    }

    /// The same where earlier terms are looked up, too: while a predecessor's leases may last.
    pub(in crate::ledger) fn max_leased_part(&self, now: Moment) -> usize {
        let templates = self.document.templates().len();
        let earlier = if self.may_have_lost_leases(now) {
            self.earlier_terms.searched()
        } else {
            0
        };
        max_part(templates.saturating_add(earlier))
    }
}

fn max_part(templates: usize) -> usize {
    let cost = TEMPLATES_PER_DECISION.saturating_add(templates);
    (MAX_PART * TEMPLATES_PER_DECISION / cost).max(1)
}

/// The first resources that have at most `max` bands together, but at least one resource.
fn part<'a>(
    resources: impl Iterator<Item = &'a Asked>,
    max: usize,
) -> impl Iterator<Item = &'a Asked> {
    let mut left = max;
    let mut is_first = true;
    resources.take_while(move |asked| {
        // Earlier bands of a node beyond these are summed up.
        let bands = asked.bands.len().min(MAX_BANDS * MAX_ENTRIES_PER_PRIORITY);
        let rest = left.checked_sub(bands.max(1));
        left = rest.unwrap_or(0);
        let is_in = rest.is_some() || is_first;
        is_first = false;
        is_in
    })
}
