//! Log lines of ledger events: a few per second, because clients can invent any number of
//! resources.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use doorman_openapi::{Capacity, ClientId, Moment, ResourceId, Run, Unit};

use crate::util::{clock, log_throttle::LogThrottle};
use doorman_core::ledger::{Cut, HolderId, LedgerEvent, LedgerEvents, Usage};

const LINES_PER_SECOND: u32 = 10;

/// How often a full ledger is logged, and how long nobody is rejected before it counts as no longer
/// full.
const FULL_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct LedgerEventLog {
    /// Demand may change often, and leaves the lines of the others alone.
    demand: LogThrottle,
    /// Duplicates may be frequent, too.
    duplicates: LogThrottle,
    others: LogThrottle,
    max_leases: usize,
    ledger: FullLog,
    tenants: FullLog,
}

impl LedgerEventLog {
    /// `max_leases` is the setting that bounds the ledger.
    pub(crate) fn new(max_leases: usize) -> Self {
        let per_second = |lines| LogThrottle::new(lines, Duration::from_secs(1));
        Self {
            demand: per_second(1),
            duplicates: per_second(1),
            others: per_second(LINES_PER_SECOND),
            max_leases,
            ledger: FullLog::new(),
            tenants: FullLog::new(),
        }
    }

    /// Must be called regularly, even without events, to report those that were left out.
    pub(crate) fn log(&self, events: LedgerEvents, now: Moment) {
        self.log_full(&events, now);
        if let Some(left_out) = self.others.take_suppressed(now) {
            tracing::warn!(left_out, "ledger events were left out of the log");
        }
        if let Some(left_out) = self.duplicates.take_suppressed(now) {
            tracing::warn!(left_out, "duplicate client ids were left out of the log");
        }
        if let Some(left_out) = self.demand.take_suppressed(now) {
            tracing::info!(left_out, "changes of unmet demand were left out of the log");
        }
        for (resource, usage) in &events.usage {
            write_usage(resource, usage);
        }
        if events.dropped_usage > 0 {
            let lost = events.dropped_usage;
            tracing::warn!(lost, "the use of ended holders was left out of the log");
        }
        if events.learning_ended {
            tracing::info!("learning mode has ended");
        }
        self.throttle(events, now, |event, suppressed| {
            write(event, (suppressed > 0).then_some(suppressed));
        });
    }

    fn log_full(&self, events: &LedgerEvents, now: Moment) {
        let max_leases = self.max_leases;
        match self.ledger.next_line(events.full, now) {
            Some(FullLine::Full { rejected }) => tracing::warn!(
                max_leases,
                rejected,
                "ledger full: new holders get nothing, renewals continue; raise --max-leases, or \
                 reduce keys (max_keys)"
            ),
            Some(FullLine::HasRoom) => tracing::info!(max_leases, "ledger no longer full"),
            None => {}
        }
        match self.tenants.next_line(events.tenant_full, now) {
            Some(FullLine::Full { rejected }) => tracing::warn!(
                max_leases,
                rejected,
                "a tenant has a quarter of --max-leases, or its max_clients: its new holders get \
                 nothing, its renewals continue"
            ),
            Some(FullLine::HasRoom) => tracing::info!(max_leases, "no tenant is full any longer"),
            None => {}
        }
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
            let throttle = match event {
                LedgerEvent::DuplicateClient(_) => &self.duplicates,
                _ if event.is_of_demand() => &self.demand,
                _ => &self.others,
            };
            if let Some(suppressed) = throttle.admit(now) {
                write(event, suppressed);
            }
        }
    }
}

/// When to log that there is no room for new holders, and that there is room again.
#[derive(Debug)]
struct FullLog(Mutex<Option<Full>>);

