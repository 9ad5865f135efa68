//! Responses and failures of lease requests.

use std::time::Duration;

use doorman_openapi::{CapacityResponse, Moment, ResourceResponse, Seconds};

use super::{Holder, MAX_BATCH, MAX_REJECTED_BATCH, Request, resource::Resource};
use crate::{
    backoff::{DEFAULT_RETRY_AFTER, LongestPause, MAX_RETRY_AFTER},
    event::{Effect, Failure, Warning},
    index::{Names, ResourceIndex},
    servers::{RECONNECT_SPREAD, Retry},
};

/// The longest pause between attempts of one of few holders.
const LONGEST_PAUSE_OF_FEW: Duration = Duration::from_millis(250);
/// The longest pause between attempts to report overloads: two requests a second in the mean.
const LONGEST_OVERLOAD_PAUSE: Duration = Duration::from_secs(1);
/// How often rejected resources are requested again, approximately.
const REJECTED_INTERVAL: Duration = Duration::from_secs(60);
/// The shortest pause between rate limited renewals, half of it jitter.
const MIN_RATE_LIMITED_PAUSE: Duration = Duration::from_secs(2);

impl<N: Names> Holder<N> {
    pub(super) fn on_response(
        &mut self,
        request: &Request,
        response: CapacityResponse,
        now: Moment,
    ) {
        let endpoint = request.endpoint;
        let CapacityResponse {
            node,
            epoch,
            // For people.
            warnings: _,
            resources,
        } = response;
        if self.accepts(endpoint, &node, epoch, now) {
            self.on_success(request);
            self.master.record(node, epoch);
            let longest = self.take_leases(request, &resources, now);
            self.master.record_leases(now.after(longest));
            // Resources that the response left out.
            let due = now.after(self.tuning.max_pause_without_lease);
            self.retry_at(request, due, Resource::fail_until, now);
        } else {
            let retry = self.endpoints.on_failure(endpoint);
            self.retry(request, retry, None, now);
        }
    }

    fn on_success(&mut self, request: &Request) {
        if self.wants_new_lease(request) {
            self.new_leases_after = None;
        }
        if self.is_all_rejected(request) {
            self.batch_limits.rejected = MAX_REJECTED_BATCH;
        }
        self.endpoints.on_success(request.endpoint);
        self.backoff.reset();
        if self.unreachable.resolve() {
            self.effects.push(Effect::Warn(Warning::Recovered));
        }
        let limit = &mut self.batch_limits.normal;
        if request.resources.len() >= *limit {
            *limit = limit.saturating_mul(2).min(MAX_BATCH);
        }
    }

    /// Takes the leases and returns their longest length. Ignores foreign and repeated resources.
    fn take_leases(
        &mut self,
        request: &Request,
        responses: &[ResourceResponse],
        now: Moment,
    ) -> Duration {
        let mut longest = Seconds::ZERO;
        let mut shortest = Duration::MAX;
        let keeps_interval = self.master.is_new(now) && !self.is_one_of_few;
        for response in responses {
            let Some(index) = self.resources.find(&response.resource_id) else {
                continue;
            };
            let resource = self.resources.get(index);
            if !resource.is_some_and(|it| it.is_in_flight(request.seq)) {
                continue;
            }
            let terms = self.templates.record(response);
            let (rng, tuning) = (&mut self.rng, &self.tuning);
            let interval = self.resources.update(index, |it| {
                it.on_response(response, terms, keeps_interval, tuning, now, rng);
                it.interval()
            });
            shortest = shortest.min(interval.unwrap_or(shortest));
            self.emit_changed(index, now);
            if response.gets.lease_length > longest {
                longest = response.gets.lease_length;
            }
        }
        if shortest < Duration::MAX {
            self.refresh_interval = shortest;
        }
        longest.duration()
    }

