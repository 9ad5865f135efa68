//! The plan of a service process, and its report.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::load::Load;

/// The work of one service process. Times are in seconds since the start of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Key template of the limit, such as `api` or `tenant/{header:x-tenant}`.
    pub(super) key: String,
    /// When the layer is made; may be before 0.
    pub(super) joins: f64,
    /// The end of the run.
    pub(super) ends: f64,
    /// The longest delay of a request over the limit; `None`: it is rejected.
    pub(super) max_delay: Option<f64>,
    /// The instance that the process is.
    pub(super) instance: Option<String>,
    /// Whether it is killed at the end, after its report.
    pub(super) crashes: bool,
    /// The priority of the limit.
    pub(super) priority: i32,
    /// Requests, and the tenant in their header `x-tenant`.
    pub(super) loads: Vec<(String, Load)>,
}

impl Plan {
    /// A service with the limit `key` that joins at 0 and rejects excess.
    pub(super) fn new(key: &str, ends: f64) -> Self {
        Self {
            key: key.to_owned(),
            joins: 0.0,
            ends,
            max_delay: None,
            instance: None,
            crashes: false,
            priority: 0,
            loads: Vec::new(),
        }
    }

    pub(super) fn joins(self, joins: f64) -> Self {
        Self { joins, ..self }
    }

    pub(super) fn delays(self, max_delay: f64) -> Self {
        let max_delay = Some(max_delay);
        Self { max_delay, ..self }
    }

    pub(super) fn instance(self, name: &str) -> Self {
        let instance = Some(name.to_owned());
        Self { instance, ..self }
    }

    pub(super) fn crashes(self) -> Self {
        Self {
            crashes: true,
            ..self
        }
    }

    pub(super) fn priority(self, priority: i32) -> Self {
        Self { priority, ..self }
    }

    pub(super) fn load(self, load: Load) -> Self {
        self.tenant("", load)
    }

    pub(super) fn tenant(mut self, tenant: &str, load: Load) -> Self {
        self.loads.push((tenant.to_owned(), load));
        self
    }
}

/// A plan as it is sent to its process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Job {
    /// Addresses of the control plane.
    pub(super) servers: Vec<String>,
    /// Start of the run in monotonic time.
    pub(super) start: Duration,
    pub(super) plan: Plan,
}

/// The report of a service process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) requests: Vec<Request>,
    /// When lease requests were answered or failed.
    pub(super) lease_requests: Vec<f64>,
    /// Every change of the limit.
    pub(super) states: Vec<State>,
    /// The most that a request was sent late: a busy machine.
    pub(super) lag: f64,
}

/// One request and its response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) tenant: String,
    pub(super) sent: f64,
    pub(super) answered: f64,
    /// The status of the response; 0 for a direct wait that failed.
    pub(super) status: u16,
    /// The reason of a rejection.
    pub(super) reason: Option<String>,
    /// `Retry-After` of a rejection.
    pub(super) retry_after: Option<u64>,
    /// `r` of the field `RateLimit`.
    pub(super) remaining: Option<u64>,
}

/// The limit as a service knows it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) at: f64,
    /// The limit of the whole fleet.
    pub(super) limit: Option<f64>,
    /// The leased capacity.
    pub(super) lease: Option<f64>,
}
