//! Index from the hash of a name to the numbers of the records that may have it.
//!
//! Read without a lock. A reader that finds nothing while the index changes looks again under the
//! lock that serializes changes. Each line has ten entries: sixteen bits of the hash, and a number.
//! The index grows by one line at a time (linear hashing, W. Litwin, VLDB 1980), so nothing is ever
//! copied as a whole. An entry is in the line of its hash or, when that is full, in a second one.

use super::{
    arena::Arena,
    sync::{AtomicU32, AtomicU64, Ordering, fence},
};

/// Entries in a line.
const SLOTS: usize = 10;
/// Entries to lines, above which the index grows: 5 of 10 slots used.
const LOAD: u32 = 5;
/// Tags in a word.
const TAGS: usize = 4;
/// The lowest and the highest bit of each tag in a word.
const LOW_BITS: u64 = 0x0001_0001_0001_0001;
const HIGH_BITS: u64 = 0x8000_8000_8000_8000;

/// One cache line.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Sixteen bits each; 0 is a free slot.
    tags: [AtomicU64; 3],
    numbers: [AtomicU32; SLOTS],
}

#[derive(Debug)]
pub(super) struct Index {
    lines: Arena<Line>,
    /// The number of lines, at least one, and in the upper half a mask that covers their numbers.
    extent: AtomicU64,
    /// Odd while an entry is inserted, moved or removed.
    version: AtomicU32,
    entries: AtomicU32,
}

/// Why no entry was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    Certainly,
    /// Entries were moved meanwhile.
    Perhaps,
}

#[derive(Debug, Clone, Copy)]
struct Extent {
    lines: u32,
    mask: u32,
}

impl Extent {
    fn of(lines: u32) -> Self {
        let last = lines.saturating_sub(1);
        Self {
            lines,
            mask: u32::MAX.checked_shr(last.leading_zeros()).unwrap_or(0),
        }
    }

    #[inline]
    fn line(self, hash: u32) -> u32 {
        let line = hash & self.mask;
        if line < self.lines {
            line
        } else {
            line & (self.mask >> 1)
        }
    }

    /// The lines in which an entry may be.
    #[inline]
    fn lines_of(self, hash: u64) -> [u32; 2] {
        // The tag is made of the highest bits.
        let second = (hash >> 16) as u32 ^ 0x9E37_79B9;
        [self.line(hash as u32), self.line(second)]
    }
}

#[inline]
fn tag_of(hash: u64) -> u64 {
    (hash >> 48) | 1
}

/// The lowest bit of each lane of a word that has the tag.
#[inline]
fn hits(word: &AtomicU64, tag: u64) -> u64 {
    let differences = word.load(Ordering::Acquire) ^ tag.wrapping_mul(LOW_BITS);
    // Adding sets the highest bit where another bit is set.
    let others = (differences & !HIGH_BITS).wrapping_add(!HIGH_BITS);
    (!(others | differences) & HIGH_BITS) >> 15
}

impl Line {
    /// The first result of `accept` among the numbers of the entries with a tag.
    fn find<T>(&self, tag: u64, accept: impl FnMut(u32) -> Option<T>) -> Option<T> {
        let hits = (0..)
            .zip(&self.tags)
            .map(|(at, word)| hits(word, tag) << at);
        self.first_of(hits.fold(0, |all, hits| all | hits), accept)
    }

