//! How much all together may read of the books who lease nothing: pages, scrapes and trials come in parts, and leases come first.
//!
//! A reader that never stops would keep a processor busy, and those who lease would wait for a turn on it. So all who look share one
//! bucket of parts, however many they are: a page finds it full, and who reads on and on is slowed down to its rate.

use std::{num::NonZeroU32, time::Duration};

use doorman_openapi::Moment;

use super::bucket::{Bucket, Depth, Pace, Spent};

/// How many parts are read in a second. A part takes some 30 to 50 µs: together at most a quarter of what one processor does.
const RATE: NonZeroU32 = NonZeroU32::new(5_000).expect("it is not zero");

/// How many may be saved up: three pages of a thousand resources.
const BURST: NonZeroU32 = NonZeroU32::new(100).expect("it is not zero");

/// Those who look at the books.
#[derive(Debug)]
pub(super) struct Lookers {
    parts: Bucket,
    pace: Pace,
}

impl Default for Lookers {
    fn default() -> Self {
        Self {
            parts: Bucket::new(),
            pace: Pace::new(RATE, BURST),
        }
    }
}

impl Lookers {
    /// Somebody is about to read a part; how long to rest before that.
    pub(super) fn look(&self, now: Moment) -> Duration {
        self.parts.owe(1, self.pace, now);
        match self.parts.has(0, self.pace, Depth::Burst, now) {
            Ok(()) => Duration::ZERO,
            Err(Spent { wait }) => wait,
        }
    }
}
