//! Why a holder has what it has, in a sentence for people. It names no other holder: who reads it may not see the others.

use doorman_openapi::{
    AlgorithmKind, Balance, Capacity, HeldBackBy, Probability, ResourceView, Seconds,
};

use super::{decision::reaches, holding::HolderStatus};
use crate::util::rounded::rounded;

/// What comes sooner, in seconds, would be written as 0 s.
const SOON: f64 = 0.001;

/// The sentence on one holder of a resource.
pub(super) fn why(resource: &ResourceView, holding: &HolderStatus) -> String {
    let mut why = match holding.held_back_by {
        None => content(holding),
        Some(HeldBackBy::Share) => share(resource, holding),
        Some(HeldBackBy::Others) => format!(
            "its share is {}, of which {} can be granted: others still hold {} of {}, and give back what is above their shares when \
             they refresh, every {} s, or when their leases end",
            rounded(holding.share),
            rounded(holding.within_reach),
            rounded(holding.others),
            capacity(resource),
            rounded(resource.refresh_interval.get()),
        ),
        Some(HeldBackBy::Learning) => learning(resource, holding),
        Some(HeldBackBy::Blocked) if resource.template.is_none() => {
            "no template matches, and this server refuses what none matches".to_owned()
        }
        Some(HeldBackBy::Blocked) => "the capacity is 0".to_owned(),
        Some(HeldBackBy::NotRefreshed) => not_refreshed(holding),
        Some(HeldBackBy::Balance) => format!(
            "the bucket that all holders share is empty ({} left): nothing is admitted until it fills again",
            rounded(resource.balance.map_or(0.0, Balance::get)),
        ),
        Some(HeldBackBy::Suppressed) => format!(
            "more than {} is wanted: all holders admit each request with a probability of {}",
            capacity(resource),
            rounded(resource.admission_probability.map_or(1.0, Probability::get)),
        ),
        Some(HeldBackBy::Bound) => {
            "the server has not written down yet until when this lease lasts: until it has, the holder is told of a shorter one, or \
             of none"
                .to_owned()
        }
    };
    let interval = resource.refresh_interval.get();
    if let Some(overdue) = holding
        .due_in
        .map(|due| -due)
        .filter(|by| *by > interval && holding.booked > 0.0)
    {
        why += &format!(
            "; it should have come back {} s ago: if it does not, what it has is free in {} s",
            rounded(overdue),
            rounded(holding.expires_in.get()),
        );
    }
    why
}

fn content(holding: &HolderStatus) -> String {
    if holding.wants <= 0.0 {
        "it wants nothing".to_owned()
    } else if reaches(holding.share, holding.wants) {
        "it has what it wants".to_owned()
    } else {
        format!(
            "it has what it wants; its share is {} now, which it is told when it next comes back",
            rounded(holding.share),
        )
    }
}

fn share(resource: &ResourceView, holding: &HolderStatus) -> String {
    let share = rounded(holding.share);
    // Its part would do, but is no whole number of steps.
    if holding
        .exact_share
        .is_some_and(|exact| reaches(exact, holding.wants))
    {
        return format!("its share is {share}, in whole steps");
    }
    let steps = holding.exact_share.map_or("", |_| " (in whole steps)");
    let wanted = || {
        format!(
            "{} are wanted of {}",
            rounded(resource.sum_wants),
            capacity(resource)
        )
    };
    match (resource.algorithm, resource.fill_level) {
        (AlgorithmKind::FairShare, Some(level)) => format!(
            "its share is {share}: {}, so that no client gets more than {}{steps}",
            wanted(),
            rounded(level)
        ),
        (AlgorithmKind::ProportionalShare, _) => format!(
            "its share is {share}: {}, of which each client may have an equal part, and what some leave of theirs goes to those who \
             want more{steps}",
            wanted()
        ),
        (AlgorithmKind::Static | AlgorithmKind::Suppression | AlgorithmKind::SharedBucket, _) => {
            format!("each holder gets {} at most{steps}", capacity(resource))
        }
        // Where all fits each has what it wants, but for a rounding.
        (AlgorithmKind::FairShare | AlgorithmKind::NoAlgorithm, _) => {
            format!("its share is {share}{steps}")
        }
    }
}

fn learning(resource: &ResourceView, holding: &HolderStatus) -> String {
    let left = rounded(resource.learning_ends_in.map_or(0.0, Seconds::get));
    let meanwhile = if holding.has > 0.0 {
        "until then it keeps at most what it said it has or has outstanding"
    } else {
        "newcomers get nothing until then"
    };
    format!("the server learns for {left} s what its predecessor leased: {meanwhile}")
}

fn not_refreshed(holding: &HolderStatus) -> String {
    let reach = rounded(holding.within_reach);
    let since = if holding.lease_end.is_some() {
        "its share, or what is free, has grown since a request of it was last decided"
    } else {
        "its lease has ended"
    };
    let due = match holding.due_in {
        Some(due) if due >= SOON => format!(", in {} s at most", rounded(due)),
        Some(due) if due >= 0.0 => ", any moment".to_owned(),
        _ => String::new(),
    };
    format!("{since}: it is granted {reach} when it comes back{due}")
}

fn capacity(resource: &ResourceView) -> String {
    rounded(resource.capacity.map_or(0.0, Capacity::get))
}
