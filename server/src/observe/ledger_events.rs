//! Log lines of ledger events: a few per second, because clients can invent any number of
//! resources.

use std::time::Duration;

use doorman_openapi::{Moment, Unit};

use crate::util::log_throttle::LogThrottle;
use doorman_core::{ledger::LedgerEvent, ledger::LedgerEvents};

const LINES_PER_SECOND: u32 = 10;

#[derive(Debug)]
pub(crate) struct LedgerEventLog {
    /// Demand may change often, and leaves the lines of the others alone.
    demand: LogThrottle,
    others: LogThrottle,
}

impl LedgerEventLog {
    pub(crate) fn new() -> Self {
        let per_second = |lines| LogThrottle::new(lines, Duration::from_secs(1));
        Self {
            demand: per_second(1),
            others: per_second(LINES_PER_SECOND),
        }
    }

    /// Must be called regularly, even without events, to report those that were left out.
    pub(crate) fn log(&self, events: LedgerEvents, now: Moment) {
        if let Some(left_out) = self.others.take_suppressed(now) {
            tracing::warn!(left_out, "ledger events were left out of the log");
        }
        if let Some(left_out) = self.demand.take_suppressed(now) {
            tracing::info!(left_out, "changes of unmet demand were left out of the log");
        }
        if events.learning_ended {
            tracing::info!("learning mode has ended");
        }
        self.throttle(events, now, |event, suppressed| {
            write(event, (suppressed > 0).then_some(suppressed));
        });
    }

    fn throttle(
        &self,
        LedgerEvents {
            events, dropped, ..
        }: LedgerEvents,
        now: Moment,
        mut write: impl FnMut(&LedgerEvent, u64),
    ) {
        if dropped > 0 {
            self.others.suppress(dropped);
        }
        for event in &events {
            let throttle = if event.is_of_demand() {
                &self.demand
            } else {
                &self.others
            };
            if let Some(suppressed) = throttle.admit(now) {
                write(event, suppressed);
            }
        }
    }
}

fn write(event: &LedgerEvent, left_out: Option<u64>) {
    match event {
        LedgerEvent::Unmatched(resource) => {
            tracing::warn!(%resource, left_out, "no template matches this resource");
        }
        LedgerEvent::SharesBelowOne(resource) => {
            tracing::warn!(
                %resource,
                left_out,
                "an equal share is less than one request per refresh interval; \
                 choose SUPPRESSION, or SHARED_BUCKET with a short refresh_interval"
            );
        }
        LedgerEvent::Replaced(client) => {
            tracing::info!(
                %client, left_out,
                "silent client replaced; its leases have ended"
            );
        }
        LedgerEvent::OtherUnit(resource, client, unit) => {
            let (is, used) = match unit {
                Unit::Rate => ("gauge", "rate"),
                Unit::Gauge => ("rate", "gauge"),
            };
            tracing::warn!(
                %resource, %client, left_out,
                "resource is a {is}, but the client limits it as a {used} and can use nothing of it"
            );
        }
        LedgerEvent::Overused(resource) => {
            tracing::warn!(%resource, left_out, "operations outlive their lease");
        }
        LedgerEvent::Unmet(resource) => {
            tracing::info!(%resource, left_out, "demand has been unmet for a minute");
        }
        LedgerEvent::MetAgain(resource, lasted) => {
            let seconds = lasted.as_secs_f64();
            tracing::info!(%resource, seconds, left_out, "demand is met again");
        }
        LedgerEvent::ClaimsAboveCapacity(resource) => {
            tracing::warn!(
                %resource,
                left_out,
                "holders claim more leases of the previous server than its capacity; some claims \
                 are false"
            );
        }
        LedgerEvent::ExcessClaimOfClient(resource, client) => {
            tracing::warn!(
                %resource, %client, left_out,
                "client claims more than it can have; the excess is ignored"
            );
        }
        LedgerEvent::ExcessClaimOfNode(resource, node) => {
            tracing::warn!(
                %resource, %node, left_out,
                "node claims more than it can have; the excess is ignored"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use doorman_openapi::ResourceId;

    use super::*;

    #[test]
    fn ten_events_per_second_are_logged_and_the_rest_counted() {
        let log = LedgerEventLog::new();
        let start = Moment::ORIGIN.after(Duration::from_secs(3600));
        let written = |count, dropped, now| {
            let unmatched = |n| LedgerEvent::Unmatched(ResourceId::new(format!("r/{n}")).unwrap());
            let events = LedgerEvents {
                events: (0..count).map(unmatched).collect(),
                dropped,
                learning_ended: false,
            };
            let mut suppressed = Vec::new();
            log.throttle(events, now, |_, count| suppressed.push(count));
            suppressed
        };
        assert_eq!(written(4, 0, start), [0; 4]);
        assert_eq!(written(256, 100, start).iter().sum::<u64>(), 100);
        assert!(written(1, 0, start).is_empty());
        assert_eq!(written(1, 0, start.after(Duration::from_secs(1))), [251]);
    }
}
