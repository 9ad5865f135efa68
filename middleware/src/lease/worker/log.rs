//! What the log says of the leasing side.

use super::Worker;
use crate::lease::{Transport, Warning};

impl<T: Transport> Worker<T> {
    pub(super) fn warn(&self, warning: &Warning) {
        let name = |endpoint: &usize| self.parts.carrier.name(*endpoint);
        match warning {
            Warning::Unreachable => tracing::warn!(
                reason = self.last_failure,
                "the control plane gives no leases: those held last until their end, then the fallbacks count"
            ),
            Warning::Reached => tracing::info!("the control plane gives leases again"),
            Warning::Refused { resource } => tracing::warn!(
                %resource,
                reason = self.last_failure,
                "the control plane refuses a resource: its fallback counts"
            ),
            Warning::ForeignNode {
                endpoint,
                known,
                heard,
            } => tracing::error!(
                server = name(endpoint),
                %known,
                %heard,
                "a server belongs to another node: several masters are several capacities, and its answers are refused"
            ),
            Warning::StaleEpoch {
                endpoint,
                known,
                heard,
            } => tracing::warn!(
                server = name(endpoint),
                %known,
                %heard,
                "a server answers for a reign that is over: its answers are dropped"
            ),
        }
    }
}
