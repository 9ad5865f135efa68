//! The permits that clients of the agent hold, until they release them or their time ends.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use aws_lc_rs::rand;
use doorman_openapi::Moment;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::sleep,
};
use tower_doorman::{Outcome, Permit};

use crate::util::clock;

/// At most so many permits as it has slots.
#[derive(Debug)]
pub(crate) struct PermitTable {
    slots: Arc<Semaphore>,
    state: Mutex<OpenPermits>,
    /// The first end may be earlier than before.
    changed: Notify,
    expired: AtomicU64,
}

#[derive(Debug, Default)]
struct OpenPermits {
    held: HashMap<PermitId, OpenPermit>,
    by_end: BTreeSet<(Moment, PermitId)>,
}

#[derive(Debug)]
struct OpenPermit {
    ends: Moment,
    permit: Permit,
    _slot: OwnedSemaphorePermit,
}

/// Random, so that no client can guess the permits of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PermitId(u128);

impl PermitId {
    /// `None` without randomness.
    fn random() -> Option<Self> {
        let mut bytes = [0; 16];
        rand::fill(&mut bytes).ok()?;
        Some(Self(u128::from_be_bytes(bytes)))
    }

    /// `None` if the text is no permit of any agent.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_hex = |it: u8| matches!(it, b'0'..=b'9' | b'a'..=b'f');
        let is_id = text.len() == 32 && text.bytes().all(is_hex);
        is_id.then(|| u128::from_str_radix(text, 16).ok().map(Self))?
    }

    pub(super) fn text(self) -> String {
        format!("{:032x}", self.0)
    }
}

impl PermitTable {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(slots.min(Semaphore::MAX_PERMITS))),
            state: Mutex::default(),
            changed: Notify::new(),
            expired: AtomicU64::new(0),
        }
    }

    /// Reserves slots; `None` when so many are not free.
    pub(super) fn reserve(&self, slots: usize) -> Option<OwnedSemaphorePermit> {
        let slots = u32::try_from(slots).ok()?;
        Arc::clone(&self.slots).try_acquire_many_owned(slots).ok()
    }

    /// Keeps a permit in a slot. `None` without randomness, and the permit is given back.
    pub(super) fn hold(
        &self,
        permit: Permit,
        slot: OwnedSemaphorePermit,
        ends: Moment,
    ) -> Option<PermitId> {
        let id = PermitId::random()?;
        let held = OpenPermit {
            ends,
            permit,
            _slot: slot,
        };
        let mut state = self.state();
        let is_first = state.by_end.first().is_none_or(|(first, _)| ends < *first);
        state.by_end.insert((ends, id));
        state.held.insert(id, held);
        drop(state);
        if is_first {
            self.changed.notify_one();
        }
        Some(id)
    }

    /// Extends the time of a permit, which ends `hold` from now on, or when it would have ended if
    /// that is later. Returns when it ends; `None` if it has ended or was released.
    pub(super) fn renew(&self, id: PermitId, hold: Duration, now: Moment) -> Option<Moment> {
        let mut state = self.state();
        let held = state.held.get_mut(&id).filter(|it| now < it.ends)?;
        let before = held.ends;
        held.ends = before.max(now.after(hold));
        let ends = held.ends;
        state.by_end.remove(&(before, id));
        state.by_end.insert((ends, id));
        Some(ends)
    }

    /// Gives permits back, with the outcomes of their operations. Returns how many there were.
    pub(super) fn release(
        &self,
        ids: impl IntoIterator<Item = (PermitId, Option<Outcome>)>,
    ) -> usize {
        let mut state = self.state();
        let released = ids.into_iter().filter_map(|(id, outcome)| {
            let held = state.remove(id)?;
            Some((held, outcome))
        });
        let released: Vec<_> = released.collect();
        drop(state);
        for (held, outcome) in &released {
            if let Some(outcome) = outcome {
                held.permit.outcome(*outcome);
            }
        }
        released.len()
    }

    /// Gives permits back when their time ends.
    pub(crate) async fn expire(&self) {
        loop {
            let now = clock::now();
            let next = self.expire_at(now);
            let changed = self.changed.notified();
            match next {
                None => changed.await,
                Some(ends) => tokio::select! {
                    () = changed => {}
                    () = sleep(ends.since(now)) => {}
                },
            }
        }
    }

    /// Returns when the time of the next one ends.
    fn expire_at(&self, now: Moment) -> Option<Moment> {
        let mut expired = Vec::new();
        let mut state = self.state();
        let next = loop {
            match state.by_end.first() {
                Some(&(ends, id)) if ends <= now => expired.extend(state.remove(id)),
                Some(&(ends, _)) => break Some(ends),
                None => break None,
            }
        };
        drop(state);
        let count = u64::try_from(expired.len()).unwrap_or(u64::MAX);
        self.expired.fetch_add(count, Relaxed);
        next
    }

    /// The permits in use.
    pub(super) fn len(&self) -> usize {
        self.state().held.len()
    }

    /// The permits whose time has ended.
    pub(super) fn expired(&self) -> u64 {
        self.expired.load(Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, OpenPermits> {
        // Every statement leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenPermits {
    fn remove(&mut self, id: PermitId) -> Option<OpenPermit> {
        let held = self.held.remove(&id)?;
        self.by_end.remove(&(held.ends, id));
        Some(held)
    }
}
