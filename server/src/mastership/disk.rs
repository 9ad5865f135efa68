//! Calls of a server without an election: writes to the data directory.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use futures_util::future::BoxFuture;

use super::Executor;
use crate::{durability::DataDir, election::DiskCall};

/// Writes the bound to the data directory.
#[derive(Debug)]
pub(crate) struct Disk {
    data_dir: Arc<DataDir>,
    is_failing: Arc<AtomicBool>,
}

impl Disk {
    pub(crate) fn new(data_dir: Arc<DataDir>) -> Self {
        Self {
            data_dir,
            is_failing: Arc::default(),
        }
    }
}

impl Executor for Disk {
    type Call = DiskCall;
    type Reply = ();

    fn execute(&self, DiskCall(due): DiskCall) -> BoxFuture<'static, Option<()>> {
        let data_dir = Arc::clone(&self.data_dir);
        let is_failing = Arc::clone(&self.is_failing);
        Box::pin(async move {
            let written = tokio::task::spawn_blocking(move || data_dir.write_bound(due)).await;
            match written.map_err(std::io::Error::from).flatten() {
                Ok(()) => {
                    if is_failing.swap(false, Relaxed) {
                        tracing::info!("data directory written again");
                    }
                    Some(())
                }
                Err(error) => {
                    if !is_failing.swap(true, Relaxed) {
                        tracing::error!(
                            %error,
                            "cannot write data directory; leases will shorten, then expire"
                        );
                    }
                    None
                }
            }
        })
    }
}
