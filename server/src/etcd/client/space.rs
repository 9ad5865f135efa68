//! Whether etcd has space for writes. Without it renewals of leases succeed, but no election.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::{sleep, timeout};

use super::EtcdClient;
use crate::util::{clock, log_throttle::LogThrottle};

/// The steps that give etcd its space back.
pub(super) const ADVICE: &str =
    "compact and defragment etcd, then run `etcdctl alarm disarm` (docs/OPERATIONS.md)";

/// How often etcd is asked whether it has space.
const INTERVAL: Duration = Duration::from_secs(2);
/// The longest wait for the answer of an endpoint.
const CALL_TIME: Duration = Duration::from_secs(1);
/// How long a planned stop waits for space.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// What the last answer of etcd says.
#[derive(Debug)]
pub(super) struct Space {
    is_out: AtomicBool,
    warnings: LogThrottle,
}

impl Default for Space {
    fn default() -> Self {
        Self {
            is_out: AtomicBool::new(false),
            warnings: LogThrottle::per_minute(),
        }
    }
}

impl Space {
    pub(super) fn is_out(&self) -> bool {
        self.is_out.load(Relaxed)
    }

    pub(super) fn set(&self, is_out: bool) {
        let was_out = self.is_out.swap(is_out, Relaxed);
        if is_out && self.warnings.admit(clock::now()).is_some() {
            tracing::warn!(
                "etcd is out of space and rejects writes, so no other server can become master, \
                 and a document in it cannot change: {ADVICE}"
            );
        }
        if was_out && !is_out {
            tracing::info!("etcd has space for writes again");
        }
    }
}

impl EtcdClient {
    /// Whether etcd rejected a write for want of space, and has not told since that it has some.
    pub(crate) fn is_out_of_space(&self) -> bool {
        self.0.space.is_out()
    }

    /// Follows whether etcd has space: a master without changes writes nothing, and would not
    /// notice.
    pub(crate) async fn follow_space(self) {
        loop {
            self.ask_for_space().await;
            sleep(INTERVAL).await;
        }
    }

    /// Waits for space up to 30 s, while `is_needed`: a master that stops without it has no
    /// successor.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(crate) async fn wait_for_space(&self, is_needed: impl Fn() -> bool) {
        if !is_needed() {
            return;
        }
        // An etcd that does not answer must not delay the stop.
        timeout(CALL_TIME, self.ask_for_space()).await.ok();
        if !self.is_out_of_space() {
            return;
        }
        let give_up = clock::now().after(MAX_WAIT);
        tracing::warn!(
            "etcd is out of space, so no server can follow this master: the stop waits up to 30 s \
             for space; {ADVICE}"
        );
        while is_needed() && self.is_out_of_space() {
            if clock::now() >= give_up {
                tracing::warn!(
                    "stopping without a successor: there is no master until etcd has space; \
                     services continue until their leases end"
                );
                return;
            }
            sleep(INTERVAL).await;
            self.ask_for_space().await;
        }
    }

    /// Asks the endpoints in turn, until one answers.
    async fn ask_for_space(&self) {
        match self.0.has_space_alarm(CALL_TIME).await {
            Ok(is_out) => self.0.space.set(is_out),
            Err(error) => tracing::debug!(%error, "cannot ask etcd for its alarms"),
        }
    }
}
