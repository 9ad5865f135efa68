//! How long a limiter stays in the registry, and how many keys the registry holds.

use super::sync::{AtomicU8, AtomicUsize, Ordering};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A key of a request. It occupies a key slot and is removed when idle.
    Key,
    /// All keys without a slot. It is removed when idle.
    Overflow,
    /// A resource named in code. It stays for good.
    Code,
    /// A resource named in a rule. It stays as long as the rule.
    Rule,
}

impl Purpose {
    fn bit(self) -> u8 {
        match self {
            Self::Key => KEY,
            Self::Overflow => OVERFLOW,
            Self::Code => CODE,
            Self::Rule => RULE,
        }
    }
}

const KEY: u8 = 1;
const OVERFLOW: u8 = 2;
const CODE: u8 = 4;
const RULE: u8 = 8;
const FORGOTTEN: u8 = 16;

/// Whether a limiter occupied a key slot, which is now free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freed {
    KeySlot,
    Nothing,
}

impl Freed {
    fn from_bits(bits: u8) -> Self {
        if bits & KEY == 0 {
            Self::Nothing
        } else {
            Self::KeySlot
        }
    }
}

/// The purposes of one limiter, as bits.
#[derive(Debug)]
pub(super) struct Retention(AtomicU8);

impl Retention {
    pub(super) fn new(purpose: Purpose) -> Self {
        Self(AtomicU8::new(purpose.bit()))
    }

    pub(super) fn is_permanent(&self) -> bool {
        self.0.load(Ordering::Acquire) & (CODE | RULE) != 0
    }

    pub(super) fn is_overflow(&self) -> bool {
        self.0.load(Ordering::Relaxed) & OVERFLOW != 0
    }

    /// Adds a purpose that keeps the limiter. `None` if it is already forgotten.
    pub(super) fn pin(&self, purpose: Purpose) -> Option<Freed> {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
                (bits & FORGOTTEN == 0).then_some((bits & !KEY) | purpose.bit())
            })
            .ok()
            .map(Freed::from_bits)
    }

    /// Ends the purpose [`Rule`](Purpose::Rule).
    pub(super) fn unpin(&self) {
        self.0.fetch_and(!RULE, Ordering::AcqRel);
    }

    /// Marks the limiter as forgotten. `None` if it must stay, or was forgotten before.
    pub(super) fn forget(&self) -> Option<Freed> {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
                let stays = bits & (CODE | RULE | FORGOTTEN) != 0;
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
