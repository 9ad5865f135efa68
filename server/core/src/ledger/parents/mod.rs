//! The ledger of a node that leases its capacity from a parent node.
//!
//! `upstream` asks the parent and passes its responses on. Until the parent has answered, the
//! demand of holders is registered without a decision.

pub(in crate::ledger) mod state;

use doorman_openapi::{Moment, ResourceId, ServerResourceRequest, ServerResourceResponse};

use crate::ledger::{
    call::LeaseCall,
    keys::{HolderKey, ResourceKey},
    records::ParentRecord,
    resource::booking::Hold,
    resource::parent::{EarlierLeases, ParentAnswer, ParentLease},
    resource::{Ask, Resource},
    state::Ledger,
    state::Place,
    terms::ResourceTerms,
    terms::unit::AmountUnit,
};

/// A change that the parent should hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParentUpdate {
    /// The demand of a resource, or what its holders have, has changed.
    Changed(ResourceId),
    /// A resource has no holders any more.
    Gone(ResourceId),
}

impl Ledger {
    /// Leases the capacity of all resources from a parent node. The document does not count.
    #[must_use]
    pub fn of_parent(self) -> Self {
        Self {
            parents: Some(Box::default()),
            ..self
        }
    }

    /// Registers the demand of a holder for resources of which the parent must be asked first, from
    /// position `from` on. Returns whether there are any, and where to continue.
    pub fn register_part(
        &mut self,
        call: &LeaseCall,
        from: usize,
        now: Moment,
    ) -> (bool, Option<usize>) {
        if self.parents.is_none() {
            return (false, None);
        }
        let (kind, stamp) = (call.holder.kind(), self.stamp(call.sent));
        let holder = self.register(call, now);
        let max = self.max_leased_part(now);
        let part = call.resources.iter().skip(from).take(max);
        let mut awaits = false;
        for asked in part {
            let ask = asked.ask(kind, stamp);
            awaits |= self.register_one(holder, &asked.resource_id, &ask, now);
        }
        self.holders.end_request();
        let next = Some(from.saturating_add(max)).filter(|next| *next < call.len());
        (awaits, next)
    }

    /// Whether the parent must be asked before the holder gets an answer. Then its demand is
    /// registered without a decision.
    fn register_one(
        &mut self,
        holder: HolderKey,
        id: &ResourceId,
        ask: &Ask<'_>,
        now: Moment,
    ) -> bool {
        let key = self.find_or_add(id, now);
        let Some(live) = self.live.get_mut(key.index()) else {
            return false;
        };
        if !live.resource.awaits_parent(now) {
            return false;
        }
        // It is converted again for its answer, which may be in another unit.
        let earlier = || self.earlier_terms.units(id);
        let conversion = live.resource.convert(holder, ask, earlier, now);
        let converted = conversion.ask(ask);
        let ask = converted.as_ref().unwrap_or(ask);
        let place = self.place(holder, key, ask, now);
        if place == Place::Full {
            self.drop_if_empty(key, now);
            return false;
        }
        if let Some(live) = self.live.get_mut(key.index()) {
            live.resource.register(holder, ask, now);
        }
        self.resume(place, holder, key);
        self.schedule_expiry(key);
        self.note_parent_update(key, now);
        self.note_unmet(key, now);
        true
    }

    /// Whether leases of a previous master may exist that this one does not know: a holder that
    /// gets no answer keeps its lease.
    #[must_use]
    pub fn may_have_lost_leases(&self, now: Moment) -> bool {
        let parents = self.parents.as_ref();
        self.outstanding_until().is_some_and(|end| now < end)
            || parents.is_some_and(|it| now < it.uncovered_until)
    }

    /// Notes until when holders have leases that were restored without the node's own.
    pub(in crate::ledger) fn note_unknown_leases(&mut self, key: ResourceKey) {
        let (Some(parents), Some(live)) = (&mut self.parents, self.live.get(key.index())) else {
            return;
        };
        let parent = live.resource.parent.as_ref();
        if parent.is_some_and(|it| it.is_unknown()) {
            let ends = live.resource.entries.iter();
            let ends = ends.map(|entry| entry.booking.last_end());
            parents.uncovered_until = ends.fold(parents.uncovered_until, Moment::max);
        }
    }

