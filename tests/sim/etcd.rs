//! The election of a master among the servers of a node, as etcd holds it: a key that its owner renews, and a second one that says
//! how long leases may still last.

use doorman_openapi::{CLOCK_DRIFT, Moment};

use super::{clock::Clock, wire::Election};

/// For how many seconds an election lease lasts.
pub(super) const TERM: f64 = 5.0;
/// A master refuses once this part of its election lease has passed.
pub(super) const FENCE: f64 = 0.95;

/// One run of one server.
type Candidate = (usize, u32);

#[derive(Debug)]
pub(super) struct Etcd {
    clock: Clock,
    owner: Option<Candidate>,
    owned_until: Moment,
    epoch: u64,
    /// Nothing that any owner has leased lasts longer.
    leases_until: Moment,
    /// Nothing that an owner before this one has leased does.
    inherited_until: Moment,
}

impl Etcd {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            owner: None,
            owned_until: Moment::ORIGIN,
            epoch: 0,
            leases_until: Moment::ORIGIN,
            inherited_until: Moment::ORIGIN,
        }
    }

    /// The candidate owns the key from now on, or still; unless another does.
    pub(super) fn campaign(
        &mut self,
        candidate: Candidate,
        longest: f64,
        world: Moment,
    ) -> Option<Election> {
        let now = self.clock.at(world);
        if now >= self.owned_until {
            self.owner = None;
        }
        match self.owner {
            Some(owner) if owner != candidate => return None,
            Some(_) => {}
            None => {
                self.epoch += 1;
                self.owner = Some(candidate);
                self.inherited_until = self.leases_until;
            }
        }
        let left = self.inherited_until.seconds_since(now) * CLOCK_DRIFT;
        self.owned_until = now.after_seconds(TERM);
        let covered = now.after_seconds(CLOCK_DRIFT * longest + TERM);
        self.leases_until = self.leases_until.max(covered);
        Some(Election {
            epoch: self.epoch,
            learn: (left > 0.0).then_some(left),
        })
    }

    /// The candidate stands back.
    pub(super) fn resign(&mut self, candidate: Candidate) {
        if self.owner == Some(candidate) {
            self.owner = None;
        }
    }
}
