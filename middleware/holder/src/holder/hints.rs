//! Hints of the control plane: which leases to refresh now.

use std::time::Duration;

use doorman_openapi::{ClientId, Epoch, Hint, HintsResponse, MAX_HINTS, Moment, NodeId};

use super::{Holder, resource::Resource};
use crate::{
    event::{Effect, Warning},
    index::{Names, ResourceIndex},
    servers::MasterCheck,
};

/// A refresh of more resources than hints can name begins at random within this time.
const SPREAD: Duration = Duration::from_millis(200);

impl<N: Names> Holder<N> {
    pub(super) fn on_hints(&mut self, endpoint: usize, hints: &HintsResponse, now: Moment) {
        // A server that is not the master need not know the epoch.
        let is_standby = hints.leaving && !self.is_from_master(&hints.node, hints.epoch, now);
        if self.stopped || is_standby || !self.accepts(endpoint, &hints.node, hints.epoch, now) {
            return;
        }
        for hint in hints.refresh.iter().take(MAX_HINTS) {
            let Some(index) = self.resources.find(&hint.resource_id) else {
                continue;
            };
            self.resources.update(index, |resource| {
                // After a later request, the server knows more than when it gave the hint.
                if hint.seq.is_none_or(|seq| resource.is_newest(seq)) {
                    resource.refresh_by(now);
                }
            });
        }
        if hints.leaving {
            // Leases are refreshed when they are due: not everybody at the new master at once.
            self.endpoints.leave(endpoint);
        }
        if hints.all {
            let wait = if self.resources.len() > MAX_HINTS {
                SPREAD.mul_f64(self.rng.f64())
            } else {
                Duration::ZERO
            };
            let due = now.after(wait);
            self.resources
                .update_all(|resource| resource.refresh_by(due));
        }
    }

    /// Lets refreshes that are due earlier wait until the demands for hints are measured. They
    /// would report older demands, and the hints would be void.
    pub fn await_measurement(&mut self, hints: &[Hint], until: Moment) {
        for hint in hints.iter().take(MAX_HINTS) {
            let Some(index) = self.resources.find(&hint.resource_id) else {
                continue;
            };
            self.resources.update(index, |resource| {
                if hint.seq.is_none_or(|seq| resource.is_newest(seq)) {
                    resource.await_measurement(until);
                }
            });
        }
    }

    /// Whether the next request for a resource follows a hint.
    #[must_use]
    pub fn is_hinted(&self, index: ResourceIndex) -> bool {
        self.resources.get(index).is_some_and(Resource::is_hinted)
    }

    /// The server to poll: that of the lease requests, or that of the rules while no resource is
    /// wanted. `None` while no server answers.
    #[must_use]
    pub fn hint_source(&self, rules: Option<usize>) -> Option<usize> {
        if self.stopped {
            None
        } else if self.resources.len() == 0 {
            rules
        } else {
            self.backoff.is_idle().then(|| self.endpoints.current())
        }
    }

    /// How often leases are refreshed, the most frequent of the last response.
    #[must_use]
    pub fn refresh_interval(&self) -> Duration {
        self.refresh_interval
    }

    /// The id of the holder.
    #[must_use]
    pub fn client_id(&self) -> &ClientId {
        &self.client_id
    }

    /// Whether a response comes from the master of the current leases.
    #[must_use]
    pub fn is_from_master(&self, node: &NodeId, epoch: Epoch, now: Moment) -> bool {
        self.master.check(node, epoch, now) == MasterCheck::Accepted
    }

    /// Checks as [`is_from_master`](Self::is_from_master) does, and warns if a response does not.
    pub(super) fn accepts(
        &mut self,
        endpoint: usize,
        node: &NodeId,
        epoch: Epoch,
        now: Moment,
    ) -> bool {
        let warning = match self.master.check(node, epoch, now) {
            MasterCheck::Accepted => return true,
            MasterCheck::ForeignNode { known } => {
                let log = self.foreign_node.try_log(now);
                log.map(|_| Warning::ForeignNode {
                    endpoint,
                    known,
                    received: node.clone(),
                })
            }
            MasterCheck::StaleEpoch { known } => {
                let log = self.stale_epoch.try_log(now);
                log.map(|_| Warning::StaleEpoch {
                    endpoint,
                    known,
                    received: epoch,
                })
            }
        };
        self.effects.extend(warning.map(Effect::Warn));
        false
    }
}