    /// Takes the updates for the parent since the last call.
    pub fn take_parent_updates(&mut self) -> Vec<ParentUpdate> {
        let Some(parents) = &mut self.parents else {
            return Vec::new();
        };
        let gone = parents.gone.drain(..).map(ParentUpdate::Gone);
        let changed = std::mem::take(&mut parents.changed).into_iter();
        let changed = changed.filter_map(|key| {
            let live = self.live.get(key.index())?;
            Some(ParentUpdate::Changed(live.id.clone()))
        });
        gone.chain(changed).collect()
    }

    /// Whether there are updates for the parent.
    #[must_use]
    pub fn has_parent_updates(&self) -> bool {
        let parents = self.parents.as_ref();
        parents.is_some_and(|it| !it.changed.is_empty() || !it.gone.is_empty())
    }

    /// The demand of a resource, in total, and what its holders have; `None` when it has no
    /// holders.
    #[must_use]
    pub fn demand_of(&self, id: &ResourceId) -> Option<(f64, f64)> {
        let live = self.live_resource(id)?;
        Some((live.resource.sum_wants(), live.resource.sum_has()))
    }

    /// The request to the parent for these resources, which count as asked.
    pub fn parent_requests<'a>(
        &mut self,
        ids: impl IntoIterator<Item = &'a ResourceId>,
        now: Moment,
    ) -> Vec<ServerResourceRequest> {
        let mut requests = Vec::new();
        for id in ids {
            let Some(key) = self.key_of(id) else {
                continue;
            };
            self.expire_leases(key, now);
            if let Some(parents) = &mut self.parents {
                parents.changed.remove(&key);
            }
            if let Some(live) = self.live.get_mut(key.index()) {
                requests.extend(live.resource.request_of_parent(id.clone(), now));
            }
        }
        requests
    }

    /// Whether an answer to the last request for a resource must be ignored: the lease that the
    /// request named has ended since.
    #[must_use]
    pub fn is_parent_answer_late(&self, id: &ResourceId, now: Moment) -> bool {
        self.live_resource(id)
            .is_some_and(|live| live.resource.is_parent_answer_late(now))
    }

    /// Records the parent's response for one resource, of a request that was sent at `sent`.
    pub fn record_parent_response(
        &mut self,
        response: &ServerResourceResponse,
        sent: Moment,
        now: Moment,
    ) {
        let Some(key) = self.key_of(&response.answer.resource_id) else {
            return;
        };
        self.expire_leases(key, now);
        let template = self.parents.as_mut();
        let template = template.and_then(|it| it.template(response, now));
        let Some(live) = self.live.get_mut(key.index()) else {
            return;
        };
        let resource = &mut live.resource;
        let knows_terms = ResourceTerms::are_in(template.as_ref(), response);
        // Amounts in another unit cannot be compared with those of the response.
        let unit = ResourceTerms::of_parent(template.as_ref(), response, 0.0, false);
        let factor = resource.factor_to(&unit);
        if knows_terms
            && factor != 1.0
            && let Some(parent) = &mut resource.parent
        {
            parent.scale(factor);
            let mut terms = unit.with_tuning(self.tuning);
            terms.set_leased(parent.capacity(now));
            resource.set_terms(terms, resource.learning_until, now);
        }
        let answer = ParentAnswer { response, sent };
        let earlier = resource.record_parent_answer(&answer, now);
        let parent = resource.parent.as_ref();
        let capacity = parent.map_or(0.0, |it| it.capacity(now));
        let has_surplus = parent.is_some_and(|it| it.has_surplus(now));
        let terms = if knows_terms {
            ResourceTerms::of_parent(template.as_ref(), response, capacity, has_surplus)
                .with_tuning(self.tuning)
        } else {
            // The parent has no answer of its own parent yet.
            let mut terms = resource.terms.clone();
            terms.set_leased(capacity);
            terms
        };
        let mut learning_until = resource.learning_until;
        match earlier {
            _ if !terms.rule().divides() => learning_until = learning_until.min(now),
            EarlierLeases::None => learning_until = learning_until.min(now),
            EarlierLeases::Until(end) => learning_until = learning_until.max(end),
            EarlierLeases::Unknown => {}
        }
        let is_change = terms.differ_from(&resource.terms);
        let known = resource.terms.template();
        let is_edited = known.is_some() && terms.template() != known;
        self.learning_count
            .change(resource.learning_until, learning_until);
        if is_change || learning_until != resource.learning_until {
            resource.set_terms_of_parent(terms, learning_until, now);
        }
        resource.record_parent_signal(&answer, now);
        if is_edited && resource.note_changed_terms(now) {
            self.hinting.rounds.insert(key);
        }
        self.plan_hints(key, now);
        self.note_parent_update(key, now);
        self.note_unmet(key, now);
        self.schedule_expiry(key);
        self.drop_if_empty(key, now);
    }

    pub(in crate::ledger) fn restore_parent(
        &mut self,
        key: ResourceKey,
        record: &ParentRecord,
        stopped: Moment,
    ) {
        let Some(parents) = &mut self.parents else {
            return;
        };
        let template = parents.template(&record.response, stopped);
        if let Some(live) = self.live.get_mut(key.index()) {
            let mut parent = ParentLease::restore(record, stopped);
            let unit = AmountUnit::of_record(record.unit, record.per);
            let told = template.as_ref().map(ResourceTerms::of);
            let told = told.and_then(|terms| terms.unit());
            // The unit before the parent told of none.
            live.resource.unit = told.or(unit);
            if let Some((from, to)) = unit.zip(told) {
                parent.scale(to.factor_from(from));
            }
            let capacity = parent.capacity(stopped);
            // The demand behind this lease is unknown, so no surplus is assumed.
            let response = &record.response;
            let terms = if ResourceTerms::are_in(template.as_ref(), response) {
                ResourceTerms::of_parent(template.as_ref(), response, capacity, false)
            } else {
                ResourceTerms::unanswered()
            };
            let terms = terms.with_tuning(self.tuning);
            let before = live.resource.learning_until;
            let left = stopped.as_nanos().saturating_add(record.learning_left);
            let learning_until = before.max(Moment::from_nanos(left));
            self.learning_count.change(before, learning_until);
            live.resource.parent = Some(Box::new(parent));
            live.resource
                .set_terms_of_parent(terms, learning_until, stopped);
        }
    }

    /// The parent has hinted a resource: holders are hinted, too, and a demand that they report to
    /// have fallen is reported at once for a while.
    pub fn pass_hint(&mut self, id: &ResourceId, now: Moment) {
        let Some(key) = self.key_of(id) else {
            return;
        };
        self.hint_chosen(key, |resource, polls| {
            if let Some(parent) = &mut resource.parent {
                parent.set_hinted(now);
            }
            Some(resource.ask_demand(polls, now))
        });
        self.plan_hints(key, now);
    }

    /// The parent has rejected a resource.
    pub fn record_parent_rejection(&mut self, id: &ResourceId) {
        if let Some(parent) = self.parent_lease_mut(id) {
            parent.is_rejected = true;
        }
    }

    /// Replaces the older lease from the parent. For the simulation of a node without a safety
    /// rule.
    pub fn set_older_parent_lease(&mut self, id: &ResourceId, amount: f64, end: Moment) {
        if let Some(parent) = self.parent_lease_mut(id) {
            parent.older = Hold { amount, end };
        }
    }

    fn parent_lease_mut(&mut self, id: &ResourceId) -> Option<&mut ParentLease> {
        self.live_resource_mut(id)?.resource.parent.as_deref_mut()
    }

    /// The parent's newest lease has ended.
    pub fn record_parent_end(&mut self, id: &ResourceId, now: Moment) {
        if let Some(live) = self.live_resource_mut(id) {
            live.resource.follow_parent(now);
        }
    }

    /// Notes whether the parent should hear of a resource.
    pub(in crate::ledger) fn note_parent_update(&mut self, key: ResourceKey, now: Moment) {
        if let Some(parents) = &mut self.parents
            && let Some(live) = self.live.get_mut(key.index())
            && (live.resource.take_due_report(now) || live.resource.has_parent_update(now))
        {
            parents.changed.insert(key);
        }
    }
}

impl Resource {
    /// Whether the parent must be asked before a holder gets an answer.
    fn awaits_parent(&self, now: Moment) -> bool {
        let is_learning = self.is_learning(now);
        let parent = self.parent.as_ref();
        parent.is_some_and(|it| it.awaits(is_learning))
    }
}