    pub(super) fn on_failure(&mut self, request: &Request, failure: Failure, now: Moment) {
        match failure {
            Failure::Unavailable { retry_after } => {
                if let Some(poller) = &mut self.poller {
                    poller.on_unavailable(now);
                }
                let retry = self.endpoints.on_failure(request.endpoint);
                self.retry(request, retry, retry_after, now);
            }
            Failure::Redirected { to } => match self.endpoints.on_redirect(request.endpoint, to) {
                Retry::Now => self.retry_at(request, now, Resource::retry_at, now),
                Retry::Soon => {
                    let due = now.after(RECONNECT_SPREAD.mul_f64(self.rng.f64()));
                    self.retry_at(request, due, Resource::retry_at, now);
                }
                Retry::AfterPause => self.retry(request, Retry::AfterPause, None, now),
            },
            Failure::RateLimited { retry_after } => {
                self.on_rate_limited(request, retry_after, now);
                self.retry_at(request, now, Resource::fail_until, now);
            }
            Failure::TooLarge => {
                self.split(request, now);
                self.retry_at(request, now, Resource::retry_at, now);
            }
            Failure::Rejected { positions } => {
                self.on_rejected(request, &positions, now);
                self.retry_at(request, now, Resource::retry_at, now);
            }
        }
    }

    /// Renewals go on without new leases, immediately if they were rate limited only because of
    /// new leases in the same request. New leases wait. No other server is asked: this one serves.
    fn on_rate_limited(&mut self, request: &Request, retry_after: Option<Duration>, now: Moment) {
        let wait = retry_after
            .unwrap_or(DEFAULT_RETRY_AFTER)
            .min(MAX_RETRY_AFTER);
        if self.wants_new_lease(request) {
            // With jitter, so that a fleet does not come back in step.
            let until = now.after(wait.mul_f64(1.0 + 0.5 * self.rng.f64()));
            self.new_leases_after = self.new_leases_after.max(Some(until));
        } else if self.current_resources(request).next().is_some() {
            let least = self.min_rate_limited_pause(now);
            self.pause(request, Some(wait), least, now);
        }
    }

    fn on_rejected(&mut self, request: &Request, positions: &[usize], now: Moment) {
        let named: Vec<ResourceIndex> = positions
            .iter()
            .filter_map(|position| request.resources.get(*position).copied())
            .collect();
        if !named.is_empty() {
            for index in named {
                self.reject(request, index, now);
            }
        } else if self.is_all_rejected(request) {
            // It is unknown which resources are at fault, so all of them wait. The next batch has a
            // random size, so that none is rejected for good because of another, and is not always
            // one, because there may be many.
            let halvings = self.rng.u32(0..=MAX_REJECTED_BATCH.ilog2());
            self.batch_limits.rejected = MAX_REJECTED_BATCH >> halvings;
            for index in &request.resources {
                self.reject(request, *index, now);
            }
        } else {
            // Bisecting finds the resource at fault, with pauses, because it may be all of them.
            self.split(request, now);
            self.pause(request, None, Duration::ZERO, now);
        }
    }

    /// The resources for which this request is the newest.
    fn current_resources(&self, request: &Request) -> impl Iterator<Item = &Resource> {
        let resources = self.resources.get_all(&request.resources);
        resources.filter(|it| it.is_in_flight(request.seq))
    }

    fn wants_new_lease(&self, request: &Request) -> bool {
        self.current_resources(request)
            .any(|resource| resource.lease_end().is_none())
    }

    /// Whether it contained only resources that had been rejected before.
    fn is_all_rejected(&self, request: &Request) -> bool {
        self.current_resources(request).all(Resource::is_rejected)
    }

    /// Halves the next requests; a resource that fails on its own is rejected.
    fn split(&mut self, request: &Request, now: Moment) {
        if let [only] = &request.resources[..] {
            self.reject(request, *only, now);
        } else {
            self.batch_limits.normal = (request.resources.len() / 2).max(1);
        }
    }

