//! Targets: what the requests that clients admit are sent to.

use doorman_openapi::Unit;
use serde::Deserialize;

use super::{InvalidScenario, Resource, check, clients::ClientGroup, invalid};

/// The highest rate of a target, in requests a second.
const MAX_RATE: f64 = 1e6;
/// The most workers of a target.
const MAX_WORKERS: f64 = 10_000.0;
/// The most values of a rate or a number of workers.
const MAX_STEPS: usize = 10_000;
/// The longest burst, window or queue, in seconds.
const MAX_LENGTH: f64 = 3_600.0;
/// The longest time of a request, in seconds: clients give up after two.
const MAX_LATENCY: f64 = 2.0;
/// Seconds of its rate that a target accepts at once.
const BURST: f64 = 0.2;
/// Seconds of a request to a target with a rate.
const LATENCY: f64 = 0.02;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileTarget {
    resource: String,
    rate: Option<Vec<FileStep>>,
    workers: Option<Vec<FileStep>>,
    burst: Option<f64>,
    window: Option<f64>,
    queue: Option<f64>,
    headers: Option<bool>,
    retry_after: Option<bool>,
    #[serde(default)]
    always: f64,
    foreign: Option<Vec<FileStep>>,
    latency: Option<f64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileStep {
    at: f64,
    value: f64,
}

/// A valid target.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScenarioTarget {
    /// The index of its resource.
    pub(crate) resource: usize,
    pub(crate) kind: TargetKind,
    /// The part of the requests that it refuses at any load.
    pub(crate) always: f64,
    /// Seconds of a request; of workers in the mean.
    pub(crate) latency: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TargetKind {
    /// A bucket of so many seconds of the rate, at least one request.
    Bucket { limit: RateLimit, burst: f64 },
    /// The requests of so many seconds at once, anew in each such window.
    Window { limit: RateLimit, seconds: f64 },
    /// Requests that wait for the first free worker, and are refused if they would wait for longer
    /// than `queue` seconds.
    Workers { workers: Steps, queue: Option<f64> },
}

/// The rate that a target accepts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RateLimit {
    /// In requests a second.
    pub(crate) rate: Steps,
    /// Requests of others, per second.
    pub(crate) foreign: Steps,
    /// Whether responses state the target's own limit.
    pub(crate) headers: bool,
    /// Whether refusals state when to try again.
    pub(crate) retry_after: bool,
}

/// A value over time, in steps.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Steps(Vec<(f64, f64)>);

impl Steps {
    /// The values by the seconds from which on they hold, in order.
    pub(crate) fn new(steps: Vec<(f64, f64)>) -> Self {
        Self(steps)
    }

    /// The value at a second; 0 before the first step.
    pub(crate) fn at(&self, second: f64) -> f64 {
        let past = self.0.partition_point(|(at, _)| *at <= second);
        past.checked_sub(1).map_or(0.0, |index| self.0[index].1)
    }

    /// The seconds at which it changes.
    pub(crate) fn changes(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(|(at, _)| *at).filter(|at| *at > 0.0)
    }
}

impl ScenarioTarget {
    /// The requests a second that it accepts, if so many are sent.
    pub(crate) fn accepts(&self, second: f64) -> f64 {
        let rate = match &self.kind {
            TargetKind::Bucket { limit, .. } | TargetKind::Window { limit, .. } => {
                limit.rate.at(second) - limit.foreign.at(second)
            }
            TargetKind::Workers { workers, .. } => workers.at(second) / self.latency,
        };
        rate.max(0.0)
    }

    /// Of a gauge: the seconds for which a request uses its units while the right number is in use.
    pub(crate) fn seconds_in_use(&self, resource: &Resource) -> Option<f64> {
        let longest_wait = match self.kind {
            TargetKind::Workers { queue, .. } => queue.unwrap_or(0.0),
            TargetKind::Bucket { .. } | TargetKind::Window { .. } => 0.0,
        };
        let seconds = resource.slow_from.unwrap_or(self.latency + longest_wait);
        (resource.unit == Unit::Gauge).then_some(seconds)
    }

