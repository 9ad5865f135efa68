//! Numbers by slot, with a summary of all of them.

/// Numbers per summary: two cache lines.
const GROUP: usize = 16;

/// A number per slot, and levels that each hold the summary of [`GROUP`] numbers of the level
/// below. A change computes one path anew, in O(log n).
#[derive(Debug, Clone)]
pub(super) struct GroupTree<T> {
    slots: Vec<T>,
    levels: Vec<Vec<T>>,
}

impl<T> Default for GroupTree<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            levels: Vec::new(),
        }
    }
}

impl<T: Copy + PartialEq> GroupTree<T> {
    /// Sets a number. Slots that were never set have the `empty` one.
    pub(super) fn set(&mut self, slot: usize, value: T, empty: T, summary: impl Fn(&[T]) -> T) {
        if value == empty && slot >= self.slots.len() {
            return;
        }
        let (mut at, mut value) = (slot, value);
        for level in std::iter::once(&mut self.slots).chain(&mut self.levels) {
            if at >= level.len() {
                level.resize(at.saturating_add(1), empty);
            }
            match level.get_mut(at) {
                Some(number) if *number != value => *number = value,
                _ => break,
            }
            value = summary(group(level, at));
            at /= GROUP;
        }
        while self.top().len() > GROUP {
            let level = self.top().chunks(GROUP).map(&summary).collect();
            self.levels.push(level);
        }
    }

    pub(super) fn get(&self, slot: usize) -> Option<T> {
        self.slots.get(slot).copied()
    }

    /// The numbers that summarize all.
    pub(super) fn top(&self) -> &[T] {
        self.levels.last().unwrap_or(&self.slots)
    }

    /// The groups from the top one down to one of slots. `choose` has the index of the number below
    /// which the next group is; returns that of the last.
    pub(super) fn descend(&self, choose: impl Fn(&[T]) -> Option<usize>) -> Option<usize> {
        let mut at = 0_usize;
        for level in self.levels.iter().rev().chain([&self.slots]) {
            let from = at.saturating_mul(GROUP);
            at = from.saturating_add(choose(group(level, from))?);
        }
        Some(at)
    }

    /// The groups on the way from a slot up, each with the position of the number on the way.
    pub(super) fn ascend(&self, slot: usize) -> impl Iterator<Item = (&[T], usize)> {
        let levels = std::iter::once(&self.slots).chain(&self.levels);
        levels.scan(slot, |at, level| {
            let found = (group(level, *at), *at % GROUP);
            *at /= GROUP;
            Some(found)
        })
    }
}

/// The group of a number.
fn group<T>(numbers: &[T], at: usize) -> &[T] {
    let from = at.saturating_sub(at % GROUP);
    let rest = numbers.get(from..).unwrap_or_default();
    rest.get(..GROUP).unwrap_or(rest)
}
