//! The state of the ledger, and how it handles one request for one resource.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use doorman_config::Document;
use doorman_openapi::{Balance, Capacity, HolderKind, Moment, Reason, ResourceId};

use super::{
    hints::pending::Hinting,
    holders::poll_queue::PollQueue,
    holders::{HolderId, Holders},
    keys::{HolderKey, ResourceKey},
    learning_count::LearningCount,
    parents::state::Parents,
    resource::decision::{Anomalies, Decision, Grant, Reporting},
    resource::entry::Entry,
    resource::order::RequestStamp,
    resource::signal::{LostPredecessor, Signal},
    resource::unmet::{UnmetDemand, UnmetResources},
    resource::{Ask, Has, Resource},
    settings::{Predecessor, Settings, UnmatchedPolicy},
    stats::{LedgerEvent, LedgerEvents, LedgerStats, TemplateCounts},
    store::hash_index::HashIndex,
    store::paged_slab::PagedSlab,
    store::timers::Timers,
    terms::ResourceTerms,
    terms::Role,
    terms::earlier::EarlierTemplate,
    terms::earlier::EarlierTerms,
    terms::granting::GrantingTerms,
    terms::tuning::Tuning,
};

/// Whether a holder may have a lease of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Held,
    /// It has released its lease, and does not count until it [resumes](Ledger::resume) it.
    Released,
    /// The ledger or the tenant has no room.
    Full,
}

/// All leases of all resources.
///
/// Methods that take `now` expect the time at which the request is **handled**, sampled once, and
/// never going back.
#[derive(Debug, Clone)]
pub struct Ledger {
    pub(super) document: Arc<Document>,
    /// Whether its terms have not been taken yet.
    pub(super) has_new_document: bool,
    /// Counts documents. A resource adopts a new document when it is next requested, or when its
    /// turn comes if its holders poll.
    pub(super) generation: u64,
    pub(super) settings: Settings,
    pub(super) earlier_terms: EarlierTerms,
    pub(super) tuning: &'static Tuning,
    pub(super) started: Moment,
    /// Live resources in listing order.
    pub(super) by_id: BTreeMap<ResourceId, ResourceKey>,
    pub(super) keys: HashIndex<ResourceKey>,
    pub(super) live: PagedSlab<LiveResource>,
    pub(super) next_incarnation: u64,
    pub(super) holders: Holders,
    pub(super) polls: PollQueue,
    pub(super) hinting: Hinting,
    /// Of the document, in seconds.
    pub(super) longest_refresh_interval: f64,
    /// When learning mode ends for the last template.
    pub(super) learning_until: Moment,
    pub(super) was_learning: bool,
    pub(super) learning_count: LearningCount,
    pub(super) unmet: UnmetResources,
    pub(super) expiries: Timers,
    pub(super) stats: LedgerStats,
    /// By template of the document.
    pub(super) counts: BTreeMap<Box<str>, TemplateCounts>,
    pub(super) events: LedgerEvents,
    pub(super) logs_usage: bool,
    /// Present if the capacity is leased from a parent node.
    pub(super) parents: Option<Box<Parents>>,
}

#[derive(Debug, Clone)]
pub(super) struct LiveResource {
    pub(super) id: ResourceId,
    /// Tells it from an earlier resource of the same name.
    pub(super) incarnation: u64,
    pub(super) resource: Resource,
    /// The document that its terms are from.
    pub(super) generation: u64,
    /// The events that were reported for it.
    reported: [bool; 5],
    pub(super) unmet: UnmetDemand,
}

impl LiveResource {
    /// The response to a request.
    fn grant(&self, ask: &Ask<'_>, decision: &Decision, now: Moment) -> Grant {
        let resource = &self.resource;
        let levels = match ask.kind {
            HolderKind::Client => Vec::new(),
            HolderKind::Node => resource.levels(),
        };
        let mut grant = Grant::new(
            self.id.clone(),
            &resource.terms,
            resource.clients(),
            decision,
            resource.current_signal(now),
            levels,
        );
        if let Some(report) = ask.report {
            grant.reporting = Reporting {
                is_ignored: decision.anomalies.ignored_outcomes,
                ..resource.reporting(report.effective, now)
            };
        }
        grant
    }

