//! Master election in etcd: one key with a TTL for the master, and one for the end of all leases.

use doorman_openapi::{CLOCK_DRIFT, Moment};

use super::{
    clock::Clock,
    network::{Candidate, Election},
};

/// Seconds for which an election lease lasts.
pub(super) const ELECTION_LEASE: f64 = 5.0;
/// The part of its election lease after which a master rejects requests.
pub(super) const FENCE: f64 = 0.95;

#[derive(Debug)]
pub(super) struct Etcd {
    clock: Clock,
    master: Option<Candidate>,
    master_until: Moment,
    epoch: u64,
    /// The end of all leases of all masters.
    leases_until: Moment,
    /// The end of all leases of earlier masters.
    earlier_leases_until: Moment,
}

impl Etcd {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            master: None,
            master_until: Moment::ORIGIN,
            epoch: 0,
            leases_until: Moment::ORIGIN,
            earlier_leases_until: Moment::ORIGIN,
        }
    }

    /// Elects the candidate or renews its mastership, unless another server is master.
    pub(super) fn campaign(
        &mut self,
        candidate: Candidate,
        longest_lease: f64,
        time: Moment,
    ) -> Option<Election> {
        let now = self.clock.local(time);
        if now >= self.master_until {
            self.master = None;
        }
        match self.master {
            Some(master) if master != candidate => return None,
            Some(_) => {}
            None => {
                self.epoch += 1;
                self.master = Some(candidate);
                self.earlier_leases_until = self.leases_until;
            }
        }
        let left = self.earlier_leases_until.seconds_since(now) * CLOCK_DRIFT;
        self.master_until = now.after_seconds(ELECTION_LEASE);
        let covered = now.after_seconds(CLOCK_DRIFT * longest_lease + ELECTION_LEASE);
        self.leases_until = self.leases_until.max(covered);
        Some(Election {
            epoch: self.epoch,
            learn_for: (left > 0.0).then_some(left),
        })
    }

    pub(super) fn resign(&mut self, candidate: Candidate) {
        if self.master == Some(candidate) {
            self.master = None;
        }
    }
}