    /// The same, except that entries in the last slots may be missed.
    #[expect(
        clippy::inline_always,
        reason = "measured: the state stays in registers"
    )]
    #[inline(always)]
    fn find_likely<T>(&self, tag: u64, accept: impl FnMut(u32) -> Option<T>) -> Option<T> {
        let [first, second, third] = &self.tags;
        let mut likely = hits(first, tag) | (hits(second, tag) << 1);
        // Few lines are so full.
        if likely == 0 {
            likely = hits(third, tag) << 2;
        }
        self.first_of(likely, accept)
    }

    /// The first result of `accept` among the numbers in some slots: those of a word of tags are
    /// sixteen bits apart, and the words' own side by side.
    #[expect(
        clippy::inline_always,
        reason = "measured: the state stays in registers"
    )]
    #[inline(always)]
    fn first_of<T>(&self, mut slots: u64, mut accept: impl FnMut(u32) -> Option<T>) -> Option<T> {
        while slots != 0 {
            let bit = slots.trailing_zeros() as usize;
            slots &= slots.wrapping_sub(1);
            let slot = (bit % 16) * TAGS + bit / 16;
            if let Some(number) = self.numbers.get(slot)
                && let Some(found) = accept(number.load(Ordering::Relaxed))
            {
                return Some(found);
            }
        }
        None
    }

    fn tag(&self, slot: usize) -> u64 {
        let word = self.tags.get(slot / TAGS);
        let word = word.map_or(0, |word| word.load(Ordering::Relaxed));
        (word >> (16 * (slot % TAGS))) & 0xFFFF
    }

    fn set_tag(&self, slot: usize, tag: u64) {
        let Some(word) = self.tags.get(slot / TAGS) else {
            return;
        };
        let shift = 16 * (slot % TAGS);
        let others = word.load(Ordering::Relaxed) & !(0xFFFF << shift);
        // The number is stored before its tag.
        word.store(others | (tag << shift), Ordering::Release);
    }

    fn number(&self, slot: usize) -> u32 {
        let number = self.numbers.get(slot);
        number.map_or(0, |number| number.load(Ordering::Relaxed))
    }

    fn used(&self) -> impl Iterator<Item = usize> {
        (0..SLOTS).filter(|&slot| self.tag(slot) != 0)
    }

    /// False when all slots are used.
    fn put(&self, tag: u64, number: u32) -> bool {
        let Some(slot) = (0..SLOTS).find(|&slot| self.tag(slot) == 0) else {
            return false;
        };
        if let Some(word) = self.numbers.get(slot) {
            word.store(number, Ordering::Relaxed);
        }
        self.set_tag(slot, tag);
        true
    }
}

impl Index {
    /// An index for about so many entries, and room for more.
    pub(super) fn new(entries: usize) -> Self {
        let index = Self {
            lines: Arena::with_near(entries / LOAD as usize),
            extent: AtomicU64::new(0),
            version: AtomicU32::new(0),
            entries: AtomicU32::new(0),
        };
        index.lines.get_or_allocate(0);
        index.set_extent(Extent::of(1));
        index
    }

    #[cfg(test)]
    pub(super) fn lines(&self) -> u32 {
        self.extent().lines
    }

    #[inline]
    fn extent(&self) -> Extent {
        let extent = self.extent.load(Ordering::Acquire);
        Extent {
            lines: extent as u32,
            mask: (extent >> 32) as u32,
        }
    }

    fn set_extent(&self, extent: Extent) {
        let extent = (u64::from(extent.mask) << 32) | u64::from(extent.lines);
        self.extent.store(extent, Ordering::Release);
    }

