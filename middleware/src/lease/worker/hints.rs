//! Long poll for hints: opens it, and passes its response on.

use doorman_holder::Event;

use super::Worker;
use crate::{
    clock,
    lease::client::{FetchedHints, Outcome, Transport},
};

impl<T: Transport> Worker<T> {
    pub(super) fn open_poll(&mut self, endpoint: usize, after: u64) {
        let holder = self.parts.engine.holder();
        let id = ("client_id", holder.client_id().as_str());
        let client = &self.parts.client;
        let poll = client.poll_hints(endpoint, id, holder.run(), after);
        self.hint_polls.push(Box::pin(poll));
    }

    pub(super) fn on_hints_response(&mut self, outcome: Outcome<FetchedHints>) {
        let Outcome {
            endpoint,
            ids,
            progress: _,
            result,
        } = outcome;
        let now = clock::now();
        let engine = &mut self.parts.engine;
        match result {
            Ok(FetchedHints::Hints(hints)) => engine.handle(Event::Hinted { endpoint, hints }, now),
            Ok(FetchedHints::Unsupported) => engine.handle(Event::PollUnsupported, now),
            Err(error) => {
                let reason = &error.reason;
                tracing::debug!(reason, trace_id = %ids.trace_id, "poll for hints failed");
                let failure = error.failure;
                engine.handle(Event::PollFailed { endpoint, failure }, now);
            }
        }
        self.carry_out(now);
    }
}