    fn reject(&mut self, request: &Request, index: ResourceIndex, now: Moment) {
        let until = self.next_rejected_retry(now);
        let newly_rejected = self.resources.update(index, |it| {
            it.is_in_flight(request.seq) && it.reject_until(until)
        });
        if newly_rejected == Some(true)
            && let Some(resource) = self.resources.id(index)
        {
            self.effects
                .push(Effect::Warn(Warning::Rejected { resource }));
        }
        self.emit_changed(index, now);
    }

    /// Together with the resources that were rejected shortly before.
    fn next_rejected_retry(&mut self, now: Moment) -> Moment {
        let earliest = now.after(REJECTED_INTERVAL.mul_f64(0.75));
        if self.rejected_until < earliest {
            let jitter = 1.0 + 0.25 * self.rng.f64();
            self.rejected_until = now.after(REJECTED_INTERVAL.mul_f64(jitter));
        }
        self.rejected_until
    }

    fn retry(
        &mut self,
        request: &Request,
        retry: Retry,
        retry_after: Option<Duration>,
        now: Moment,
    ) {
        if retry == Retry::AfterPause {
            self.pause(request, retry_after, Duration::ZERO, now);
            if self.unreachable.try_log(now).is_some() {
                self.effects.push(Effect::Warn(Warning::Unreachable));
            }
        }
        self.retry_at(request, now, Resource::fail_until, now);
    }

    /// Begins a pause, whose longest time is at least `least`.
    fn pause(
        &mut self,
        request: &Request,
        retry_after: Option<Duration>,
        least: Duration,
        now: Moment,
    ) {
        let longest = self.longest_pause(request, now);
        let longest = LongestPause {
            leased: longest.leased.map(|it| it.max(least)),
            missing: longest.missing.max(least),
        };
        self.backoff.record_failure(
            retry_after,
            longest,
            request.sent,
            &self.tuning,
            now,
            &mut self.rng,
        );
    }

    /// Short enough that no lease expires for lack of trying.
    fn longest_pause(&self, request: &Request, now: Moment) -> LongestPause {
        let end = self.resources.first_lease_end();
        let half_of_rest = end.map(|end| end.since(now) / 2);
        let leased = half_of_rest.filter(|_| self.without_lease() == 0);
        let resources = self.resources.get_all(&request.resources);
        let interval = resources.map(Resource::interval).min().unwrap_or_default();
        let mut resources = self.resources.get_all(&request.resources);
        let longest = if self.is_one_of_few {
            LONGEST_PAUSE_OF_FEW
        } else if resources.any(Resource::has_overload_report) {
            LONGEST_OVERLOAD_PAUSE
        } else {
            Duration::MAX
        };
        LongestPause {
            leased: leased.map(|half_of_rest| {
                let calm = interval.mul_f64(self.tuning.calm_intervals);
                half_of_rest.min(calm).min(longest)
            }),
            missing: self
                .tuning
                .max_pause_without_lease
                .min(half_of_rest.unwrap_or(Duration::MAX))
                .min(longest),
        }
    }

    /// Renewals at a busy server do not come faster and faster as a lease nears its end.
    fn min_rate_limited_pause(&self, now: Moment) -> Duration {
        let rest = self.resources.first_lease_end().map(|end| end.since(now));
        match rest {
            Some(rest) if rest < MIN_RATE_LIMITED_PAUSE.saturating_mul(3) / 2 => Duration::ZERO,
            Some(_) | None => MIN_RATE_LIMITED_PAUSE,
        }
    }

    /// Requests again at `due` the resources for which the request brought nothing.
    fn retry_at(
        &mut self,
        request: &Request,
        due: Moment,
        retry: impl Fn(&mut Resource, Moment),
        now: Moment,
    ) {
        for &index in &request.resources {
            let without_lease = self.resources.update(index, |resource| {
                let in_flight = resource.is_in_flight(request.seq);
                if in_flight {
                    resource.keep_overloads();
                    retry(resource, due);
                }
                in_flight && resource.lease_end().is_none()
            });
            if without_lease == Some(true) {
                // The limiter tells callers when a lease may come.
                self.emit_changed(index, now);
            }
        }
    }
}
