//! The task that removes expired leases from the ledger and passes its events on.

use std::{sync::Arc, time::Duration};

use doorman_openapi::Moment;

use super::SharedLedger;
use crate::ledger::LedgerEvents;

/// Steps per turn under the lock.
const BUDGET: usize = 256;

/// The longest sleep: a lease that is granted meanwhile may expire before all known ones.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Sweeps until the ledger is poisoned. Calls `report` after every turn, even without events.
pub(crate) async fn run(ledger: Arc<SharedLedger>, mut report: impl FnMut(LedgerEvents, Moment)) {
    while let Ok((wait, events, now)) = ledger.with(|ledger, now| {
        let next = ledger.sweep(now, BUDGET);
        let wait = next.map_or(MAX_SLEEP, |next| next.since(now));
        (wait.min(MAX_SLEEP), ledger.take_events(), now)
    }) {
        report(events, now);
        if wait.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(wait).await;
        }
    }
    tracing::error!("ledger poisoned by a panic; no leases are granted until the server restarts");
}
