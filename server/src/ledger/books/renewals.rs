//! Whether a request only renews: asked before anything is decided, by whoever serves renewals before new leases.

use doorman_openapi::{CapacityRequest, Moment, ResourceId, ServerCapacityRequest};

use super::{HolderId, HolderKey, Ledger, Predecessor};

/// How many resources are looked at in one part.
const MOST: usize = 256;

/// Whether all that a request asks for is held already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewalCheck {
    /// The holder has a lease on each resource.
    AllHeld,
    /// It lacks one.
    SomeNew,
    /// None is lacking before this position, from where to go on.
    HeldSoFar(usize),
}

impl Ledger {
    /// Whether a client has a lease on each of the next few resources that it asks for, from position `from` on.
    ///
    /// It is the books that know. Only while they are still learning what a predecessor has leased, a resource of which they know
    /// nothing of the client counts as held when the client says so: who held it before must not be taken for a newcomer.
    #[must_use]
    pub fn check_client_renewal(
        &self,
        request: &CapacityRequest,
        from: usize,
        now: Moment,
    ) -> RenewalCheck {
        let holder = self
            .holders
            .find(&HolderId::Client(request.client_id.clone()));
        let part = request.resources.iter().skip(from).take(MOST);
        let all = part
            .map(|asked| (&asked.resource_id, asked.has.is_some()))
            .all(|asked| self.renews(holder, asked, now));
        so_far(all, from, request.resources.len())
    }

    /// The same for a node; one that does not know what it has is said to have something.
    #[must_use]
    pub fn check_node_renewal(
        &self,
        request: &ServerCapacityRequest,
        from: usize,
        now: Moment,
    ) -> RenewalCheck {
        let holder = self.holders.find(&HolderId::Node(request.node_id.clone()));
        let part = request.resources.iter().skip(from).take(MOST);
        let all = part
            .map(|asked| (&asked.resource_id, true))
            .all(|asked| self.renews(holder, asked, now));
        so_far(all, from, request.resources.len())
    }

    fn renews(
        &self,
        holder: Option<HolderKey>,
        (id, claims): (&ResourceId, bool),
        now: Moment,
    ) -> bool {
        let held = || {
            let live = self.live.get(*self.keys.get(id)? as usize)?;
            Some(live.resource.has_lease(holder?, now))
        };
        held() == Some(true) || claims && self.may_be_of_a_predecessor(now)
    }

    fn may_be_of_a_predecessor(&self, now: Moment) -> bool {
        match self.settings.predecessor {
            Predecessor::Until(outstanding) => now < outstanding,
            Predecessor::None => false,
        }
    }
}

fn so_far(all: bool, from: usize, asked: usize) -> RenewalCheck {
    let next = from.saturating_add(MOST);
    match all {
        false => RenewalCheck::SomeNew,
        true if next < asked => RenewalCheck::HeldSoFar(next),
        true => RenewalCheck::AllHeld,
    }
}
