//! Targets of resources: they serve, refuse or fail the requests that clients admit.

mod bucket;
mod history;
mod window;
mod workers;

use fastrand::Rng;

pub use self::history::TargetFigures;
pub(crate) use self::history::{Expected, History};
use self::{bucket::Bucket, window::Window, workers::Workers};
use crate::scenario::{RateLimit, ScenarioTarget, Steps, TargetKind};

/// Seconds until a client knows that its request was refused.
const REFUSAL: f64 = 0.005;
/// Seconds after which a client gives up a request.
const TIMEOUT: f64 = 2.0;
/// Seconds of its rate that a network passes at once.
const NETWORK_BURST: f64 = 0.2;

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TargetResponse {
    pub(crate) result: TargetResult,
    /// Seconds until the client knows it.
    pub(crate) after: f64,
    /// The target's own limit, as of the request.
    pub(crate) seen: Option<OwnLimit>,
    /// The seconds to wait that the target asks for.
    pub(crate) retry_after: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetResult {
    Served,
    Refused,
    /// The client has given up.
    TimedOut,
}

/// The limit of a target, as its responses state it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct OwnLimit {
    /// The requests that are left.
    pub(crate) remaining: f64,
    /// Seconds until all are left.
    pub(crate) reset: f64,
}

impl TargetResponse {
    fn refused() -> Self {
        Self {
            result: TargetResult::Refused,
            after: REFUSAL,
            seen: None,
            retry_after: None,
        }
    }

    fn served(after: f64) -> Self {
        Self {
            result: TargetResult::Served,
            after,
            seen: None,
            retry_after: None,
        }
    }
}

/// A target in a run.
pub(crate) struct Target {
    model: Model,
    always: f64,
    latency: f64,
    /// Other random numbers than those of the demand, so that a seed has the same demand with every
    /// target.
    rng: Rng,
    pub(crate) history: History,
}

enum Model {
    Bucket(Bucket),
    Window(Window),
    Workers(Workers),
}

impl Target {
    pub(crate) fn new(settings: &ScenarioTarget, rng: Rng) -> Self {
        let model = match &settings.kind {
            TargetKind::Bucket { limit, burst } => {
                Model::Bucket(Bucket::new(limit.clone(), *burst))
            }
            TargetKind::Window { limit, seconds } => {
                Model::Window(Window::new(limit.clone(), *seconds))
            }
            TargetKind::Workers { workers, queue } => {
                Model::Workers(Workers::new(workers.clone(), *queue, settings.latency))
            }
        };
        Self {
            model,
            always: settings.always,
            latency: settings.latency,
            rng,
            history: History::default(),
        }
    }

    /// Decides a request that arrives at a second.
    pub(crate) fn request(&mut self, now: f64) -> TargetResponse {
        let response = if self.rng.f64() < self.always {
            TargetResponse::refused()
        } else {
            match &mut self.model {
                Model::Bucket(bucket) => bucket.request(now, self.latency),
                Model::Window(window) => window.request(now, self.latency),
                Model::Workers(workers) => workers.request(now, &mut self.rng),
            }
        };
        self.history.record(now, &response);
        response
    }
}

/// A network between clients and their targets that passes a rate of requests, and refuses others.
pub(crate) struct LossyNetwork(Bucket);

impl LossyNetwork {
    pub(crate) fn new(rate: f64) -> Self {
        let limit = RateLimit {
            rate: Steps::new(vec![(0.0, rate)]),
            foreign: Steps::default(),
            headers: false,
            retry_after: false,
        };
        Self(Bucket::new(limit, NETWORK_BURST))
    }

    /// The response to a request that it does not pass.
    pub(crate) fn refusal(&mut self, now: f64) -> Option<TargetResponse> {
        let response = self.0.request(now, 0.0);
        (response.result == TargetResult::Refused).then_some(response)
    }
}

/// The whole seconds until a request may be accepted, as `Retry-After` states them.
fn whole_seconds(seconds: f64) -> f64 {
    seconds.ceil().clamp(1.0, 3_600.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn steps(steps: &[(f64, f64)]) -> Steps {
        Steps::new(steps.to_vec())
    }

    /// A limit that tells nothing of itself.
    pub(super) fn limit(rate: Steps) -> RateLimit {
        RateLimit {
            rate,
            foreign: Steps::default(),
            headers: false,
            retry_after: false,
        }
    }

    #[test]
    fn part_of_the_requests_is_refused_at_any_load() {
        let settings = ScenarioTarget {
            resource: 0,
            kind: TargetKind::Bucket {
                limit: limit(steps(&[(0.0, 1_000.0)])),
                burst: 0.2,
            },
            always: 0.1,
            latency: 0.02,
        };
        let mut target = Target::new(&settings, Rng::with_seed(3));
        let results = (0..5_000).map(|number| target.request(f64::from(number) / 100.0).result);
        let refused = results.filter(|it| *it == TargetResult::Refused).count();
        assert!((430..570).contains(&refused), "{refused}");
    }

    #[test]
    fn network_passes_its_rate() {
        let mut network = LossyNetwork::new(50.0);
        let refusals = (0..2_000).filter_map(|number| network.refusal(f64::from(number) / 200.0));
        let refused = refusals.count();
        assert!((1_485..1_500).contains(&refused), "{refused}");
    }
}
