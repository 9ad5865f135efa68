//! Answers bent to what they would be without a rule.

use doorman_openapi::{CLOCK_DRIFT, Capacity, Moment, Reason, Seconds};
use doorman_server::ledger::{Grant, HolderStatus, Ledger, PageQuery};

use super::{Rule, terms::Terms};

/// Bends an answer to what it would be without the rule.
pub(super) fn bend(
    without: Option<Rule>,
    granted: &mut Grant,
    core: &Ledger,
    holder: &str,
    terms: &Terms,
    now: Moment,
) {
    let is_lease = granted.lease_length > Seconds::ZERO;
    match without {
        Some(Rule::Restating) if is_lease => granted.lease_length = granted.algorithm.lease_length,
        Some(Rule::Drift) => {
            granted.lease_length = Seconds::saturating(granted.lease_length.get() * CLOCK_DRIFT);
        }
        Some(Rule::Granting | Rule::Cuts) => {
            let id = &granted.resource_id;
            let Ok(page) = core.holders(id, &PageQuery::unfiltered(100), None, now) else {
                return;
            };
            let holders = page.holders;
            let Some(own) = holders.iter().position(|it| it.id == holder) else {
                return;
            };
            let amount = if without == Some(Rule::Cuts) {
                let others = holders.iter().map(|it| it.booked).sum::<f64>() - holders[own].booked;
                granted
                    .capacity
                    .get()
                    .min((terms.capacity - others).max(0.0))
            } else {
                let demand = |it: &HolderStatus| {
                    let clients = it.bands.iter().map(|band| band.num_clients.get() as f64);
                    (clients.sum::<f64>().max(1.0), it.wants)
                };
                let demands: Vec<_> = holders.iter().map(demand).collect();
                granted.capacity.get().max(terms.shares(&demands)[own])
            };
            granted.capacity = Capacity::saturating(amount);
            if without == Some(Rule::Granting) && granted.reason == Reason::Pending {
                granted.reason = Reason::Share;
            }
        }
        _ => {}
    }
}
