//! Calls of a server without an election: writes to the data directory.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use futures_util::future::BoxFuture;
use tokio::task::spawn_blocking;

use super::Executor;
use crate::{durability::DataDir, durability::DataDirError};
use doorman_core::{election::DiskCall, election::DiskReply, reign::DueBound, reign::DueTerms};

/// Writes the bound and the terms of leases to the data directory.
#[derive(Debug)]
pub(crate) struct Disk {
    data_dir: Arc<DataDir>,
    failing: Arc<Failing>,
}

/// The writes that failed last, which was logged.
#[derive(Debug, Default)]
struct Failing {
    bound: AtomicBool,
    /// The copy of the longest lease in the identity.
    copy: AtomicBool,
    terms: AtomicBool,
}

impl Disk {
    pub(crate) fn new(data_dir: Arc<DataDir>) -> Self {
        Self {
            data_dir,
            failing: Arc::default(),
        }
    }
}

impl Executor for Disk {
    type Call = DiskCall;
    type Reply = DiskReply;

    fn execute(&self, call: DiskCall) -> BoxFuture<'static, Option<DiskReply>> {
        let (data_dir, failing) = (Arc::clone(&self.data_dir), Arc::clone(&self.failing));
        match call {
            DiskCall::Bound(due) => Box::pin(async move {
                let written = spawn_blocking(move || write_bound(&data_dir, due, &failing));
                written.await.ok()?.map(|()| DiskReply::Bound)
            }),
            DiskCall::Terms(due) => Box::pin(async move {
                let written = spawn_blocking(move || write_terms(&data_dir, &due, &failing.terms));
                written.await.ok()?.map(|()| DiskReply::Terms)
            }),
        }
    }
}

fn write_bound(data_dir: &DataDir, due: DueBound, failing: &Failing) -> Option<()> {
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
    let written: Result<(), DataDirError> = data_dir.write_terms(&due.generations);
    match written {
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