    /// The seconds at which that changes, in order.
    pub(crate) fn changes(&self) -> Vec<f64> {
        let mut changes: Vec<_> = match &self.kind {
            TargetKind::Bucket { limit, .. } | TargetKind::Window { limit, .. } => limit
                .rate
                .changes()
                .chain(limit.foreign.changes())
                .collect(),
            TargetKind::Workers { workers, .. } => workers.changes().collect(),
        };
        changes.sort_by(f64::total_cmp);
        changes.dedup();
        changes
    }
}

/// Checks the targets. The resources are those that clients use.
pub(super) fn check_targets(
    targets: &[FileTarget],
    resources: &mut [Resource],
    groups: &[ClientGroup],
    seconds: f64,
) -> Result<Vec<ScenarioTarget>, InvalidScenario> {
    let mut checked: Vec<ScenarioTarget> = Vec::new();
    for (index, target) in targets.iter().enumerate() {
        let field = format!("targets[{index}]");
        let target = target.check(&field, resources, groups, seconds)?;
        if checked.iter().any(|it| it.resource == target.resource) {
            let message = "has a target before; a resource has one target";
            return Err(invalid(&format!("{field}.resource"), message));
        }
        let resource = &mut resources[target.resource];
        if resource.unit == Unit::Gauge {
            resource.per = target.latency;
        }
        checked.push(target);
    }
    check_gauges(&checked, resources, groups)?;
    for (index, group) in groups.iter().enumerate() {
        let sends = |it: &ScenarioTarget| group.sends_requests_for(it.resource);
        let field = match (group.claims, group.passes, group.limits) {
            _ if checked.iter().any(sends) => continue,
            (Some(_), ..) => "claims",
            (None, Some(_), _) => "passes",
            (None, None, Some(_)) => "limits",
            (None, None, None) => continue,
        };
        let message = "does not apply: the clients send no requests to a target";
        return Err(invalid(&format!("clients[{index}].{field}"), message));
    }
    Ok(checked)
}

/// Requests to a gauge use units until their target has answered.
fn check_gauges(
    targets: &[ScenarioTarget],
    resources: &[Resource],
    groups: &[ClientGroup],
) -> Result<(), InvalidScenario> {
    for (index, resource) in resources.iter().enumerate() {
        let has_target = targets.iter().any(|it| it.resource == index);
        let sends = |it: &ClientGroup| it.sends_requests_for(index);
        if let Some(group) = groups.iter().position(sends)
            && resource.unit == Unit::Gauge
            && !has_target
        {
            let id = &resource.id;
            let message = format!("does not apply: {id:?} is a gauge, and must have a target");
            return Err(invalid(&format!("clients[{group}].requests"), message));
        }
    }
    Ok(())
}

impl FileTarget {
    fn check(
        &self,
        field: &str,
        resources: &[Resource],
        groups: &[ClientGroup],
        seconds: f64,
    ) -> Result<ScenarioTarget, InvalidScenario> {
        let name = |name: &str| format!("{field}.{name}");
        let resource = resources
            .iter()
            .position(|it| it.id.as_str() == self.resource);
        let Some(resource) = resource else {
            let message = format!("must be a used resource, not {:?}", self.resource);
            return Err(invalid(&name("resource"), message));
        };
        if !groups.iter().any(|it| it.sends_requests_for(resource)) {
            let message = "has no effect: no client of the resource has `requests`";
            return Err(invalid(&name("resource"), message));
        }
        check(&name("always"), self.always, 0.0..=1.0)?;
        let (kind, default) = match (&self.rate, &self.workers) {
            (Some(rate), None) => (self.check_rate(field, rate, seconds)?, Some(LATENCY)),
            (None, Some(workers)) => (self.check_workers(field, workers, seconds)?, None),
            (Some(_), Some(_)) => {
                return Err(invalid(&name("workers"), "does not apply beside a rate"));
            }
            (None, None) => {
                let message = "is missing; must be a list of values, or `workers` one";
                return Err(invalid(&name("rate"), message));
            }
        };
        let Some(latency) = self.latency.or(default) else {
            let message = "is missing; must be the mean seconds that a worker takes for a request";
            return Err(invalid(&name("latency"), message));
        };
        check(&name("latency"), latency, 0.001..=MAX_LATENCY)?;
        Ok(ScenarioTarget {
            resource,
            kind,
            always: self.always,
            latency,
        })
    }

