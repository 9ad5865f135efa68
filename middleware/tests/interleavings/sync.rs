//! Loom's atomics and locks, and a bell that is made of them.

pub(super) use loom::{
    hint::spin_loop,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
};

use loom::sync::Condvar;

/// As much of tokio's as is made use of: who listens hears of everything from then on, and of nothing before.
#[derive(Debug, Default)]
pub(super) struct Notify {
    rung: Mutex<u32>,
    ringing: Condvar,
}

/// One who listens.
pub(super) struct Notified<'b> {
    bell: &'b Notify,
    heard: u32,
}

impl Notify {
    pub(super) fn notify_waiters(&self) {
        *self.rung.lock().unwrap() += 1;
        self.ringing.notify_all();
    }

    pub(super) fn notified(&self) -> Notified<'_> {
        let heard = *self.rung.lock().unwrap();
        Notified { bell: self, heard }
    }
}

impl Notified<'_> {
    /// Waits until it rings.
    pub(super) fn come(self) {
        let mut rung = self.bell.rung.lock().unwrap();
        while *rung == self.heard {
            rung = self.bell.ringing.wait(rung).unwrap();
        }
    }
}
