//! Whether etcd has space for writes. Without it renewals of leases succeed, but no election.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::EtcdClient;
use crate::util::{clock, log_throttle::ProblemLog};

/// The steps that give etcd its space back.
pub(super) const ADVICE: &str =
    "compact and defragment etcd, then run `etcdctl alarm disarm` (docs/OPERATIONS.md)";

/// How often etcd is asked whether it has space, while it is known to have none.
const INTERVAL: Duration = Duration::from_secs(2);
/// How often etcd is asked otherwise. Each time a quorum executes the call.
const MAX_INTERVAL: Duration = Duration::from_secs(30);
/// The longest wait for the answer of an endpoint.
const CALL_TIME: Duration = Duration::from_secs(1);
/// The longest wait for the answer of any endpoint at the beginning of a stop.
const FIRST_TIME: Duration = Duration::from_secs(3);
/// How long a planned stop waits for space.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Whether etcd has space, by its last answer.
#[derive(Debug)]
pub(super) struct Space {
    is_out: AtomicBool,
    problem: ProblemLog,
    unknown: ProblemLog,
}

impl Default for Space {
    fn default() -> Self {
        Self {
            is_out: AtomicBool::new(false),
            problem: ProblemLog::new(Duration::from_secs(60)),
            // Without a permission it is unknown for ever.
            unknown: ProblemLog::new(Duration::from_secs(24 * 60 * 60)),
        }
    }
}

impl Space {
    pub(super) fn is_out(&self) -> bool {
        self.is_out.load(Relaxed)
    }

    pub(super) fn set(&self, is_out: bool) {
        self.is_out.store(is_out, Relaxed);
        if is_out && self.problem.note(clock::now()) {
            tracing::warn!(
                "etcd is out of space and rejects writes, so no other server can become master, \
                 and a document in it cannot change: {ADVICE}"
            );
        }
        if !is_out && self.problem.note_end() {
            tracing::info!("etcd has space for writes again");
        }
    }
}

impl EtcdClient {
    /// Whether etcd is out of space: it rejected a write or listed a NOSPACE alarm, and no write or
    /// list has shown the opposite since.
    pub(crate) fn is_out_of_space(&self) -> bool {
        self.0.space.is_out()
    }

    /// Follows whether etcd has space: a master without changes writes nothing, and would not
    /// notice.
    pub(crate) async fn follow_space(self) {
        loop {
            self.ask_for_space().await;
            let ask_at = clock::now().after(MAX_INTERVAL);
            sleep(INTERVAL).await;
            while !self.is_out_of_space() && clock::now() < ask_at {
                sleep(INTERVAL).await;
            }
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
        #[expect(
            clippy::disallowed_methods,
            reason = "timers of tokio take its own clock"
        )]
        let give_up = Instant::now() + MAX_WAIT;
        // An etcd that does not answer must not delay the stop.
        timeout(FIRST_TIME, self.ask_for_space()).await.ok();
        if !self.is_out_of_space() {
            return;
        }
        tracing::warn!(
            "etcd is out of space, so no server can follow this master: the stop waits up to 30 s \
             for space; {ADVICE}"
        );
        let space = async {
            while is_needed() && self.is_out_of_space() {
                sleep(INTERVAL).await;
                self.ask_for_space().await;
            }
        };
        if timeout_at(give_up, space).await.is_err() {
            tracing::warn!(
                "stopping without a successor: there is no master until etcd has space; services \
                 continue until their leases end"
            );
        }
    }

    /// Asks the endpoints in turn, until one answers.
    pub(super) async fn ask_for_space(&self) {
        match self.0.has_space_alarm(CALL_TIME).await {
            Ok(is_out) => {
                self.0.space.set(is_out);
                self.0.space.unknown.note_end();
            }
            Err(error) if self.0.space.unknown.note(clock::now()) => tracing::warn!(
                %error,
                "cannot list the alarms of etcd, so only a write that fails shows a lack of space, \
                 and only one that succeeds its end (docs/OPERATIONS.md)"
            ),
            Err(error) => tracing::debug!(%error, "cannot list the alarms of etcd"),
        }
    }
}
