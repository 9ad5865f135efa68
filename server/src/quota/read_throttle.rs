//! How much all together may read of the books who lease nothing: pages, scrapes and dry runs come in parts, and leases come first.
//!
//! A reader that never stops would keep a processor busy, and those who lease would wait for a turn on it. So all who look share buckets of
//! parts, however many they are: a page finds its bucket full, and who reads on and on is slowed down to its rate. Only a few look at one
//! time, and who cannot begin within a second is refused: what is being read takes memory.
//!
//! Those who read a list have one bucket, and those who go through all resources another: readers of lists, however many, stop no scrape.

use std::{num::NonZeroU32, time::Duration};

use doorman_openapi::Moment;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use super::bucket::{Bucket, Depth, Pace, Spent};

/// How many parts are read in a second. A part takes some 30 to 50 µs: together at most a quarter of what one processor does.
const RATE: NonZeroU32 = NonZeroU32::new(5_000).expect("it is not zero");

/// How many may be saved up: three pages of a thousand resources.
const BURST: NonZeroU32 = NonZeroU32::new(100).expect("it is not zero");

/// How many look at one time: eight pages of a thousand resources are read in 51 ms.
const AT_ONE_TIME: usize = 8;

/// How long somebody waits for others before the first part.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadKind {
    /// A page of a list.
    Page,
    /// All resources: a scrape, or a dry run.
    All,
}

/// Those who look at the books.
#[derive(Debug, Default)]
pub(super) struct ReadThrottle {
    pages: Group,
    all: Group,
}

/// Those who look at the same.
#[derive(Debug)]
struct Group {
    parts: Bucket,
    pace: Pace,
    places: Semaphore,
}

/// Somebody looks, until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct ReadPermit<'a> {
    group: &'a Group,
    _place: SemaphorePermit<'a>,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            parts: Bucket::new(),
            pace: Pace::new(RATE, BURST),
            places: Semaphore::new(AT_ONE_TIME),
        }
    }
}

impl ReadThrottle {
    fn group(&self, looks: ReadKind) -> &Group {
        match looks {
            ReadKind::Page => &self.pages,
            ReadKind::All => &self.all,
        }
    }

    /// Waits for a place among those who look; `None` when there was none for too long.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(super) async fn begin(&self, looks: ReadKind) -> Option<ReadPermit<'_>> {
        let group = self.group(looks);
        let place = timeout(PATIENCE, group.places.acquire()).await;
        Some(ReadPermit {
            group,
            _place: place.ok()?.ok()?,
        })
    }

    /// How long to rest before the next part, for those whose number is bounded elsewhere.
    pub(super) fn rest(&self, looks: ReadKind, now: Moment) -> Duration {
        self.group(looks).rest(now)
    }
}

impl ReadPermit<'_> {
    /// How long to rest before the next part, which counts as read from now on.
    pub(crate) fn rest(&self, now: Moment) -> Duration {
        self.group.rest(now)
    }
}

impl Group {
    fn rest(&self, now: Moment) -> Duration {
        self.parts.owe(1, self.pace, now);
        match self.parts.has(0, self.pace, Depth::Burst, now) {
            Ok(()) => Duration::ZERO,
            Err(Spent { wait }) => wait,
        }
    }
}
