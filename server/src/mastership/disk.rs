//! Calls of a server without an election: writes to the data directory.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use tokio::task::spawn_blocking;

use super::driver::Execute;
use crate::durability::DataDir;
use doorman_core::{election::Alone, election::DiskCall, reign::Bound, reign::DueTerms};

/// The writes that failed last, which was logged.
#[derive(Debug, Default)]
struct Failing {
    bound: AtomicBool,
    /// The copy of the longest lease in the identity.
    copy: AtomicBool,
    terms: AtomicBool,
}

/// Writes the bound and the terms of leases to the data directory.
pub(super) fn execute(data_dir: Arc<DataDir>) -> Execute<Alone> {
    let failing = Arc::new(Failing::default());
    Box::new(move |call| {
        let (data_dir, failing) = (Arc::clone(&data_dir), Arc::clone(&failing));
        let write = move || match call {
            DiskCall::Bound(due) => write_bound(&data_dir, due, &failing),
            DiskCall::Terms(due) => write_terms(&data_dir, &due, &failing.terms),
        };
        Box::pin(async { spawn_blocking(write).await.ok()? })
    })
}

fn write_bound(data_dir: &DataDir, due: Bound, failing: &Failing) -> Option<()> {
    match data_dir.write_bound(due) {
        Ok(None) => {
            note_success(&failing.bound);
            note_success(&failing.copy);
            Some(())
        }
        Ok(Some(error)) => {
            note_success(&failing.bound);
            if !failing.copy.swap(true, Relaxed) {
                tracing::warn!(
                    %error,
                    "cannot copy the longest lease to the identity; only the bound has it"
                );
            }
            Some(())
        }
        Err(error) => {
            if !failing.bound.swap(true, Relaxed) {
                tracing::error!(
                    %error,
                    "cannot write data directory; leases will shorten, then expire"
                );
            }
            None
        }
    }
}

fn write_terms(data_dir: &DataDir, due: &DueTerms, is_failing: &AtomicBool) -> Option<()> {
    match data_dir.write_terms(&due.generations) {
        Ok(()) => {
            note_success(is_failing);
            Some(())
        }
        Err(error) => {
            if !is_failing.swap(true, Relaxed) {
                tracing::error!(
                    %error,
                    "cannot write data directory; no leases in new units are granted"
                );
            }
            None
        }
    }
}

fn note_success(is_failing: &AtomicBool) {
    if is_failing.swap(false, Relaxed) {
        tracing::info!("data directory written again");
    }
}