    /// Records the events that were not yet reported for this resource.
    pub(super) fn report_events<'a>(
        &mut self,
        grant: &Grant,
        anomalies: Anomalies,
        events: &mut LedgerEvents,
        now: Moment,
        holder: impl FnOnce() -> Option<&'a HolderId>,
    ) {
        type OfResource = fn(ResourceId) -> LedgerEvent;
        let [small_shares_reported, ..] = self.reported;
        let has_small_shares = !small_shares_reported
            && (self.resource).shares_are_below_one(&self.resource.terms, now);
        let happened: [(bool, OfResource); 4] = [
            (has_small_shares, LedgerEvent::SharesBelowOne),
            (grant.is_unmatched(), LedgerEvent::Unmatched),
            (anomalies.overused, LedgerEvent::Overused),
            (anomalies.claims_exceed, LedgerEvent::ClaimsAboveCapacity),
        ];
        let [reported @ .., excess_reported] = &mut self.reported;
        for ((has_happened, event), is_reported) in happened.into_iter().zip(reported) {
            if has_happened && !std::mem::replace(is_reported, true) {
                events.push(event(self.id.clone()));
            }
        }
        if anomalies.excess_claim
            && !std::mem::replace(excess_reported, true)
            && let Some(holder) = holder()
        {
            let id = self.id.clone();
            events.push(match holder {
                HolderId::Client(client, _) => LedgerEvent::ExcessClaimOfClient(id, client.clone()),
                HolderId::Node(node) => LedgerEvent::ExcessClaimOfNode(id, node.clone()),
            });
        }
    }
}

impl Ledger {
    /// An empty ledger.
    #[must_use]
    pub fn new(document: Arc<Document>, settings: Settings, now: Moment) -> Self {
        let mut ledger = Self {
            longest_refresh_interval: longest_refresh_interval(&document),
            learning_until: now,
            was_learning: false,
            learning_count: LearningCount::default(),
            unmet: UnmetResources::default(),
            document,
            has_new_document: true,
            generation: 0,
            settings,
            earlier_terms: EarlierTerms::default(),
            tuning: &Tuning::DEFAULT,
            started: now,
            by_id: BTreeMap::new(),
            keys: HashIndex::default(),
            live: PagedSlab::default(),
            next_incarnation: 0,
            holders: Holders::new(now),
            polls: PollQueue::default(),
            hinting: Hinting::default(),
            expiries: Timers::default(),
            stats: LedgerStats::default(),
            counts: BTreeMap::new(),
            events: LedgerEvents::default(),
            logs_usage: false,
            parents: None,
        };
        ledger.set_learning_until();
        ledger
    }

    /// With other constants, for simulations. Before the first request.
    #[must_use]
    pub fn with_tuning(self, tuning: &'static Tuning) -> Self {
        Self { tuning, ..self }
    }

    /// Notes the use of holders that end, in [`LedgerEvents::usage`]. Before the first request.
    #[must_use]
    pub fn with_usage(self, logs_usage: bool) -> Self {
        Self { logs_usage, ..self }
    }

    /// With the terms under which predecessors may have granted leases that last. Before the first
    /// request. Without it those of the document count.
    #[must_use]
    pub fn with_earlier_terms(self, earlier_terms: EarlierTerms) -> Self {
        Self {
            earlier_terms,
            ..self
        }
    }

    /// Frees expired leases and works on hints, in at most `budget` steps, so that no request waits
    /// long. Returns when to call it again, which may be now; `None` when nothing is left to do.
    pub fn sweep(&mut self, now: Moment, budget: usize) -> Option<Moment> {
        let learning_until = self.learning_until();
        let is_learning = now < learning_until;
        self.events.learning_ended |= self.was_learning && !is_learning;
        self.was_learning = is_learning;
        for _ in 0..budget {
            let Some(slot) = self.expiries.pop_due(now) else {
                break;
            };
            let key = ResourceKey::new(slot);
            self.expire_leases(key, now);
            self.apply_feedback(key, now);
            self.plan_hints(key, now);
            self.note_parent_update(key, now);
            self.note_unmet(key, now);
            self.schedule_expiry(key);
            self.drop_if_empty(key, now);
        }
        self.sweep_hints(now, budget);
        let next = [
            self.expiries.next_at(),
            self.next_hint_work(),
            // Polls that are due now are answered by others.
            self.polls.ready.next_at().filter(|at| *at > now),
            is_learning.then_some(learning_until),
        ];
        next.into_iter().flatten().min()
    }

