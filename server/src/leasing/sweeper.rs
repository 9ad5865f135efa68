//! The task that frees what has run out when nobody asks, and tells what operators should read.

use std::{sync::Arc, time::Duration};

use crate::{http::state::App, ledger::Ledger, observe::ledger_events::Log};

/// How many steps are taken under one lock, so that no request waits long for the books.
const BUDGET: usize = 256;

/// The longest sleep: a lease that is granted meanwhile may end before all that are known.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Sweeps until the books are in doubt, when there is nothing left to do.
pub(crate) async fn run(app: Arc<App>) {
    let mut log = Log::default();
    while let Ok((wait, notices, now)) = app.books(|core: &mut Ledger, now| {
        let next = core.sweep(now, BUDGET);
        let wait = next.map_or(LONGEST_SLEEP, |next| next.since(now));
        (wait.min(LONGEST_SLEEP), core.take_events(), now)
    }) {
        log.tell(notices, now);
        if wait.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(wait).await;
        }
    }
    tracing::error!(
        "the books are in doubt after a fault: nothing is granted until the server is started again"
    );
}
