//! The task that keeps the bound on the disk ahead of what is needed.

use std::{
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::sleep;

use super::{boot::Boot, bound::BoundFile, lock::Lock, slot::Bound};
use crate::leasing::DurableBound;

/// How often it looks, when nobody hurries it.
const PERIOD: Duration = Duration::from_millis(250);
/// How long it waits after the disk has failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps the bound as long as the data directory is held.
pub(super) async fn run(
    horizon: Arc<DurableBound>,
    mut file: BoundFile,
    boot: Boot,
    lock: Weak<Lock>,
) -> io::Result<()> {
    let mut fails = false;
    loop {
        tokio::select! {
            () = horizon.urgent() => {}
            () = sleep(PERIOD) => {}
        }
        let Some((ends, longest)) = horizon.due() else {
            continue;
        };
        let bound = Bound {
            ends,
            longest,
            boot,
        };
        // A write that is under way when this task is dropped goes on: no other server may start before it has ended.
        let Some(lock) = lock.upgrade() else {
            return Ok(());
        };
        let written = tokio::task::spawn_blocking(move || {
            let written = file.write(&bound);
            drop(lock);
            (file, written)
        });
        let result;
        (file, result) = match written.await {
            Ok(written) => written,
            Err(error) => return Err(io::Error::other(error)),
        };
        match result {
            Ok(()) => {
                if std::mem::take(&mut fails) {
                    tracing::info!("the data directory can be written again");
                }
                horizon.record_written(ends);
            }
            Err(error) => {
                horizon.record_failure();
                if !std::mem::replace(&mut fails, true) {
                    tracing::error!(%error, "the data directory cannot be written: leases become shorter, and end, until it can");
                }
                // It is written anew then, not only synced again: what failed once may be taken for written.
                sleep(PAUSE).await;
            }
        }
    }
}