    /// Begins a reign with the leases of another server, which has heard their holders: they count
    /// as heard now.
    pub fn begin_reign(&mut self, now: Moment) {
        self.holders.begin_reign(now);
    }

    /// Replaces the document. Leases stay until their next refresh or end.
    ///
    /// The cost does not depend on the number of resources: each adopts its new terms when it is
    /// next requested, those with polling holders also in [`Self::sweep`]. Until then listings show
    /// the new terms.
    pub fn reconfigure(&mut self, document: Arc<Document>) {
        self.longest_refresh_interval = longest_refresh_interval(&document);
        // Those of others would be there forever.
        let globs: BTreeSet<_> = document
            .templates()
            .iter()
            .map(|it| it.identifier_glob())
            .collect();
        self.counts.retain(|glob, _| globs.contains(&**glob));
        self.document = document;
        self.has_new_document = true;
        self.hinting.walk = Some(0);
        self.generation += 1;
        self.set_learning_until();
    }

    /// The terms of all leases from now on, if they have changed since the last call.
    pub fn take_granting_terms(&mut self) -> Option<GrantingTerms> {
        if let Some(parents) = &mut self.parents {
            return parents.terms.take_changed();
        }
        let is_new = std::mem::take(&mut self.has_new_document);
        is_new.then(|| GrantingTerms {
            generations: vec![EarlierTemplate::all_of(&self.document)],
            terms_before_until: Moment::ORIGIN,
        })
    }

    /// When learning mode ends for the last template, or the last live resource of a node below
    /// another one; in the past if it has ended, or never was.
    #[must_use]
    pub fn learning_until(&self) -> Moment {
        // The statement of a parent begins it for a single resource.
        let resources = self
            .parents
            .as_ref()
            .map(|_| self.learning_count.last_end());
        resources.map_or(self.learning_until, |end| end.max(self.learning_until))
    }

    pub(super) fn set_learning_until(&mut self) {
        let ends = self.outstanding_until().and_then(|outstanding| {
            let templates = self.document.templates().iter();
            let ends =
                templates.map(|it| ResourceTerms::of(it).learning_until(self.started, outstanding));
            ends.max()
        });
        self.learning_until = ends.unwrap_or(self.started);
    }

    /// The size of the ledger, and its counters.
    #[must_use]
    pub fn stats(&self) -> LedgerStats {
        LedgerStats {
            resources: self.by_id.len(),
            ..self.stats
        }
    }

    /// Counters since the start, by template of the document.
    pub fn template_counts(&self) -> impl Iterator<Item = (&str, &TemplateCounts)> {
        self.counts.iter().map(|(glob, counts)| (&**glob, counts))
    }

    /// The number of live resources in learning mode.
    #[must_use]
    pub fn resources_learning(&self, now: Moment) -> usize {
        self.learning_count.at(now)
    }

    /// The resources whose demand has been unmet for at least a minute.
    #[must_use]
    pub fn unmet_for_a_minute(&self) -> &UnmetResources {
        &self.unmet
    }

    /// The most leases of all resources together.
    #[must_use]
    pub fn max_leases(&self) -> usize {
        self.settings.max_leases
    }

    /// Takes the events since the last call.
    pub fn take_events(&mut self) -> LedgerEvents {
        std::mem::take(&mut self.events)
    }

    pub(super) fn expire_leases(&mut self, key: ResourceKey, now: Moment) {
        let Some(live) = self.live.get_mut(key.index()) else {
            return;
        };
        live.resource.expire(now, |holder, is_retained| {
            if is_retained {
                self.holders.retain_released(holder, key);
                return;
            }
            self.stats.leases = self.stats.leases.saturating_sub(1);
            self.holders.remove_lease(holder, key);
            self.polls.remove_lease(&mut self.holders, holder, key, now);
        });
        self.take_usage(key);
    }

