//! Lease requests and their answers without a safety rule.

use std::collections::BTreeMap;

use doorman_core::ledger::{Grant, HolderStatus, Ledger, PageQuery};
use doorman_openapi::{
    AlgorithmKind, CLOCK_DRIFT, Capacity, CapacityRequest, CapacityResponse, ClientId, Epoch,
    HeldLease, Moment, Reason, ReleaseRequest, ResourceId, Seconds, ServerCapacityRequest,
};

use super::Rule;
use crate::limits::{Demand, Limit};

/// A client starts less often in a run.
const MAX_INCARNATIONS: u32 = 32;

/// Changes a request of a client to that of one without the rule. `epoch` is that of the server.
pub fn change_client_request(without: Rule, request: &mut CapacityRequest, epoch: Option<Epoch>) {
    match without {
        Rule::RequestSeq => request.seq = None,
        Rule::ClientRun => request.run = None,
        Rule::EpochEcho => request.heard_epoch = epoch,
        Rule::CombinedBooking => {
            for resource in &mut request.resources {
                resource.has = None;
            }
        }
        Rule::Outstanding => {
            for resource in &mut request.resources {
                resource.outstanding = Capacity::ZERO;
            }
        }
        _ => {}
    }
}

/// Ends the leases of all other clients that replace the same name.
pub fn release_others_of_its_name(request: &CapacityRequest, ledger: &mut Ledger, now: Moment) {
    for name in &request.replaces {
        for incarnation in 0..MAX_INCARNATIONS {
            let client_id = ClientId::new(format!("{name}-{incarnation}"));
            let client_id = client_id.expect("the id is valid");
            if client_id != request.client_id {
                let release = ReleaseRequest {
                    client_id,
                    run: None,
                    seq: None,
                    heard_epoch: None,
                    resource_ids: None,
                    tokens: BTreeMap::new(),
                };
                ledger.release(&release.into(), now);
            }
        }
    }
}

/// The same for a node. `learns`: the server is in learning mode.
pub fn change_node_request(
    without: Rule,
    request: &mut ServerCapacityRequest,
    epoch: Option<Epoch>,
    learns: bool,
) {
    match without {
        Rule::RequestSeq => request.seq = None,
        Rule::Epoch => request.epoch = None,
        Rule::EpochEcho => request.heard_epoch = epoch,
        Rule::CombinedBooking => {
            for resource in &mut request.resources {
                resource.has = Some(HeldLease::from(Capacity::ZERO));
                resource.outstanding = Capacity::ZERO;
            }
        }
        // What it reports as outstanding counts as what it has.
        Rule::OutstandingWhileLearning if learns => {
            for resource in &mut request.resources {
                let outstanding = resource.outstanding;
                let has = resource.has.as_mut();
                if let Some(has) = has.filter(|it| it.capacity < outstanding) {
                    has.capacity = outstanding;
                }
            }
        }
        _ => {}
    }
}

/// Changes a response that a client takes `latency` seconds after it sent its request.
pub fn change_client_response(without: Rule, response: &mut CapacityResponse, latency: f64) {
    if without == Rule::LeaseFromSendTime {
        for granted in &mut response.resources {
            let length = &mut granted.gets.lease_length;
            if *length > Seconds::ZERO {
                *length = Seconds::saturating(length.get() + latency);
            }
        }
    }
}

/// Changes grants to those of a server without the rule. `claims` are those of a client, by
/// resource.
pub fn change_grants<'a>(
    without: Rule,
    grants: &mut [Grant],
    claims: &[f64],
    ledger: &Ledger,
    holder: &str,
    limit: impl Fn(&ResourceId) -> &'a Limit,
    now: Moment,
) {
    for grant in &mut *grants {
        change_grant(
            without,
            grant,
            ledger,
            holder,
            limit(&grant.resource_id),
            now,
        );
    }
    for (grant, claim) in grants.iter_mut().zip(claims.iter().copied()) {
        match without {
            Rule::StrictCover => lease_uncovered_claim(grant, claim, ledger, now),
            Rule::ClaimLimit => {
                let limit = limit(&grant.resource_id);
                grant_claim(grant, claim, ledger, holder, limit, now);
            }
            _ => {}
        }
    }
}