#[derive(Debug, Clone, Copy)]
struct Full {
    logged: Moment,
    last_rejected: Moment,
    /// Since the last line.
    rejected: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FullLine {
    /// So many holders were rejected since the last line.
    Full {
        rejected: u64,
    },
    HasRoom,
}

impl FullLog {
    const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The line to write, if so many holders have been `rejected` since the last call.
    fn next_line(&self, rejected: u64, now: Moment) -> Option<FullLine> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            None if rejected == 0 => None,
            None => {
                *state = Some(Full {
                    logged: now,
                    last_rejected: now,
                    rejected: 0,
                });
                Some(FullLine::Full { rejected })
            }
            Some(full) => {
                if rejected > 0 {
                    full.last_rejected = now;
                    full.rejected = full.rejected.saturating_add(rejected);
                } else if full.last_rejected.after(FULL_INTERVAL) <= now {
                    *state = None;
                    return Some(FullLine::HasRoom);
                }
                let is_due = full.rejected > 0 && full.logged.after(FULL_INTERVAL) <= now;
                is_due.then(|| {
                    full.logged = now;
                    FullLine::Full {
                        rejected: std::mem::take(&mut full.rejected),
                    }
                })
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
        LedgerEvent::DuplicateClient(client) => warn_of_duplicate(client, left_out),
        LedgerEvent::OtherUnit(resource, client, unit) => {
            warn_of_unit(resource, client, *unit, left_out);
        }
        LedgerEvent::Overused(resource) => {
            tracing::warn!(%resource, left_out, "operations outlive their lease");
        }
        LedgerEvent::Cut(resource, cut) => tell_cut(resource, cut, left_out),
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

/// Each holder that ends has a line: operators charge by them.
fn write_usage(resource: &ResourceId, usage: &Usage) {
    let (client, run, node) = match &usage.holder {
        HolderId::Client(client, run) => (Some(client.as_str()), *run, None),
        HolderId::Node(node) => (None, None, Some(node.as_str())),
    };
    let to = clock::unix_seconds();
    let outcomes = usage.outcomes;
    tracing::info!(
        target: "doorman::usage",
        %resource,
        client,
        run = run.map(Run::get),
        node,
        used = usage.used.map(Capacity::get),
        refused = outcomes.map(|it| it.refused.get()),
        ok = outcomes.map(|it| it.ok.get()),
        overloaded = outcomes.map(|it| it.overloaded.get()),
        failed = outcomes.map(|it| it.failed.get()),
        from = to.saturating_sub(usage.known_for as u64),
        to,
        "holder ended"
    );
}

fn tell_cut(resource: &ResourceId, cut: &Cut, left_out: Option<u64>) {
    let Cut {
        leased,
        share: refused,
        requests,
        accepted,
    } = *cut;
    tracing::info!(
        %resource, leased, refused, requests, accepted, left_out,
        "target refuses requests for its load; less is leased"
    );
}

fn warn_of_unit(resource: &ResourceId, client: &ClientId, unit: Unit, left_out: Option<u64>) {
    let (is, used) = match unit {
        Unit::Rate => ("gauge", "rate"),
        Unit::Gauge => ("rate", "gauge"),
    };
    tracing::warn!(
        %resource, %client, left_out,
        "resource is a {is}, but the client limits it as a {used} and can use nothing of it"
    );
}

fn warn_of_duplicate(client: &ClientId, left_out: Option<u64>) {
    tracing::warn!(
        %client, left_out,
        "duplicate client id: another process leases under it, or the last one has not released \
         its leases"
    );
}

#[cfg(test)]
mod tests {
    use doorman_openapi::ResourceId;

    use super::*;

    #[test]
    fn ten_events_per_second_are_logged_and_the_rest_counted() {
        let log = LedgerEventLog::new(1);
        let start = Moment::ORIGIN.after(Duration::from_secs(3600));
        let written = |count, dropped, now| {
            let unmatched = |n| LedgerEvent::Unmatched(ResourceId::new(format!("r/{n}")).unwrap());
            let events = LedgerEvents {
                events: (0..count).map(unmatched).collect(),
                dropped,
                ..LedgerEvents::default()
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

    #[test]
    fn full_ledger_is_logged_once_a_minute_and_when_it_is_over() {
        let log = FullLog::new();
        let start = Moment::ORIGIN.after(Duration::from_secs(3600));
        let full = |rejected| Some(FullLine::Full { rejected });
        for (seconds, rejected, expected) in [
            (0, 0, None),
            (0, 3, full(3)),
            (1, 2, None),
            (59, 0, None),
            (60, 4, full(6)),
            (61, 1, None),
            (120, 0, full(1)),
            (121, 0, Some(FullLine::HasRoom)),
            (122, 0, None),
            (123, 1, full(1)),
        ] {
            let now = start.after(Duration::from_secs(seconds));
            assert_eq!(log.next_line(rejected, now), expected, "at {seconds} s");
        }
    }
}