    /// Decides what a holder gets of one resource.
    pub(super) fn refresh_one(
        &mut self,
        holder: HolderKey,
        replaced: &[HolderKey],
        id: &ResourceId,
        ask: &Ask<'_>,
        now: Moment,
    ) -> Grant {
        let key = self.find_or_add(id, now);
        self.adopt_document(key, now);
        self.expire_leases(key, now);
        let awaits = self.replace(replaced, holder, key, ask, now);
        let Some(live) = self.live.get_mut(key.index()) else {
            return self.reject_as_full(id, 0.0);
        };
        let clients = live.resource.clients();
        let place = self.place(holder, key, ask, now);
        if place == Place::Full {
            self.count_full();
            self.schedule_expiry(key);
            self.drop_if_empty(key, now);
            return self.reject_as_full(id, clients);
        }
        let Some(live) = self.live.get_mut(key.index()) else {
            return self.reject_as_full(id, 0.0);
        };
        let polls = self.holders.polls(holder);
        let earlier = || self.earlier_terms.units(id);
        let conversion = live.resource.convert(holder, ask, earlier, now);
        let converted = conversion.ask(ask);
        let ask = &converted.as_ref().unwrap_or(ask).awaiting(awaits);
        let before = (ask.bucket).map(|it| (it, live.resource.rates_before(ask.has.amount())));
        let capacity_before = |unit| Some(self.earlier_terms.lookup(id)?.capacity(unit));
        let decision = (live.resource).refresh(holder, polls, ask, capacity_before, now);
        live.resource.note_heard(holder, conversion.heard, now);
        let mut grant = live.grant(ask, &decision, now);
        if let Some((bucket, before)) = before {
            grant.tokens = (live.resource).continue_bucket(holder, bucket, before, &decision, now);
        } else if decision.lacks.is_some() {
            live.resource.forget_recent_demand(holder);
        }
        self.stats.count(&grant, decision.anomalies);
        let events = &mut self.events;
        live.report_events(&grant, decision.anomalies, events, now, || {
            self.holders.id(holder)
        });
        self.schedule_expiry(key);
        if decision.lacks.is_some() {
            self.withdraw_hint(holder, key);
            self.plan_hints(key, now);
        }
        self.note_outcomes(holder, key, ask, now);
        self.resume(place, holder, key);
        self.note_parent_update(key, now);
        self.note_unmet(key, now);
        grant
    }

    /// Takes what became of the holder's requests.
    fn note_outcomes(&mut self, holder: HolderKey, key: ResourceKey, ask: &Ask<'_>, now: Moment) {
        if ask.report.is_some() {
            self.count_outcomes(key);
        }
        if self.logs_usage {
            self.note_user(holder, key, now);
        }
    }

    fn note_user(&mut self, holder: HolderKey, key: ResourceKey, now: Moment) {
        if let Some(live) = self.live.get_mut(key.index())
            && let Some(id) = self.holders.id(holder)
            && let Some(entry) = live.resource.entries.get(holder)
            && !entry.is_cleared()
        {
            let users = live.resource.users.get_or_insert_default();
            users.note(entry.slot, id, now);
        }
    }

    /// Hands over the use of holders that have ended.
    fn take_usage(&mut self, key: ResourceKey) {
        if let Some(live) = self.live.get_mut(key.index())
            && let Some(users) = &mut live.resource.users
        {
            self.events.push_usage(&live.id, users.take_ended());
        }
    }

    /// Applies the law of feedback to a resource, if it is time. Holders hear of a change at once.
    fn apply_feedback(&mut self, key: ResourceKey, now: Moment) {
        let Some(live) = self.live.get_mut(key.index()) else {
            return;
        };
        if live.resource.apply_feedback(now) && live.resource.note_changed_terms(now) {
            self.hinting.rounds.insert(key);
        }
        let Some(effective) = &mut live.resource.effective else {
            return;
        };
        let changes = std::mem::take(&mut effective.changes);
        if effective.role() != Role::Act {
            return;
        }
        for change in &changes {
            self.events.push_change(&live.id, change);
        }
        if !changes.is_empty() {
            self.count_for_template(key, |counts| changes.iter().for_each(|it| counts.count(it)));
        }
    }

