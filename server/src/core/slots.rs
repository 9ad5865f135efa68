//! Small numbers that are handed out, and handed out again.

/// Hands out the smallest numbers it can.
#[derive(Debug, Default)]
pub(super) struct Slots {
    next: usize,
    free: Vec<usize>,
}

impl Slots {
    pub(super) fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            let slot = self.next;
            self.next = slot.saturating_add(1);
            slot
        })
    }

    pub(super) fn give_back(&mut self, slot: usize) {
        self.free.push(slot);
    }
}
