//! The priorities of all demands, and the bands that they make.

use std::collections::BTreeMap;

use doorman_openapi::MAX_BANDS;

/// The number of demands at each priority.
#[derive(Debug, Clone)]
pub(super) struct Priorities {
    counts: BTreeMap<i32, u32>,
    lowest_band: i32,
}

impl Default for Priorities {
    fn default() -> Self {
        Self {
            counts: BTreeMap::new(),
            lowest_band: i32::MIN,
        }
    }
}

impl Priorities {
    pub(super) fn add(&mut self, priority: i32) {
        let count = self.counts.entry(priority).or_default();
        *count = count.saturating_add(1);
        if *count == 1 {
            self.set_lowest_band();
        }
    }

    pub(super) fn remove(&mut self, priority: i32) {
        if let Some(count) = self.counts.get_mut(&priority) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&priority);
                self.set_lowest_band();
            }
        }
    }

    /// The band of demands at this priority: their own, or the lowest band.
    ///
    /// A change of the lowest band moves no demand, because that could be all of them. Each moves
    /// at its holder's next refresh.
    pub(super) fn band_of(&self, priority: i32) -> i32 {
        priority.max(self.lowest_band)
    }

    fn set_lowest_band(&mut self) {
        let lowest = self.counts.keys().rev().nth(MAX_BANDS - 1);
        let is_full = self.counts.len() > MAX_BANDS;
        self.lowest_band = lowest.copied().filter(|_| is_full).unwrap_or(i32::MIN);
    }
}
