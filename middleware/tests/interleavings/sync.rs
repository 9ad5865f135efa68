//! Loom's primitives, and tokio's `Notify` built from them.

pub(super) use loom::{
    hint::spin_loop,
    sync::{
        Mutex,
        atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
};

use loom::sync::Condvar;

/// A listener is notified of every call after it subscribed, and of none before.
#[derive(Debug, Default)]
pub(super) struct Notify {
    calls: Mutex<u32>,
    called: Condvar,
}

pub(super) struct Notified<'n> {
    notify: &'n Notify,
    seen: u32,
}

impl Notify {
    /// Unlike tokio's it wakes all, which is enough for one that waits.
    pub(super) fn notify_one(&self) {
        self.notify_waiters();
    }

    pub(super) fn notify_waiters(&self) {
        *self.calls.lock().unwrap() += 1;
        self.called.notify_all();
    }

    pub(super) fn notified(&self) -> Notified<'_> {
        let seen = *self.calls.lock().unwrap();
        Notified { notify: self, seen }
    }
}

impl Notified<'_> {
    pub(super) fn wait(self) {
        let mut calls = self.notify.calls.lock().unwrap();
        while *calls == self.seen {
            calls = self.notify.called.wait(calls).unwrap();
        }
    }
}
