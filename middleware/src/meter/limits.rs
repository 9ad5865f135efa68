//! Metrics of limits: decisions by outcome, and the number of keys.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use doorman_openapi::Fallback;
use metrics::{Counter, Gauge, SharedString, counter, describe_counter, describe_gauge, gauge};

use super::NotAdmitted;
use crate::outcome::Outcome;

/// The most names with series of their own, because a program may derive names from data.
pub(super) const MAX_NAMES: usize = 100;
pub(super) const OTHERS: &str = "(others)";

const DECISIONS: &str = "doorman_layer_decisions_total";
const WITHOUT_LEASE: &str = "doorman_layer_admissions_without_lease_total";
const ENDED: &str = "doorman_layer_outcomes_total";
const INVALID_HEADERS: &str = "doorman_layer_invalid_target_headers_total";
const KEYS: &str = "doorman_layer_keys";

#[derive(Debug, Default)]
pub(crate) struct Meters {
    limits: Mutex<HashMap<Arc<str>, LimitMeter>>,
    keys: OnceLock<Gauge>,
}

impl Meters {
    pub(crate) fn limit(&self, name: &Arc<str>) -> LimitMeter {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(meter) = limits.get(name) {
            return meter.clone();
        }
        let name = if limits.len() < MAX_NAMES {
            Arc::clone(name)
        } else {
            OTHERS.into()
        };
        let meter = limits.entry(Arc::clone(&name));
        meter.or_insert_with(|| LimitMeter::new(name)).clone()
    }

    pub(crate) fn add_key(&self) {
        self.keys().increment(1.0);
    }

    pub(crate) fn remove_keys(&self, keys: usize) {
        if keys > 0 {
            self.keys().decrement(keys as f64);
        }
    }

    fn keys(&self) -> &Gauge {
        self.keys.get_or_init(|| {
            describe_gauge!(
                KEYS,
                "Keys made of requests that have a limiter of their own"
            );
            gauge!(KEYS)
        })
    }
}

/// Counts the decisions of the limits of one name. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct LimitMeter(Arc<Series>);

#[derive(Debug)]
struct Series {
    limit: Arc<str>,
    /// Looked up at the first decision, as a recorder may be installed after the layer is made.
    counters: OnceLock<Counters>,
}

/// The outcomes of requests that a limit did not admit at once, the most frequent first.
const OUTCOMES: [&str; 13] = [
    "spent",
    "delayed",
    "growing",
    "no_lease",
    "other_unit",
    "blocked",
    "overflow",
    "queue_full",
    "suppressed",
    "missing_key",
    "skipped",
    "shadow",
    "gone",
];

/// All counters exist from the first decision on: the rate of a counter that begins above 0 is
/// wrong.
#[derive(Debug)]
struct Counters {
    admitted: Counter,
    others: [(&'static str, Counter); OUTCOMES.len()],
    safe: Counter,
    optimistic: Counter,
    ok: Counter,
    overloaded: Counter,
    failed: Counter,
    invalid_headers: Counter,
}

impl LimitMeter {
    fn new(limit: Arc<str>) -> Self {
        Self(Arc::new(Series {
            limit,
            counters: OnceLock::new(),
        }))
    }

    /// Counts an admission; `fallback` is the fallback that admitted it, if there was no lease.
    pub(crate) fn admitted(&self, waited: bool, fallback: impl FnOnce() -> Option<Fallback>) {
        let counters = self.counters();
        if waited {
            counters.count("delayed");
        } else {
            counters.admitted.increment(1);
        }
        match fallback() {
            Some(Fallback::Safe) => counters.safe.increment(1),
            Some(Fallback::Optimistic) => counters.optimistic.increment(1),
            // The lease ended between the decision and this line.
            Some(Fallback::Pessimistic) | None => {}
        }
    }

    pub(crate) fn count(&self, outcome: NotAdmitted) {
        self.counters().count(match outcome {
            NotAdmitted::Refused(reason) => reason.as_str(),
            NotAdmitted::Skipped => "skipped",
            NotAdmitted::Shadow => "shadow",
            NotAdmitted::Gone => "gone",
        });
    }

    /// Counts outcomes of admitted requests.
    pub(crate) fn ended(&self, outcome: Outcome, count: u64) {
        let counters = self.counters();
        match outcome {
            Outcome::Ok => counters.ok.increment(count),
            Outcome::Overloaded => counters.overloaded.increment(count),
            Outcome::Failed => counters.failed.increment(count),
            Outcome::None => {}
        }
    }

    /// Counts a response whose headers tell of the target's limit, but do not parse.
    pub(crate) fn invalid_headers(&self) {
        self.counters().invalid_headers.increment(1);
    }

    fn counters(&self) -> &Counters {
        self.0.counters.get_or_init(|| Counters::new(&self.0.limit))
    }
}

impl Counters {
    #[cold]
    fn new(limit: &Arc<str>) -> Self {
        describe_counter!(DECISIONS, "Requests by limit and outcome");
        describe_counter!(
            WITHOUT_LEASE,
            "Requests admitted without a lease, by the fallback that admitted them"
        );
        describe_counter!(
            ENDED,
            "Admitted requests by limit and outcome at their target"
        );
        describe_counter!(
            INVALID_HEADERS,
            "Responses with invalid headers of the target's own limit"
        );
        let limit = || SharedString::from(Arc::clone(limit));
        let ended =
            |outcome: &'static str| counter!(ENDED, "limit" => limit(), "outcome" => outcome);
        let decided =
            |outcome: &'static str| counter!(DECISIONS, "limit" => limit(), "outcome" => outcome);
        let unleased = |fallback: &'static str| counter!(WITHOUT_LEASE, "limit" => limit(), "fallback" => fallback);
        Self {
            admitted: decided("admitted"),
            others: OUTCOMES.map(|outcome| (outcome, decided(outcome))),
            safe: unleased("safe"),
            optimistic: unleased("optimistic"),
            ok: ended("ok"),
            overloaded: ended("overloaded"),
            failed: ended("failed"),
            invalid_headers: counter!(INVALID_HEADERS, "limit" => limit()),
        }
    }

    fn count(&self, outcome: &str) {
        let mut others = self.others.iter();
        if let Some((_, counter)) = others.find(|(other, _)| *other == outcome) {
            counter.increment(1);
        }
    }
}
