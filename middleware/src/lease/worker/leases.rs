//! Lease requests: responses to the engine, its actions to the network, the meter and the log.

use std::time::Duration;

use doorman_holder::{Effect, Event, Warning};
use doorman_openapi::{
    CapacityResponse, Moment, ReleaseRequest, ResourceId, Seconds, Seq, Unit,
    paths::{CAPACITY, CAPACITY_RELEASE},
};

use super::{MAX_PER_ROUND, Worker};
use crate::{
    clock,
    lease::{
        client::{Outcome, Progress, RequestIds, Transport},
        engine::{Action, Publication},
    },
};

const IDLE_RELEASE_TIME: Duration = Duration::from_secs(2);

/// The last failed lease request, for the log.
#[derive(Debug)]
pub(super) struct RequestFailure {
    /// The server and the reason.
    reason: String,
    progress: Progress,
    ids: RequestIds,
}

impl<T: Transport> Worker<T> {
    /// Does everything that is due and returns when more will be.
    pub(super) fn process_due(&mut self) -> Moment {
        let now = clock::now();
        // Sampling clears demand signals. While nudges are queued that would let them pile up.
        let samples = if self.parts.nudges.is_empty() {
            MAX_PER_ROUND
        } else {
            0
        };
        self.poll_rules(now);
        let rules = self.rules_poller.hint_source();
        self.parts.engine.set_rules_source(rules);
        self.parts.engine.tick(samples, now);
        self.carry_out(now);
        let wake = self.parts.engine.wake_at();
        wake.min(self.rules_poller.wake_at())
    }

    pub(super) fn on_lease_response(&mut self, seq: Seq, outcome: Outcome<CapacityResponse>) {
        let Outcome {
            endpoint,
            ids,
            progress,
            result,
        } = outcome;
        let now = clock::now();
        let event = match result {
            Ok(response) => {
                self.meter.on_response(None);
                self.log_answer_without_lease(endpoint, &response);
                Event::Answered { seq, response }
            }
            Err(error) => {
                self.meter.on_response(Some(&error.failure));
                let reason = self.failure_reason(endpoint, progress, error.reason);
                let request_id = ids.request_id.as_deref();
                tracing::debug!(reason, trace_id = %ids.trace_id, request_id, "lease request failed");
                self.parts.status.set_last_failure(&reason, now);
                self.last_failure = Some(RequestFailure {
                    reason,
                    progress,
                    ids,
                });
                let failure = error.failure;
                Event::Failed { seq, failure }
            }
        };
        self.parts.engine.handle(event, now);
        self.carry_out(now);
    }

    /// Names the server, unless the request was not sent.
    pub(super) fn failure_reason(
        &self,
        endpoint: usize,
        progress: Progress,
        reason: String,
    ) -> String {
        match progress {
            Progress::NotSent => reason,
            Progress::NoResponse | Progress::Responded => {
                format!("{}: {reason}", self.parts.client.address(endpoint))
            }
        }
    }

    /// Carries out what the engine has decided.
    pub(super) fn carry_out(&mut self, now: Moment) {
        for action in self.parts.engine.take_actions() {
            match action {
                Action::Effect(effect) => self.carry_out_effect(effect, now),
                Action::Published {
                    resource,
                    publication,
                } => self.on_published(&resource, &publication, now),
                Action::Rested {
                    resource,
                    is_forgotten: true,
                } => self.meter.forget(&resource),
                Action::Rested {
                    resource,
                    is_forgotten: false,
                } => self.meter.set_capacity(&resource, 0.0),
                Action::InUse { resource, units } => self.meter.set_in_flight(&resource, units),
                Action::Hinted { hints, rules } => {
                    self.meter.on_hints(hints);
                    if rules {
                        self.rules_poller.on_changed(now);
                    }
                }
            }
        }
    }

    fn carry_out_effect(&mut self, effect: Effect, now: Moment) {
        let client = &self.parts.client;
        match effect {
            Effect::Send {
                seq,
                endpoint,
                request,
                timeout,
            } => {
                let response = client.request_leases(endpoint, CAPACITY, &request, timeout);
                self.lease_requests
                    .push(Box::pin(async move { (seq, response.await) }));
            }
            Effect::SendRelease {
                endpoint, request, ..
            } => {
                let release =
                    client.release(endpoint, CAPACITY_RELEASE, &request, IDLE_RELEASE_TIME);
                self.releases.push(Box::pin(release));
            }
            Effect::OpenPoll { endpoint, after } => self.open_poll(endpoint, after),
            Effect::ClosePoll => self.hint_polls.clear(),
            Effect::Changed { .. } => {}
            Effect::Warn(warning) => self.log_warning(&warning, now),
        }
    }

