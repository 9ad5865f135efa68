//! How long a limiter stays in the registry, and how many keys the registry holds.

use super::sync::{AtomicU16, AtomicUsize, Ordering};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A key of a request. It occupies a key slot and is removed when idle.
    Key,
    /// All keys without a slot. It is removed when idle.
    Overflow,
    /// A resource named in code. It stays as long as a limit or rate of that resource.
    Code,
    /// A resource named in a rule. It stays as long as the rule.
    Rule,
}

impl Purpose {
    fn bits(self) -> u16 {
        match self {
            Self::Key => KEY,
            Self::Overflow => OVERFLOW,
            // Counted when it is pinned.
            Self::Code => 0,
            Self::Rule => RULE,
        }
    }
}

const KEY: u16 = 1;
const OVERFLOW: u16 = 2;
const RULE: u16 = 4;
const FORGOTTEN: u16 = 8;
/// The remaining bits count the limits and rates in code. A full count is never lowered.
const CODE: u16 = 16;
const CODE_MAX: u16 = !(CODE - 1);

/// Whether a limiter occupied a key slot, which is now free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freed {
    KeySlot,
    Nothing,
}

impl Freed {
    fn from_bits(bits: u16) -> Self {
        if bits & KEY == 0 {
            Self::Nothing
        } else {
            Self::KeySlot
        }
    }
}

/// The purposes of one limiter, as bits and a count.
#[derive(Debug, Default)]
pub(super) struct Retention(AtomicU16);

impl Retention {
    /// Starts anew, for another resource.
    pub(super) fn begin(&self, purpose: Purpose) {
        self.0.store(purpose.bits(), Ordering::Release);
    }

    pub(super) fn is_permanent(&self) -> bool {
        self.0.load(Ordering::Acquire) & (CODE_MAX | RULE) != 0
    }

    pub(super) fn is_overflow(&self) -> bool {
        self.0.load(Ordering::Relaxed) & OVERFLOW != 0
    }

    /// Adds a purpose that keeps the limiter. `None` if it is already forgotten.
    pub(super) fn pin(&self, purpose: Purpose) -> Option<Freed> {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
                let pinned = match purpose {
                    Purpose::Code if bits & CODE_MAX == CODE_MAX => bits,
                    Purpose::Code => bits.saturating_add(CODE),
                    Purpose::Key | Purpose::Overflow | Purpose::Rule => bits | purpose.bits(),
                };
                (bits & FORGOTTEN == 0).then_some(pinned & !KEY)
            })
            .ok()
            .map(Freed::from_bits)
    }

    /// Ends the purpose [`Rule`](Purpose::Rule).
    pub(super) fn unpin_rule(&self) {
        self.0.fetch_and(!RULE, Ordering::AcqRel);
    }

    /// Ends one purpose [`Code`](Purpose::Code).
    pub(super) fn unpin_code(&self) {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
                (bits & CODE_MAX != CODE_MAX).then(|| bits.saturating_sub(CODE))
            })
            .ok();
    }

    /// Marks the limiter as forgotten. `None` if it must stay, or was forgotten before.
    pub(super) fn forget(&self) -> Option<Freed> {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
                let stays = bits & (CODE_MAX | RULE | FORGOTTEN) != 0;
                (!stays).then_some((bits & OVERFLOW) | FORGOTTEN)
            })
            .ok()
            .map(Freed::from_bits)
    }
}

/// A bounded number of slots for keys.
#[derive(Debug)]
pub(super) struct KeySlots {
    used: AtomicUsize,
    limit: usize,
}

impl KeySlots {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            limit,
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn acquire(&self) -> bool {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                (used < self.limit).then_some(used.saturating_add(1))
            })
            .is_ok()
    }

    pub(super) fn release(&self) {
        self.used.fetch_sub(1, Ordering::Relaxed);
    }
}