    /// The first result of `accept` among the entries of the first line of this hash, perhaps
    /// without those in its last two slots. [`find`](Self::find) finds all.
    #[expect(
        clippy::inline_always,
        reason = "measured: the state stays in registers"
    )]
    #[inline(always)]
    pub(super) fn find_likely<T>(
        &self,
        hash: u64,
        accept: impl FnMut(u32) -> Option<T>,
    ) -> Option<T> {
        let line = self.lines.get(self.extent().line(hash as u32))?;
        line.find_likely(tag_of(hash), accept)
    }

    /// The first result of `accept` among the entries that may have this hash. It is called with
    /// numbers of other hashes, too.
    pub(super) fn find<T>(
        &self,
        hash: u64,
        mut accept: impl FnMut(u32) -> Option<T>,
    ) -> Result<T, Absent> {
        let version = self.version.load(Ordering::Acquire);
        for line in self.extent().lines_of(hash) {
            if let Some(found) = self.lines.at(line).find(tag_of(hash), &mut accept) {
                return Ok(found);
            }
        }
        // Orders the reads of the lines before the second read of the version.
        fence(Ordering::Acquire);
        let undisturbed =
            version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        Err(if undisturbed {
            Absent::Certainly
        } else {
            Absent::Perhaps
        })
    }

    /// Adds an entry. Calls that change the index must not overlap. `hash_of` gives the hash of an
    /// entry that is in the index. False when there is no room.
    pub(super) fn insert(&self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) -> bool {
        self.begin_change();
        let entries = self.entries.load(Ordering::Relaxed).saturating_add(1);
        while entries > self.extent().lines.saturating_mul(LOAD) && self.grow(&hash_of) {}
        let mut inserted = self.put(hash, number, &hash_of);
        // Equal hashes stay together however many lines there are.
        while !inserted && self.extent().lines <= entries && self.grow(&hash_of) {
            inserted = self.put(hash, number, &hash_of);
        }
        if inserted {
            self.entries.store(entries, Ordering::Relaxed);
        }
        self.end_change();
        inserted
    }

    fn put(&self, hash: u64, number: u32, hash_of: &impl Fn(u32) -> u64) -> bool {
        let extent = self.extent();
        let lines = extent.lines_of(hash);
        let into = |line: u32, hash: u64, number: u32| {
            let line = self.lines.get(line);
            line.is_some_and(|line| line.put(tag_of(hash), number))
        };
        if lines.into_iter().any(|line| into(line, hash, number)) {
            return true;
        }
        // Both are full: an entry of one of them moves to its other line.
        for number_of_line in lines {
            let Some(line) = self.lines.get(number_of_line) else {
                continue;
            };
            for slot in 0..SLOTS {
                let moving = line.number(slot);
                let moving_hash = hash_of(moving);
                let [one, other] = extent.lines_of(moving_hash);
                let elsewhere = if one == number_of_line { other } else { one };
                if elsewhere != number_of_line && into(elsewhere, moving_hash, moving) {
                    line.set_tag(slot, 0);
                    return line.put(tag_of(hash), number);
                }
            }
        }
        false
    }

    /// Adds a line, and moves the entries there that belong to it. False when there is no room.
    fn grow(&self, hash_of: &impl Fn(u32) -> u64) -> bool {
        let lines = self.extent().lines;
        let next = Extent::of(lines.saturating_add(1));
        // The lines whose entries may belong to the new one: its number without the highest bit.
        let from = lines & (next.mask >> 1);
        let (Some(new), Some(old)) = (self.lines.get_or_allocate(lines), self.lines.get(from))
        else {
            return false;
        };
        let is_leaving = |slot: &usize| {
            let hash = hash_of(old.number(*slot));
            !next.lines_of(hash).contains(&from)
        };
        let leaving: Vec<usize> = old.used().filter(is_leaving).collect();
        for &slot in &leaving {
            // It has as many slots as the old one.
            new.put(old.tag(slot), old.number(slot));
        }
        self.set_extent(next);
        for slot in leaving {
            old.set_tag(slot, 0);
        }
        true
    }

    /// Removes an entry. Calls that change the index must not overlap.
    pub(super) fn remove(&self, hash: u64, number: u32) {
        self.begin_change();
        for line in self.extent().lines_of(hash) {
            let Some(line) = self.lines.get(line) else {
                continue;
            };
            let mut slots = line.used();
            let found = slots.find(|&it| line.tag(it) == tag_of(hash) && line.number(it) == number);
            if let Some(slot) = found {
                line.set_tag(slot, 0);
                let entries = self.entries.load(Ordering::Relaxed);
                self.entries
                    .store(entries.saturating_sub(1), Ordering::Relaxed);
                break;
            }
        }
        self.end_change();
    }

    fn begin_change(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Relaxed);
        // A reader that sees one of the changes also sees the odd version.
        fence(Ordering::Release);
    }

    fn end_change(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Release);
    }
}