    /// Stops the engine and returns the release that it asks for.
    pub(super) fn stop_engine(&mut self, now: Moment) -> Option<(usize, ReleaseRequest)> {
        self.parts.engine.handle(Event::Stop, now);
        let mut release = None;
        for action in self.parts.engine.take_actions() {
            match action {
                Action::Published {
                    resource,
                    publication,
                } => self.on_published(&resource, &publication, now),
                Action::Effect(Effect::SendRelease {
                    endpoint, request, ..
                }) => release = Some((endpoint, request)),
                _ => {}
            }
        }
        release
    }

    /// Counts and logs what was published to the limiter of a resource.
    fn on_published(&mut self, resource: &ResourceId, publication: &Publication, now: Moment) {
        if let Some(phase) = publication.new_phase {
            self.meter.on_lease_change(phase);
        }
        if publication.is_permanent {
            self.meter.set_capacity(resource, publication.capacity);
        } else {
            self.meter.forget(resource);
        }
        if let Some(unit) = publication.unit_mismatch
            && let Some(suppressed) =
                (publication.is_permanent.then_some(0)).or_else(|| self.gauge_log.try_log(now))
        {
            let (is, used) = match unit {
                Unit::Rate => ("gauge", "rate"),
                Unit::Gauge => ("rate", "gauge"),
            };
            tracing::error!(
                %resource,
                suppressed,
                "resource is a {is} but is limited as a {used}: nothing is leased, and only an \
                 optimistic fallback admits requests"
            );
        }
        if publication.is_first_answer {
            self.waiters.on_answered(resource);
        }
    }

    /// Logs that the control plane answers, and why it grants nothing.
    fn log_answer_without_lease(&mut self, endpoint: usize, response: &CapacityResponse) {
        let engine = &mut self.parts.engine;
        let without_lease = response.resources.iter().filter(|it| {
            // One in another unit has none because it wants none.
            it.gets.lease_length == Seconds::ZERO && !engine.has_other_unit(&it.resource_id)
        });
        let count = without_lease.count();
        if count > 0
            && let Some(suppressed) = self.learning_log.try_log(clock::now())
        {
            tracing::info!(
                server = self.parts.client.address(endpoint),
                without_lease = count,
                suppressed,
                "control plane is learning of earlier leases and grants none yet; applying fallbacks"
            );
        }
    }

    fn log_warning(&mut self, warning: &Warning, now: Moment) {
        let client = &self.parts.client;
        match warning {
            Warning::Unreachable => self.log_unreachable(),
            Warning::Recovered => tracing::info!("control plane grants leases again"),
            Warning::Rejected { resource } => self.log_rejected(resource, now),
            Warning::ForeignNode {
                endpoint,
                known,
                received,
            } => tracing::error!(
                server = client.address(*endpoint),
                %known,
                %received,
                "server belongs to another node; ignoring its responses"
            ),
            Warning::StaleEpoch {
                endpoint,
                known,
                received,
            } => tracing::warn!(
                server = client.address(*endpoint),
                %known,
                %received,
                "server has a stale epoch; ignoring its responses"
            ),
        }
    }

    fn log_unreachable(&self) {
        let failure = self.last_failure.as_ref();
        let event = match failure.map(|it| it.progress) {
            Some(Progress::NotSent) => "cannot send lease requests",
            Some(Progress::Responded) => "control plane grants no leases",
            Some(Progress::NoResponse) | None => "control plane unreachable",
        };
        let holder = self.parts.engine.holder();
        let outcome = if holder.has_leases() {
            "leases will expire, then fallbacks apply"
        } else {
            "fallbacks apply"
        };
        tracing::warn!(
            reason = failure.map(|it| it.reason.as_str()),
            trace_id = failure.map(|it| display(it.ids.trace_id)),
            request_id = failure.and_then(|it| it.ids.request_id.as_deref()),
            without_lease = holder.without_lease(),
            "{event}; {outcome}"
        );
    }

    fn log_rejected(&mut self, resource: &ResourceId, now: Moment) {
        // There may be any number of keys made of requests.
        let logged = if self.parts.engine.is_permanent(resource) {
            Some(0)
        } else {
            self.rejection_log.try_log(now)
        };
        let failure = self.last_failure.as_ref();
        if let Some(suppressed) = logged {
            tracing::warn!(
                %resource,
                suppressed,
                reason = failure.map(|it| it.reason.as_str()),
                trace_id = failure.map(|it| display(it.ids.trace_id)),
                request_id = failure.and_then(|it| it.ids.request_id.as_deref()),
                "control plane rejected a resource; applying the fallback"
            );
        }
    }

    pub(super) fn log_release(&self, outcome: &Outcome<()>) {
        if let Err(error) = &outcome.result {
            let (reason, ids) = (&error.reason, &outcome.ids);
            let request_id = ids.request_id.as_deref();
            tracing::debug!(reason, trace_id = %ids.trace_id, request_id, "lease release failed");
        }
    }
}
