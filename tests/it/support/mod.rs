//! Processes to test with, and helpers to wait for them.

mod certificates;
mod control_plane;
mod curl;
mod etcd;
mod node;
mod process;
mod relay;
mod service;
mod small_disk;

use std::{thread, time::Duration};

pub(crate) use doorman_tests::connection::{Connection, Response};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{Mutex, MutexGuard};

pub(crate) use self::{
    certificates::Authority,
    control_plane::{ControlPlane, DOCUMENT, Stopped},
    curl::curl,
    etcd::Etcd,
    node::{Master, Node},
    process::{Process, doorman, example, image, repository, tool},
    relay::Relay,
    service::Service,
    small_disk::SmallDisk,
};

/// How long a working process may take to produce output or to exit.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Interval at which conditions are polled.
const POLL: Duration = Duration::from_millis(50);

/// Waits until no other test generates load: two loads on a small machine disturb each other.
pub(crate) async fn exclusive_load() -> MutexGuard<'static, ()> {
    static LOAD: Mutex<()> = Mutex::const_new(());
    LOAD.lock().await
}

/// Monotonic time.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::try_from(time).expect("it is positive")
}

/// Polls until a condition holds.
///
/// # Panics
/// After [`TIMEOUT`].
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..TIMEOUT.as_millis() / POLL.as_millis() {
        if condition() {
            return;
        }
        thread::sleep(POLL);
    }
    panic!("never: {what}");
}