    /// Adds the outcomes of a request to those of the template.
    fn count_outcomes(&mut self, key: ResourceKey) {
        let live = self.live.get_mut(key.index());
        if let Some(outcomes) = live.and_then(|it| it.resource.outcomes.as_mut()) {
            let (new, ignored) = outcomes.take_uncounted();
            self.count_for_template(key, |counts| {
                counts.outcomes.add(&new);
                ignored.into_iter().for_each(|it| counts.count_ignored(it));
            });
        }
    }

    fn count_for_template(&mut self, key: ResourceKey, count: impl FnOnce(&mut TemplateCounts)) {
        let live = self.live.get(key.index());
        let Some(template) = live.and_then(|it| it.resource.terms.template()) else {
            return;
        };
        let glob = template.identifier_glob();
        match self.counts.get_mut(glob) {
            Some(counts) => count(counts),
            None => count(self.counts.entry(glob.into()).or_default()),
        }
    }

    /// Counts the holder of a released lease again, unless its request was a late one.
    pub(super) fn resume(&mut self, place: Place, holder: HolderKey, key: ResourceKey) {
        let entry = || self.live.get(key.index())?.resource.entries.get(holder);
        if place == Place::Released && entry().is_some_and(|entry| !entry.is_cleared()) {
            self.holders.add_lease(holder, key);
        }
    }

    /// Notes whether the demand for a resource is met.
    pub(super) fn note_unmet(&mut self, key: ResourceKey, now: Moment) {
        if let Some(live) = self.live.get_mut(key.index()) {
            let is_unmet = live.resource.unmet(&live.resource.terms, now) > 0.0;
            let before = live.unmet.clone();
            let change = live.unmet.observe(is_unmet, now);
            self.events.push_unmet(&live.id, change);
            self.unmet.update(key, &before, &live.unmet);
        }
    }

    /// Whether a holder may have a lease. It is counted if the holder has no entry yet.
    pub(super) fn place(
        &mut self,
        holder: HolderKey,
        key: ResourceKey,
        ask: &Ask<'_>,
        now: Moment,
    ) -> Place {
        let Some(live) = self.live.get(key.index()) else {
            return Place::Full;
        };
        let (place, leases) = match live.resource.entries.get(holder) {
            Some(entry) if !entry.is_cleared() => return Place::Held,
            // It is counted among the leases already.
            Some(_) => (Place::Released, 0),
            None => (Place::Held, 1),
        };
        // While a server learns, tenants have room for the clients that hold something.
        let learns = now < live.resource.learning_until;
        let claims_nothing = ask.has == Has::Amount(Capacity::ZERO) && ask.outstanding.get() == 0.0;
        let waits = learns && claims_nothing && self.holders.is_bounded_newcomer(holder);
        let max_per_tenant = self.settings.max_leases_per_tenant();
        let is_full = self.stats.leases.saturating_add(leases) > self.settings.max_leases;
        if waits || is_full || !self.holders.has_room(holder, leases, max_per_tenant) {
            return Place::Full;
        }
        if leases > 0 {
            self.holders.add_lease(holder, key);
            self.stats.leases += leases;
        }
        place
    }

    /// Returns whether the holder had a lease.
    pub(super) fn release_one(
        &mut self,
        holder: HolderKey,
        key: ResourceKey,
        stamp: RequestStamp,
        tokens: Option<Balance>,
        now: Moment,
    ) -> bool {
        let release = |resource: &mut Resource| resource.release(holder, stamp, tokens, now);
        let had_lease = self.change_lease(holder, key, now, release);
        self.plan_hints(key, now);
        self.note_parent_update(key, now);
        self.note_unmet(key, now);
        self.schedule_expiry(key);
        self.drop_if_empty(key, now);
        had_lease
    }