    fn check_rate(
        &self,
        field: &str,
        rate: &[FileStep],
        seconds: f64,
    ) -> Result<TargetKind, InvalidScenario> {
        let name = |name: &str| format!("{field}.{name}");
        if self.queue.is_some() {
            return Err(invalid(&name("queue"), "does not apply to a rate"));
        }
        let foreign = self.foreign.as_deref();
        let foreign = foreign.map(|it| check_steps(&name("foreign"), it, MAX_RATE, seconds));
        let limit = RateLimit {
            rate: check_values(&name("rate"), rate, MAX_RATE, seconds)?,
            foreign: foreign.transpose()?.unwrap_or_default(),
            headers: self.headers.unwrap_or(false),
            retry_after: self.retry_after.unwrap_or(false),
        };
        match (self.burst, self.window) {
            (Some(_), Some(_)) => Err(invalid(&name("window"), "does not apply beside a burst")),
            (None, Some(seconds)) => {
                check(&name("window"), seconds, 1.0..=MAX_LENGTH)?;
                Ok(TargetKind::Window { limit, seconds })
            }
            (burst, None) => {
                let burst = burst.unwrap_or(BURST);
                check(&name("burst"), burst, 0.0..=MAX_LENGTH)?;
                Ok(TargetKind::Bucket { limit, burst })
            }
        }
    }

    fn check_workers(
        &self,
        field: &str,
        workers: &[FileStep],
        seconds: f64,
    ) -> Result<TargetKind, InvalidScenario> {
        let fields = [
            ("burst", self.burst.is_some()),
            ("window", self.window.is_some()),
            ("headers", self.headers.is_some()),
            ("retry_after", self.retry_after.is_some()),
            ("foreign", self.foreign.is_some()),
        ];
        if let Some((name, _)) = fields.into_iter().find(|(_, is_set)| *is_set) {
            return Err(invalid(
                &format!("{field}.{name}"),
                "does not apply to workers",
            ));
        }
        if let Some(queue) = self.queue {
            check(&format!("{field}.queue"), queue, 0.0..=MAX_LENGTH)?;
        }
        let name = format!("{field}.workers");
        let steps = check_values(&name, workers, MAX_WORKERS, seconds)?;
        for (index, step) in workers.iter().enumerate() {
            if step.value.fract() != 0.0 {
                let message = format!("must be a whole number, not {}", step.value);
                return Err(invalid(&format!("{name}[{index}].value"), message));
            }
        }
        Ok(TargetKind::Workers {
            workers: steps,
            queue: self.queue,
        })
    }
}

/// Checks values that are known from the beginning on.
fn check_values(
    field: &str,
    steps: &[FileStep],
    most: f64,
    seconds: f64,
) -> Result<Steps, InvalidScenario> {
    let Some(first) = steps.first() else {
        return Err(invalid(field, "must have a value from second 0 on"));
    };
    if first.at != 0.0 {
        let message = format!("must be 0, not {}", first.at);
        return Err(invalid(&format!("{field}[0].at"), message));
    }
    check_steps(field, steps, most, seconds)
}

fn check_steps(
    field: &str,
    steps: &[FileStep],
    most: f64,
    seconds: f64,
) -> Result<Steps, InvalidScenario> {
    if steps.len() > MAX_STEPS {
        let message = format!("must be at most {MAX_STEPS} values, not {}", steps.len());
        return Err(invalid(field, message));
    }
    let mut earliest = 0.0;
    for (index, step) in steps.iter().enumerate() {
        check(&format!("{field}[{index}].at"), step.at, earliest..=seconds)?;
        check(&format!("{field}[{index}].value"), step.value, 0.0..=most)?;
        earliest = step.at;
    }
    Ok(Steps::new(
        steps.iter().map(|it| (it.at, it.value)).collect(),
    ))
}

#[cfg(test)]
mod tests;
