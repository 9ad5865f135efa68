//! A node without a safety rule.

use std::collections::BTreeMap;

use doorman_core::ledger::Ledger;
use doorman_openapi::{
    CLOCK_DRIFT, Capacity, HeldLease, Moment, Reason, ResourceId, Seconds, Seq,
    ServerCapacityRequest, ServerCapacityResponse,
};

use super::Rule;

/// State of a node without a safety rule, by resource.
#[derive(Debug, Clone, Default)]
pub struct NodeAblation {
    /// The capacity in the parent's last response.
    told: BTreeMap<ResourceId, Capacity>,
    /// The last request to the parent.
    asked: BTreeMap<ResourceId, Seq>,
    /// The claim of each holder before the parent had answered.
    claims: BTreeMap<ResourceId, BTreeMap<String, Capacity>>,
    /// The newest lease from the parent, and the older one that the node without the rule keeps.
    leases: BTreeMap<ResourceId, [ToldLease; 2]>,
}

/// A lease from the parent.
#[derive(Debug, Clone, Copy)]
struct ToldLease {
    amount: f64,
    end: Moment,
}

impl ToldLease {
    const NONE: Self = Self {
        amount: 0.0,
        end: Moment::ORIGIN,
    };
}

impl NodeAblation {
    /// Remembers what a holder claims of a resource before the parent has answered.
    pub fn note_claim(&mut self, id: &ResourceId, holder: &str, has: Option<HeldLease>) {
        let claim = has.map_or(Capacity::ZERO, |it| it.capacity);
        let claims = self.claims.entry(id.clone()).or_default();
        // Also after the holder has said that it has nothing.
        let largest = claims.entry(holder.to_owned()).or_default();
        *largest = claim.max(*largest);
    }

    /// Claims for the holders what they claim.
    fn claim_for_holders(&self, request: &mut ServerCapacityRequest) {
        for resource in &mut request.resources {
            let claims = self.claims.get(&resource.resource_id);
            let claims = claims.into_iter().flat_map(BTreeMap::values);
            let claim: f64 = claims.map(|it| it.get()).sum();
            if resource.has.is_none() && claim > 0.0 {
                let capacity = Capacity::saturating(claim);
                resource.has = Some(HeldLease::from(capacity));
                resource.outstanding = capacity;
            }
        }
    }

    /// Records the answers that come too late, which the node ignores.
    pub fn take_late_answers(
        &self,
        seq: Seq,
        sent: Moment,
        response: &ServerCapacityResponse,
        ledger: &mut Ledger,
        now: Moment,
    ) {
        for resource in &response.resources {
            let id = &resource.answer.resource_id;
            if self.asked.get(id) == Some(&seq) && ledger.is_parent_answer_late(id, now) {
                ledger.record_parent_response(resource, sent, now);
            }
        }
    }

    /// Keeps the older leases from the parent that cover what is booked, without the holders that
    /// are not heard yet.
    pub fn keep_booked_leases(
        &mut self,
        response: &ServerCapacityResponse,
        sent: Moment,
        ledger: &mut Ledger,
        now: Moment,
    ) {
        for resource in &response.resources {
            let id = &resource.answer.resource_id;
            let Some((_, booked)) = ledger.demand_of(id) else {
                continue;
            };
            let lease = resource.answer.gets;
            let newest = ToldLease {
                amount: lease.capacity.get(),
                end: sent.after_seconds(lease.lease_length.get()),
            };
            let before = self.leases.get(id).copied();
            let before = before.unwrap_or([ToldLease::NONE; 2]).into_iter();
            let older = before
                .filter(|it| now < it.end && (newest.amount < it.amount || newest.end < it.end))
                .filter(|it| newest.amount < booked || newest.end < it.end)
                .max_by_key(|it| (booked <= it.amount, it.end));
            let older = older.unwrap_or(ToldLease::NONE);
            ledger.set_older_parent_lease(id, older.amount, older.end);
            self.leases.insert(id.clone(), [newest, older]);
        }
    }

    /// Changes a request to the parent to that of a node without the rule.
    pub fn change_request(
        &mut self,
        without: Rule,
        seq: Seq,
        request: &mut ServerCapacityRequest,
        ledger: &Ledger,
    ) {
        let ids = request.resources.iter().map(|it| it.resource_id.clone());
        self.asked.extend(ids.map(|id| (id, seq)));
        match without {
            Rule::AskParentFirst => {
                for resource in &mut request.resources {
                    resource.has.get_or_insert(HeldLease::from(Capacity::ZERO));
                }
            }
            Rule::OwnLeasesOnly => self.claim_for_holders(request),
            Rule::StatedOutstanding => {
                for resource in &mut request.resources {
                    let booked = ledger.demand_of(&resource.resource_id);
                    resource.outstanding = Capacity::saturating(booked.map_or(0.0, |it| it.1));
                }
            }
            _ => {}
        }
    }

    /// Changes a response of the parent so that the node behaves as if the rule were missing.
    pub fn change_response(
        &mut self,
        without: Rule,
        response: &mut ServerCapacityResponse,
        sent: Moment,
        ledger: &mut Ledger,
        now: Moment,
    ) {
        for resource in &mut response.resources {
            let id = resource.answer.resource_id.clone();
            let capacity = resource.answer.gets.capacity;
            let told = self.told.insert(id, capacity);
            let length = resource.answer.gets.lease_length.get();
            if length == 0.0 {
                continue;
            }
            let mut set_length = |length| {
                resource.answer.gets.lease_length = Seconds::saturating(length);
            };
            match without {
                Rule::ParentLeaseFromSendTime => {
                    set_length(length + now.seconds_since(sent));
                }
                Rule::ParentLeaseEnd => set_length(4.0 * length),
                Rule::StatedDuration
                    if told.is_none() && resource.answer.reason == Reason::Pending =>
                {
                    set_length(length / (CLOCK_DRIFT * CLOCK_DRIFT));
                }
                // Records the earlier capacity first, with the end of the new lease.
                Rule::OlderParentLease => {
                    if let Some(told) = told.filter(|told| *told > capacity) {
                        let mut earlier = resource.clone();
                        earlier.answer.gets.capacity = told;
                        ledger.record_parent_response(&earlier, sent, now);
                    }
                }
                _ => {}
            }
        }
    }
}
