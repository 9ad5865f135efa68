//! Long poll for hints: opens it, and handles its response.

use doorman_holder::{Event, Failure, GRACE, MIN_PAUSE, WAIT, hint_count};
use doorman_openapi::Moment;

use super::Worker;
use crate::{
    clock,
    lease::client::{FetchedHints, Outcome, Poller, Transport},
};

impl<T: Transport> Worker<T> {
    /// Opens a poll if one is due and returns when the next will be.
    pub(super) fn poll_hints(&mut self, now: Moment) -> Moment {
        let rules = self.rules_poller.hint_source();
        let source = self.parts.holder.hint_source(rules);
        if let Some(source) = source {
            if self.hint_poller.follow(source, now) {
                self.hint_polls.clear();
            }
            if self.hint_poller.wake_at(Some(source)) <= now {
                let endpoint = self.hint_poller.open(source, now);
                let poll = self.parts.client.poll_hints(
                    endpoint,
                    &Poller::Client(self.parts.holder.client_id().clone()),
                    self.hint_poller.after(),
                    WAIT,
                    WAIT + GRACE,
                );
                self.hint_polls.push(Box::pin(poll));
            }
        }
        self.hint_poller.wake_at(source)
    }

    /// Passes on the hints whose demands are measured and returns when the next will be.
    pub(super) fn process_hints(&mut self, now: Moment) -> Moment {
        let due = self.measured_hints.extract_if(.., |(due, _)| *due <= now);
        for (_, event) in due.collect::<Vec<_>>() {
            self.handle(event, now);
        }
        let rest = self.measured_hints.iter().map(|(due, _)| *due);
        rest.min().unwrap_or(Moment::NEVER)
    }

    pub(super) fn on_hints_response(&mut self, outcome: Outcome<FetchedHints>) {
        let Outcome {
            endpoint,
            ids,
            progress: _,
            result,
        } = outcome;
        let now = clock::now();
        let interval = self.parts.holder.refresh_interval().max(MIN_PAUSE);
        match result {
            Ok(FetchedHints::Hints(hints)) => {
                let holder = &self.parts.holder;
                if holder.is_from_master(&hints.node, hints.epoch, now) {
                    self.meter.on_hints(hint_count(&hints));
                    if hints.rules {
                        self.rules_poller.on_changed(now);
                    }
                    self.hint_poller.on_hints(&hints, interval, now);
                } else {
                    self.hint_poller.on_failure(interval, now);
                }
                let ids = hints.refresh.iter().map(|hint| &hint.resource_id);
                let due = self.limiters.measure_for_hints(ids, now);
                self.parts.holder.await_measurement(&hints.refresh, due);
                let event = Event::Hinted { endpoint, hints };
                self.measured_hints.push((due, event));
                self.process_hints(now);
            }
            Ok(FetchedHints::Unsupported) => self.hint_poller.on_unsupported(now),
            Err(error) => {
                let reason = &error.reason;
                tracing::debug!(reason, trace_id = %ids.trace_id, "poll for hints failed");
                match error.failure {
                    Failure::Redirected { to } => {
                        self.hint_poller.on_redirect(endpoint, to, interval, now);
                    }
                    Failure::Unavailable { .. }
                    | Failure::Rejected { .. }
                    | Failure::TooLarge
                    | Failure::RateLimited { .. } => self.hint_poller.on_failure(interval, now),
                }
            }
        }
    }
}