    /// Ends the lease of a holder, for a request of another one that is decided next. Returns
    /// whether it had one.
    pub(super) fn end_lease(&mut self, holder: HolderKey, key: ResourceKey, now: Moment) -> bool {
        self.change_lease(holder, key, now, |it| it.end_lease(holder, now))
    }

    /// `change` may remove the holder's lease, and returns whether it did.
    fn change_lease(
        &mut self,
        holder: HolderKey,
        key: ResourceKey,
        now: Moment,
        change: impl FnOnce(&mut Resource) -> bool,
    ) -> bool {
        let Some(live) = self.live.get_mut(key.index()) else {
            return false;
        };
        let before = live.resource.entries.len();
        let had_lease = change(&mut live.resource);
        let has_left = live.resource.entries.len() < before;
        self.take_usage(key);
        if has_left {
            self.stats.leases = self.stats.leases.saturating_sub(1);
            self.holders.remove_lease(holder, key);
            self.polls.remove_lease(&mut self.holders, holder, key, now);
        } else if let Some(live) = self.live.get(key.index()) {
            let entry = live.resource.entries.get(holder);
            if entry.is_some_and(Entry::is_cleared) {
                self.holders.retain_released(holder, key);
            }
            // A stale release settles no hint.
            if entry.is_none_or(|entry| !entry.is_hinted) {
                self.withdraw_hint(holder, key);
            }
        }
        had_lease
    }

    pub(super) fn key_of(&self, id: &ResourceId) -> Option<ResourceKey> {
        self.keys.find(id, |key| {
            let live = self.live.get(key.index());
            live.is_some_and(|live| live.id == *id)
        })
    }

    pub(super) fn live_resource(&self, id: &ResourceId) -> Option<&LiveResource> {
        self.live.get(self.key_of(id)?.index())
    }

    pub(super) fn live_resource_mut(&mut self, id: &ResourceId) -> Option<&mut LiveResource> {
        self.live.get_mut(self.key_of(id)?.index())
    }

    pub(super) fn find_or_add(&mut self, id: &ResourceId, now: Moment) -> ResourceKey {
        if let Some(key) = self.key_of(id) {
            return key;
        }
        let (terms, learning_until) = self.terms_of(id);
        self.stats.short_learning +=
            u64::from(self.ends_learning_early(&terms, learning_until, now));
        let lost = self.outstanding_until().filter(|end| now < *end);
        let predecessor = lost.map(|leases_end| LostPredecessor {
            replaced_at: self.started,
            leases_end,
            assumed: terms.capacity(),
            capacity: None,
        });
        self.learning_count.add(learning_until);
        self.next_incarnation += 1;
        let mut resource = Resource::new(terms, learning_until, predecessor, now);
        resource.parent = self.parents.as_ref().map(|_| Box::default());
        let key = ResourceKey::new(self.live.insert(LiveResource {
            id: id.clone(),
            incarnation: self.next_incarnation,
            resource,
            generation: self.generation,
            reported: [false; 5],
            unmet: UnmetDemand::NONE,
        }));
        self.by_id.insert(id.clone(), key);
        self.keys.insert(id, key);
        key
    }

    /// Drops a resource without holders if that loses nothing, or if there is no room for it.
    pub(super) fn drop_if_empty(&mut self, key: ResourceKey, now: Moment) {
        let has_room = self.by_id.len() <= self.settings.max_leases;
        if self.live.get(key.index()).is_some_and(|live| {
            live.resource.is_droppable(now) || live.resource.entries.is_empty() && !has_room
        }) && let Some(mut live) = self.live.remove(key.index())
        {
            let before = live.unmet.clone();
            self.events.push_unmet(&live.id, live.unmet.end(now));
            self.unmet.update(key, &before, &live.unmet);
            self.learning_count.remove(live.resource.learning_until);
            self.hinting.plans.set(key.index(), Moment::NEVER);
            self.expiries.set(key.index(), Moment::NEVER);
            self.by_id.remove(&live.id);
            self.keys.remove(&live.id, key);
            if let Some(parents) = &mut self.parents
                && live.resource.droppable_from() <= now
            {
                parents.forget(key, &live.id);
            }
        }
    }