/// Changes a grant to what the ledger would grant `holder` without the rule.
fn change_grant(
    without: Rule,
    grant: &mut Grant,
    ledger: &Ledger,
    holder: &str,
    limit: &Limit,
    now: Moment,
) {
    match without {
        Rule::RestatedExpiry if grant.lease_length > Seconds::ZERO => {
            grant.lease_length = grant.algorithm.lease_length;
        }
        Rule::ClockDrift => {
            grant.lease_length = Seconds::saturating(grant.lease_length.get() * CLOCK_DRIFT);
        }
        Rule::GrantCap => {
            if let Some((holders, own)) = holders(ledger, grant, holder, now) {
                let demands: Vec<_> = holders.iter().map(demand).collect();
                let share = limit.shares(&demands)[own];
                grant.capacity = Capacity::saturating(grant.capacity.get().max(share));
                if grant.reason == Reason::Pending {
                    grant.reason = Reason::Share;
                }
            }
        }
        Rule::StaticLimit if grant.algorithm.kind == AlgorithmKind::Static => {
            if let Some((holders, own)) = holders(ledger, grant, holder, now) {
                grant.capacity = holders[own].view.wants;
            }
        }
        Rule::GradualCut => {
            if let Some((holders, own)) = holders(ledger, grant, holder, now) {
                let booked: f64 = holders.iter().map(|it| it.view.booked).sum();
                let free = (limit.capacity - (booked - holders[own].view.booked)).max(0.0);
                grant.capacity = Capacity::saturating(grant.capacity.get().min(free));
            }
        }
        _ => {}
    }
}

/// Changes a grant to what a node without the rule of [`Rule::StrictCover`] would lease on a claim
/// that is not confirmed.
fn lease_uncovered_claim(grant: &mut Grant, claim: f64, ledger: &Ledger, now: Moment) {
    let resource = ledger.resource(&grant.resource_id, now);
    let parent = resource.and_then(|it| it.parent);
    let left = parent.map_or(0.0, |it| it.expires_in.get());
    if grant.lease_length == Seconds::ZERO && claim > 0.0 && left > 0.0 {
        grant.capacity = Capacity::saturating(claim);
        grant.lease_length = Seconds::saturating(left / CLOCK_DRIFT);
        grant.booked_until = now.after_seconds(left);
    }
}

/// Grants what a client claims, up to its share.
fn grant_claim(
    grant: &mut Grant,
    claim: f64,
    ledger: &Ledger,
    holder: &str,
    limit: &Limit,
    now: Moment,
) {
    if grant.lease_length > Seconds::ZERO
        && let Some((holders, own)) = holders(ledger, grant, holder, now)
    {
        let demands: Vec<_> = holders.iter().map(demand).collect();
        let share = limit.shares(&demands)[own];
        let capacity = grant.capacity.get().max(claim.min(share));
        grant.capacity = Capacity::saturating(capacity);
    }
}

/// All holders of the granted resource, and the index of one of them.
fn holders(
    ledger: &Ledger,
    grant: &Grant,
    holder: &str,
    now: Moment,
) -> Option<(Vec<HolderStatus>, usize)> {
    let query = PageQuery::unfiltered(100);
    let page = ledger.holders(&grant.resource_id, &query, None, now).ok()?;
    let own = page
        .holders
        .iter()
        .position(|it| it.view.client_id == holder)?;
    Some((page.holders, own))
}

fn demand(HolderStatus { view, .. }: &HolderStatus) -> Demand {
    let clients = view.bands.iter().map(|band| band.num_clients.get() as f64);
    Demand {
        weight: clients.sum::<f64>().max(1.0),
        wants: view.wants.get(),
        priority: view.priority,
    }
}
