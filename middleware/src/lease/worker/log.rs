//! What the log says of the leasing side.

use doorman_openapi::Moment;

use super::Worker;
use crate::lease::{Transport, Warning};

impl<T: Transport> Worker<T> {
    pub(super) fn warn(&mut self, warning: &Warning, now: Moment) {
        let carrier = &self.parts.carrier;
        let name = |endpoint: &usize| carrier.name(*endpoint);
        match warning {
            Warning::Unreachable => tracing::warn!(
                reason = self.last_failure,
                "the control plane gives no leases: those held last until their end, then the fallbacks count"
            ),
            Warning::Reached => tracing::info!("the control plane gives leases again"),
            // There may be as many as there are keys.
            Warning::Refused { resource } => {
                if let Some(left_out) = self.refusals.now(now) {
                    tracing::warn!(
                        %resource,
                        left_out,
                        reason = self.last_failure,
                        "the control plane refuses a resource: its fallback counts"
                    );
                }
            }
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