    /// Sets the next deadline of a resource, unless an earlier one is set.
    pub(super) fn schedule_expiry(&mut self, key: ResourceKey) {
        let live = self.live.get(key.index());
        if let Some(end) = live.and_then(|live| live.resource.next_deadline())
            && end < self.expiries.get(key.index())
        {
            self.expiries.set(key.index(), end);
        }
    }

    /// Counts a holder that was rejected for want of room.
    fn count_full(&mut self) {
        let (total, new) = if self.stats.leases >= self.settings.max_leases {
            (&mut self.stats.full, &mut self.events.full)
        } else {
            (&mut self.stats.tenant_full, &mut self.events.tenant_full)
        };
        *total += 1;
        *new += 1;
    }

    /// The response to a new holder when the ledger is full.
    pub(super) fn reject_as_full(&self, id: &ResourceId, clients: f64) -> Grant {
        let (terms, _) = self.terms_of(id);
        let decision = Decision {
            refresh_interval: terms.refresh_interval(false),
            reason: Reason::Full,
            ..Decision::none(&terms)
        };
        let (signal, levels) = (Signal::None, Vec::new());
        Grant::new(id.clone(), &terms, clients + 1.0, &decision, signal, levels)
    }

    pub(super) fn terms_of(&self, id: &ResourceId) -> (ResourceTerms, Moment) {
        let terms = match self.parents {
            Some(_) => ResourceTerms::unanswered(),
            None => self.document.lookup(id).map_or_else(
                || ResourceTerms::unmatched(self.settings.unmatched),
                ResourceTerms::of,
            ),
        };
        let terms = terms.with_tuning(self.tuning);
        let learning_until = self
            .outstanding_until()
            .map_or(self.started, |outstanding| {
                terms.learning_until(self.started, outstanding)
            });
        (terms, learning_until)
    }

    /// The new terms of a resource that has not adopted the current document.
    pub(super) fn newer_terms(&self, live: &LiveResource) -> Option<(ResourceTerms, Moment)> {
        let is_old = live.generation != self.generation && self.parents.is_none();
        is_old.then(|| self.terms_of(&live.id))
    }

    pub(super) fn adopt_document(&mut self, key: ResourceKey, now: Moment) {
        let Some(live) = self.live.get(key.index()) else {
            return;
        };
        let Some((terms, learning_until)) = self.newer_terms(live) else {
            return;
        };
        let old = &live.resource;
        let was_early = self.ends_learning_early(&old.terms, old.learning_until, now);
        let is_early = self.ends_learning_early(&terms, learning_until, now);
        self.stats.short_learning += u64::from(is_early && !was_early);
        if let Some(live) = self.live.get_mut(key.index()) {
            self.learning_count
                .change(live.resource.learning_until, learning_until);
            let before = live.resource.terms.clone();
            live.resource.set_terms(terms, learning_until, now);
            // The effective capacity may stay the same.
            let is_change = before.differ_from(&live.resource.terms);
            live.generation = self.generation;
            if is_change && live.resource.note_changed_terms(now) {
                self.hinting.rounds.insert(key);
            }
        }
    }

    /// The policy for resources without a template.
    #[must_use]
    pub fn unmatched_policy(&self) -> UnmatchedPolicy {
        self.settings.unmatched
    }

    pub(super) fn outstanding_until(&self) -> Option<Moment> {
        match self.settings.predecessor {
            Predecessor::None => None,
            Predecessor::Until(outstanding) => Some(outstanding),
        }
    }

    /// Whether learning mode ends before the predecessor's leases.
    pub(super) fn ends_learning_early(
        &self,
        terms: &ResourceTerms,
        learning_until: Moment,
        now: Moment,
    ) -> bool {
        let is_early = |outstanding| learning_until.max(now) < outstanding;
        terms.rule().divides() && self.outstanding_until().is_some_and(is_early)
    }
}

fn longest_refresh_interval(document: &Document) -> f64 {
    let templates = document.templates().iter();
    let intervals = templates.map(|it| it.algorithm().refresh_interval.get());
    intervals.fold(0.0, f64::max)
}
