//! Lease requests: demand to the state machine, its effects to the network, limiters and log.

use std::{sync::Arc, time::Duration};

use doorman_holder::{
    Demand, Effect, Event, Failure, FirstAnswer, LeaseStatus, ResourceIndex, Warning,
};
use doorman_openapi::{
    Capacity, CapacityResponse, MAX_RESOURCES, Moment, ReleaseRequest, ResourceId, Seconds, Seq,
    Unit,
};
use tracing::field::display;

use super::{
    MAX_PER_ROUND, Worker,
    limiters::{Publication, lease_state, period},
};
use crate::{
    clock,
    lease::{
        Transport,
        client::{Outcome, Progress, RequestIds},
    },
    limiter::{LeaseState, Limiter},
    meter::{LeasePhase, RequestOutcome},
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
        for _ in 0..samples {
            let Some(sample) = self.limiters.sample_next(self.parts.idle_after, now) else {
                break;
            };
            if sample.idle && self.rest(sample.index, now) {
                continue;
            }
            if let Some((limiter, _)) = self.limiters.get_mut(sample.index)
                && let Some(units) = limiter.units_in_use()
                && limiter.is_permanent()
            {
                self.meter.set_in_flight(&limiter.resource(), units.in_use);
            }
            if let Some(demand) = sample.demand {
                self.set_demand(sample.index, demand, now);
            }
        }
        let next_hint = self.process_hints(now);
        while self.parts.holder.wake_at() <= now {
            for index in self.parts.holder.due_indices(now) {
                let hinted = self.parts.holder.is_hinted(index);
                if let Some(demand) = self.limiters.report(index, hinted, now) {
                    self.set_demand(index, demand, now);
                }
            }
            self.handle(Event::Tick, now);
        }
        self.poll_rules(now);
        let next_poll = self.poll_hints(now);
        self.parts
            .holder
            .wake_at()
            .min(next_poll)
            .min(next_hint)
            .min(self.limiters.next_sample_at())
            .min(self.rules_poller.wake_at())
    }

    /// Gives up the lease of an idle limiter: forgets it, or lets it sleep if it stays. Returns
    /// whether it did.
    fn rest(&mut self, index: ResourceIndex, now: Moment) -> bool {
        let (Some((limiter, tracked)), Some(registry)) =
            (self.limiters.get_mut(index), self.parts.registry.upgrade())
        else {
            return false;
        };
        let resource = limiter.resource();
        if registry.forget(limiter) {
            self.limiters.remove(index);
            self.meter.forget(&resource);
        } else if tracked.sleep(limiter, now) {
            self.meter.set_capacity(&resource, 0.0);
        } else {
            return false;
        }
        self.parts.holder.forget(index, resource);
        true
    }

    pub(super) fn set_demand(&mut self, index: ResourceIndex, demand: Demand, now: Moment) {
        if self.parts.holder.update_demand(index, &demand, now) {
            return;
        }
        if let Some((limiter, _)) = self.limiters.get_mut(index) {
            let resource = limiter.resource();
            self.handle(Event::Demand { resource, demand }, now);
        }
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
                self.meter.on_response(RequestOutcome::Answered);
                self.log_answer_without_lease(endpoint, &response);
                Event::Answered { seq, response }
            }
            Err(error) => {
                self.meter.on_response((&error.failure).into());
                let reason = self.failure_reason(endpoint, progress, error.reason);
                let RequestIds {
                    trace_id,
                    request_id,
                } = &ids;
                tracing::debug!(reason, %trace_id, request_id, "lease request failed");
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
        let is_answer = matches!(event, Event::Answered { .. });
        self.handle(event, now);
        // Not if the answer was ignored, as that of an earlier master.
        if is_answer && self.parts.holder.server() == endpoint {
            self.hint_poller.on_answer(endpoint, now);
        }
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

    pub(super) fn handle(&mut self, event: Event, now: Moment) {
        let effects = self.parts.holder.handle(event, now);
        self.share_templates();
        for effect in effects {
            match effect {
                Effect::Send {
                    seq,
                    endpoint,
                    mut request,
                    timeout,
                } => {
                    request.polls = self.hint_poller.is_polling(endpoint, now);
                    let client = &self.parts.client;
                    let response = client.request_leases(seq, endpoint, &request, timeout);
                    self.lease_requests.push(Box::pin(response));
                }
                Effect::SendRelease {
                    endpoint, request, ..
                } => {
                    let client = &self.parts.client;
                    let release = client.release(endpoint, &request, IDLE_RELEASE_TIME);
                    self.releases.push(Box::pin(release));
                }
                Effect::Changed { resource, status } => self.apply(&resource, &status, now),
                Effect::Warn(warning) => self.log_warning(&warning, now),
            }
        }
    }

    /// Passes changed terms to the registry: requests for a new key may come before this task sees
    /// its limiter.
    fn share_templates(&mut self) {
        let templates = self.parts.holder.templates();
        if Arc::ptr_eq(templates, &self.templates) {
            return;
        }
        self.templates = Arc::clone(templates);
        if let Some(registry) = self.parts.registry.upgrade() {
            let templates = Arc::clone(templates);
            registry.set_first_state(move |resource| {
                let status = LeaseStatus {
                    lease: None,
                    terms: Some(templates.find(resource)?),
                    first_answer: FirstAnswer::Awaited,
                    requested: Capacity::ZERO,
                    refresh_interval: Duration::ZERO,
                    refresh_at: clock::now(),
                };
                let unit = status.terms.as_deref()?.unit;
                Some(lease_state(&status, unit, false))
            });
        }
    }

    /// Stops the state machine and returns the release that it asks for.
    pub(super) fn stop_holder(&mut self, now: Moment) -> Option<(usize, ReleaseRequest)> {
        let mut release = None;
        for effect in self.parts.holder.handle(Event::Stop, now) {
            match effect {
                Effect::Changed { resource, status } => self.apply(&resource, &status, now),
                Effect::SendRelease {
                    endpoint, request, ..
                } => release = Some((endpoint, request)),
                Effect::Send { .. } | Effect::Warn(_) => {}
            }
        }
        if let Some((_, request)) = &mut release
            && self.limiters.iter().any(|(limiter, _)| is_in_use(limiter))
        {
            // Units in use stay leased until the lease ends.
            let unused = self.limiters.iter().filter(|(it, _)| !is_in_use(*it));
            let unused = unused.map(|(limiter, _)| limiter.resource());
            request.resource_ids = Some(unused.take(MAX_RESOURCES).collect());
        }
        release
    }

    /// Publishes to the limiter of a resource what is held of it.
    fn apply(&mut self, resource: &ResourceId, status: &LeaseStatus, now: Moment) {
        let Some(index) = self.limiters.find(resource) else {
            return;
        };
        let Some(Publication {
            state,
            has_other_unit,
            is_first_answer,
        }) = self.limiters.publish(index, status, now)
        else {
            return;
        };
        let Some((limiter, tracked)) = self.limiters.get_mut(index) else {
            return;
        };
        let terms = status.terms.as_deref();
        let unit = limiter.unit();

        let (phase, capacity) = match state {
            LeaseState::Leased { rate, .. } => {
                let phase = rate.map_or(LeasePhase::Blocked, |_| LeasePhase::Leased);
                (phase, rate.unwrap_or_default() * period(terms))
            }
            LeaseState::NoLease { .. }
            | LeaseState::Unlimited
            | LeaseState::Fixed { .. }
            | LeaseState::Local(_) => (tracked.lease_phase.without_lease(), 0.0),
        };
        if std::mem::replace(&mut tracked.lease_phase, phase) != phase {
            self.meter.on_lease_change(phase);
        }
        if limiter.is_permanent() {
            self.meter.set_capacity(resource, capacity);
        } else {
            self.meter.forget(resource);
        }
        if has_other_unit
            && !std::mem::replace(&mut tracked.unit_mismatch_logged, true)
            && let Some(suppressed) = self.gauge_log.try_log(now)
        {
            let (is, used) = match unit {
                Unit::Rate => ("gauge", "rate"),
                Unit::Gauge => ("rate", "gauge"),
            };
            tracing::error!(
                %resource,
                suppressed,
                "resource is a {is} but is limited as a {used}; applying the fallback"
            );
        }
        if is_first_answer {
            self.waiters.on_answered(resource);
        }
    }

    /// Logs that the control plane answers, and why it grants nothing.
    fn log_answer_without_lease(&mut self, endpoint: usize, response: &CapacityResponse) {
        let resources = response.resources.iter();
        let without_lease = resources.filter(|it| it.gets.lease_length == Seconds::ZERO);
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

    #[expect(clippy::too_many_lines, reason = "one arm for each case")]
    fn log_warning(&mut self, warning: &Warning, now: Moment) {
        let client = &self.parts.client;
        let failure = self.last_failure.as_ref();
        let reason = failure.map(|it| it.reason.as_str());
        let trace_id = failure.map(|it| display(it.ids.trace_id));
        let request_id = failure.and_then(|it| it.ids.request_id.as_deref());
        match warning {
            Warning::Unreachable => {
                let event = match failure.map(|it| it.progress) {
                    Some(Progress::NotSent) => "cannot send lease requests",
                    Some(Progress::Responded) => "control plane grants no leases",
                    Some(Progress::NoResponse) | None => "control plane unreachable",
                };
                let outcome = if self.parts.holder.has_leases() {
                    "leases will expire, then fallbacks apply"
                } else {
                    "fallbacks apply"
                };
                tracing::warn!(
                    reason,
                    trace_id,
                    request_id,
                    without_lease = self.parts.holder.without_lease(),
                    "{event}; {outcome}"
                );
            }
            Warning::Recovered => tracing::info!("control plane grants leases again"),
            Warning::Rejected { resource } => {
                let index = self.limiters.find(resource);
                let tracked = index.and_then(|index| self.limiters.get_mut(index));
                // There may be any number of keys made of requests.
                let logged = if tracked.is_some_and(|(limiter, _)| limiter.is_permanent()) {
                    Some(0)
                } else {
                    self.rejection_log.try_log(now)
                };
                if let Some(suppressed) = logged {
                    tracing::warn!(
                        %resource,
                        suppressed,
                        reason,
                        trace_id,
                        request_id,
                        "control plane rejected a resource; applying the fallback"
                    );
                }
            }
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

    pub(super) fn log_release(&self, outcome: &Outcome<()>) {
        if let Err(error) = &outcome.result {
            let RequestIds {
                trace_id,
                request_id,
            } = &outcome.ids;
            let reason = &error.reason;
            tracing::debug!(reason, %trace_id, request_id, "lease release failed");
        }
    }
}

/// Whether units of a gauge are in use.
fn is_in_use(limiter: Limiter<'_>) -> bool {
    let units = limiter.units_in_use();
    units.is_some_and(|units| units.in_use > 0.0)
}

impl From<&Failure> for RequestOutcome {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::Unavailable { .. } => Self::Unavailable,
            Failure::Redirected { .. } => Self::Redirected,
            Failure::Rejected { .. } => Self::Refused,
            Failure::TooLarge => Self::TooLarge,
            Failure::RateLimited { .. } => Self::Limited,
        }
    }
}
