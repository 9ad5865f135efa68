//! What the log says of the leasing side.

use doorman_openapi::Moment;
use tracing::field::display;

use super::Worker;
use crate::lease::{Transport, Warning, call::Called};

/// A request for leases that failed.
#[derive(Debug)]
pub(super) struct Unanswered {
    /// Where, and why.
    pub(super) reason: String,
    /// By which the control plane's log knows it.
    pub(super) called: Called,
}

impl<T: Transport> Worker<T> {
    /// Says that a request has failed. There may be one a second.
    pub(super) fn tell_failure(&self) {
        if let Some(Unanswered { reason, called }) = &self.last_failure {
            let Called {
                trace_id,
                request_id,
            } = called;
            tracing::debug!(reason, %trace_id, request_id, "a request for leases failed");
        }
    }

    pub(super) fn warn(&mut self, warning: &Warning, now: Moment) {
        let carrier = &self.parts.carrier;
        let name = |endpoint: &usize| carrier.name(*endpoint);
        let failure = self.last_failure.as_ref();
        let reason = failure.map(|it| it.reason.as_str());
        let called = failure.map(|it| &it.called);
        let trace_id = called.map(|it| display(it.trace_id));
        let request_id = called.and_then(|it| it.request_id.as_deref());
        match warning {
            Warning::Unreachable => tracing::warn!(
                reason,
                trace_id,
                request_id,
                "the control plane gives no leases: those held last until their end, then the fallbacks count"
            ),
            Warning::Reached => tracing::info!("the control plane gives leases again"),
            // There may be as many as there are keys.
            Warning::Refused { resource } => {
                if let Some(left_out) = self.refusals.now(now) {
                    tracing::warn!(
                        %resource,
                        left_out,
                        reason,
                        trace_id,
                        request_id,
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
