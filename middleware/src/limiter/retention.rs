//! How long a limiter stays, and how many there is room for.

use super::sync::{AtomicU8, AtomicUsize, Ordering};

/// It takes up the room of a key.
pub(super) const KEYED: u8 = 1;
/// Named in the program: it stays for good.
pub(super) const FIXED: u8 = 2;
/// Not in the registry any more.
const FORGOTTEN: u8 = 4;
/// Named in a rule: it stays as long as the rule does.
pub(super) const HELD: u8 = 8;
/// None of these: the limiter that all keys share for which there is no room.
pub(super) const SPARE: u8 = 0;

/// Some of these bits.
#[derive(Debug)]
pub(super) struct Retention(AtomicU8);

impl Retention {
    pub(super) fn new(bits: u8) -> Self {
        Self(AtomicU8::new(bits))
    }

    /// Whether it stays, whoever asks for it: the program names it, or a rule.
    pub(super) fn stays(&self) -> bool {
        self.0.load(Ordering::Acquire) & (FIXED | HELD) != 0
    }

    /// Makes it stay for this reason, and says what it was; `None` when it has been forgotten already.
    pub(super) fn fix(&self, reason: u8) -> Option<u8> {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
                (bits & FORGOTTEN == 0).then_some((bits & !KEYED) | reason)
            })
            .ok()
    }

    /// No rule names it any more.
    pub(super) fn let_go(&self) {
        self.0.fetch_and(!HELD, Ordering::AcqRel);
    }

    /// Marks it as forgotten, and says what it was; `None` when it stays, or was forgotten before.
    pub(super) fn retire(&self) -> Option<u8> {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
                (bits & (FIXED | HELD | FORGOTTEN) == 0).then_some(FORGOTTEN)
            })
            .ok()
    }
}

/// The room for keys.
#[derive(Debug)]
pub(super) struct Room {
    taken: AtomicUsize,
    most: usize,
}

impl Room {
    pub(super) fn for_keys(most: usize) -> Self {
        Self {
            taken: AtomicUsize::new(0),
            most,
        }
    }

    /// How many there is room for.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Takes the room of one more key; false when there is none.
    pub(super) fn take(&self) -> bool {
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |keys| {
                (keys < self.most).then_some(keys.saturating_add(1))
            })
            .is_ok()
    }

    /// Gives back the room of one.
    pub(super) fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}
