//! The task that removes expired leases from the ledger, paces hints, and passes events on.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use doorman_openapi::Moment;

use super::{LedgerUnavailable, SharedLedger};
use doorman_core::ledger::LedgerEvents;

/// Steps per turn under the lock.
const BUDGET: usize = 256;

/// The longest sleep: a lease that is granted meanwhile may expire before all known ones.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Sweeps until the ledger is poisoned. Calls `report` after every turn, even without events.
pub(crate) async fn run(shared: Arc<SharedLedger>, mut report: impl FnMut(LedgerEvents, Moment)) {
    loop {
        let swept = shared.with(|ledger, now| {
            let next = ledger.sweep(now, BUDGET);
            let latest = now.after(MAX_SLEEP);
            let next = next.map_or(latest, |next| next.min(latest));
            let learning_until = ledger.learning_until().as_nanos();
            shared.learning_until.store(learning_until, Relaxed);
            shared.next_sweep.store(next.as_nanos(), Relaxed);
            (next.since(now), ledger.take_events(), now)
        });
        let wait = match swept {
            Ok((wait, events, now)) => {
                report(events, now);
                wait
            }
            Err(LedgerUnavailable::NotMaster) => MAX_SLEEP,
            Err(LedgerUnavailable::Poisoned) => break,
        };
        if wait.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = shared.sweep_sooner.notified() => {}
            }
        }
    }
    tracing::error!("ledger poisoned by a panic; no leases are granted until the server restarts");
}
