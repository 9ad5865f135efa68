//! Results of a situation beside their targets.

use super::plan::Report;

/// One measured case of a situation.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The case of the situation.
    pub case: String,
    /// The bounds.
    pub target: String,
    /// The measurement.
    pub measured: String,
    /// Whether the target is met.
    pub met: bool,
    /// Lease requests per process and refresh interval, over the whole run.
    pub lease_requests: f64,
    /// The most that a request was sent late, in seconds. Above some 10 ms the machine was too busy
    /// for the result to count.
    pub lag: f64,
}

impl Outcome {
    /// The outcome of services that refreshed their leases every `refresh_interval` seconds.
    pub(super) fn new(
        case: &str,
        reports: &[Report],
        seconds: f64,
        refresh_interval: f64,
        result: Result,
    ) -> Self {
        let requests: usize = reports.iter().map(|it| it.lease_requests.len()).sum();
        let intervals = reports.len() as f64 * seconds / refresh_interval;
        let Result {
            target,
            measured,
            met,
        } = result;
        Self {
            case: case.to_owned(),
            target,
            measured,
            met,
            lease_requests: requests as f64 / intervals,
            lag: reports.iter().map(|it| it.lag).fold(0.0, f64::max),
        }
    }
}

/// A measurement and its target.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Result {
    pub(super) target: String,
    pub(super) measured: String,
    pub(super) met: bool,
}

impl Result {
    pub(super) fn new(target: &str, met: bool, measured: String) -> Self {
        Self {
            target: target.to_owned(),
            measured,
            met,
        }
    }
}
