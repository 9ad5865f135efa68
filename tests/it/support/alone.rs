//! One load at a time.

use tokio::sync::{Mutex, MutexGuard};

/// Waits until no other test has a load running: two of them on a small machine would measure each other.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    static LOAD: Mutex<()> = Mutex::const_new(());
    LOAD.lock().await
}
