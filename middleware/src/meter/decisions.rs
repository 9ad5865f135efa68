//! The decisions of the limits of one name.

use std::sync::{Arc, OnceLock};

use metrics::{Counter, SharedString, counter, describe_counter};

use super::Outcome;
use crate::{Fallback, RefusalReason};

const DECISIONS: &str = "doorman_layer_decisions_total";
const WITHOUT_LEASE: &str = "doorman_layer_admissions_without_lease_total";

/// Counts the decisions of the limits of one name. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct LimitMeter(Arc<Series>);

#[derive(Debug)]
struct Series {
    limit: Arc<str>,
    /// Got at the first decision and not before, so that a recorder may be installed after the layer was made; from then on a
    /// decision looks up nothing.
    counters: OnceLock<Counters>,
}

/// All of them are there from the first decision on, for the rate of a counter that begins above 0 is not seen.
#[derive(Debug)]
struct Counters {
    admitted: Counter,
    delayed: Counter,
    spent: Counter,
    blocked: Counter,
    no_lease: Counter,
    warming_up: Counter,
    overflow: Counter,
    queue_full: Counter,
    suppressed: Counter,
    missing_key: Counter,
    skipped: Counter,
    shadow: Counter,
    gone: Counter,
    safe: Counter,
    optimistic: Counter,
}

impl LimitMeter {
    pub(super) fn new(limit: Arc<str>) -> Self {
        Self(Arc::new(Series {
            limit,
            counters: OnceLock::new(),
        }))
    }

    /// A request was admitted, perhaps after it waited for its turn; by the fallback that is given where there is no lease.
    pub(crate) fn admitted(&self, waited: bool, fallback: impl FnOnce() -> Option<Fallback>) {
        let counters = self.counters();
        if waited {
            counters.delayed.increment(1);
        } else {
            counters.admitted.increment(1);
        }
        match fallback() {
            Some(Fallback::Safe) => counters.safe.increment(1),
            Some(Fallback::Optimistic) => counters.optimistic.increment(1),
            // Admits nothing: the lease ended between the decision and the counting.
            Some(Fallback::Pessimistic) | None => {}
        }
    }

    /// A request was not admitted.
    pub(crate) fn count(&self, outcome: Outcome) {
        let counters = self.counters();
        match outcome {
            Outcome::Refused(RefusalReason::Spent) => &counters.spent,
            Outcome::Refused(RefusalReason::Blocked) => &counters.blocked,
            Outcome::Refused(RefusalReason::NoLease) => &counters.no_lease,
            Outcome::Refused(RefusalReason::WarmingUp) => &counters.warming_up,
            Outcome::Refused(RefusalReason::Overflow) => &counters.overflow,
            Outcome::Refused(RefusalReason::QueueFull) => &counters.queue_full,
            Outcome::Refused(RefusalReason::Suppressed) => &counters.suppressed,
            Outcome::Refused(
                RefusalReason::MissingKey
                | RefusalReason::MissingToken
                | RefusalReason::InvalidToken,
            ) => &counters.missing_key,
            Outcome::Skipped => &counters.skipped,
            Outcome::Shadow => &counters.shadow,
            Outcome::Gone => &counters.gone,
        }
        .increment(1);
    }

    fn counters(&self) -> &Counters {
        self.0.counters.get_or_init(|| Counters::new(&self.0.limit))
    }
}

impl Counters {
    #[cold]
    fn new(limit: &Arc<str>) -> Self {
        describe_counter!(
            DECISIONS,
            "Requests by the limit that decided and what became of them"
        );
        describe_counter!(
            WITHOUT_LEASE,
            "Requests admitted without a lease, by the fallback that admitted them"
        );
        let limit = || SharedString::from(Arc::clone(limit));
        let decided =
            |outcome: &'static str| counter!(DECISIONS, "limit" => limit(), "outcome" => outcome);
        let unleased = |fallback: &'static str| counter!(WITHOUT_LEASE, "limit" => limit(), "fallback" => fallback);
        Self {
            admitted: decided("admitted"),
            delayed: decided("delayed"),
            spent: decided("spent"),
            blocked: decided("blocked"),
            no_lease: decided("no_lease"),
            warming_up: decided("warming_up"),
            overflow: decided("overflow"),
            queue_full: decided("queue_full"),
            suppressed: decided("suppressed"),
            missing_key: decided("missing_key"),
            skipped: decided("skipped"),
            shadow: decided("shadow"),
            gone: decided("gone"),
            safe: unleased("safe"),
            optimistic: unleased("optimistic"),
        }
    }
}
