//! Requests under way, and what goes into the next.

use std::time::Duration;

use doorman_openapi::{Moment, ResourceId};

use super::{entry::Entry, resources::Resources, roll::Named};

/// The most resources in one request.
pub(super) const MOST: usize = 1_000;
/// The most in one request that have been refused before. A server names only so many places of a request that it refuses: of more, some
/// would be asked for again and again.
pub(super) const MOST_REFUSED: usize = 100;
/// The most requests under way: a new resource need not wait for a slow answer, and a dead server does not collect requests.
pub(super) const MOST_UNDER_WAY: usize = 8;

/// A request under way.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) resources: Vec<ResourceId>,
    pub(super) endpoint: usize,
    pub(super) sent: Moment,
    /// Given up after this.
    pub(super) deadline: Moment,
    /// Whether it asks for something that is not held.
    pub(super) is_new: bool,
}

/// Whether what is leased goes along with what is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mixing {
    Together,
    /// The server refuses new leases: a request with one would be refused as a whole. None is asked for before this.
    Apart {
        newcomers_from: Moment,
    },
}

/// The resources of a request sent now: what is due, and what is nearly due. Those that have been refused go apart, so that they do not
/// take others down with them, and after the others, however many they are. Empty when nothing is due.
pub(super) fn choose(
    resources: &Resources,
    limit: usize,
    refused_limit: usize,
    mixing: Mixing,
    now: Moment,
) -> Vec<ResourceId> {
    let (first, newcomers_from) = match mixing {
        Mixing::Together => (first_of(resources.waiting(), limit, now), Moment::ORIGIN),
        // What can be lost goes first.
        Mixing::Apart { newcomers_from } => {
            (first_of(resources.renewals(), limit, now), newcomers_from)
        }
    };
    let refused_limit = limit.min(refused_limit);
    let next = || first_of(resources.refused_renewals(), refused_limit, now);
    let first = or_else(first, next);
    if !first.is_empty() || now < newcomers_from {
        return first;
    }
    let newcomers = first_of(resources.newcomers(), limit, now);
    or_else(newcomers, || {
        first_of(resources.refused_newcomers(), refused_limit, now)
    })
}

/// These, or if there are none, others.
fn or_else(these: Vec<ResourceId>, others: impl FnOnce() -> Vec<ResourceId>) -> Vec<ResourceId> {
    if these.is_empty() { others() } else { these }
}

fn first_of<'a>(
    mut waiting: impl Iterator<Item = (Moment, &'a Entry)>,
    limit: usize,
    now: Moment,
) -> Vec<ResourceId> {
    let Some((due, first)) = waiting.next() else {
        return Vec::new();
    };
    if due > now {
        return Vec::new();
    }
    let mut chosen = vec![first.resource().clone()];
    // Those that do not ride are few before those that do; the bound is for when they are not.
    let more = waiting
        .take(2 * limit)
        .filter(|(_, entry)| entry.rides(now))
        .map(|(_, entry)| entry.resource().clone());
    chosen.extend(more.take(limit.saturating_sub(1)));
    chosen
}

/// The first entry's time runs out first.
pub(super) fn timeout(resources: &Resources, chosen: &[ResourceId], now: Moment) -> Duration {
    chosen
        .iter()
        .filter_map(|id| resources.get(id))
        .map(|entry| entry.timeout(now))
        .min()
        .unwrap_or_default()
}
