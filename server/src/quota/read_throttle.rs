//! Limit on reads of the ledger by calls that lease nothing: pages, scrapes and dry runs.
//!
//! A read visits the ledger in parts, and holds memory. All readers of a kind share one token
//! bucket of parts, and few read at a time. Lists and full scans have separate buckets, so that
//! lists stop no scrape.

use std::{num::NonZeroU32, time::Duration};

use doorman_openapi::Moment;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use super::bucket::{Bucket, BucketConfig, Overdraft};

/// Parts per second. A part takes 30 to 50 µs: together at most a quarter of one processor.
const RATE: NonZeroU32 = NonZeroU32::new(5_000).expect("it is not zero");

/// Three pages of a thousand resources.
const BURST: NonZeroU32 = NonZeroU32::new(100).expect("it is not zero");

/// Eight pages of a thousand resources are read in 51 ms.
const CONCURRENT_READS: usize = 8;

/// How long a read may wait for others before its first part.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadKind {
    Page,
    /// All resources: a scrape or a dry run.
    All,
}

#[derive(Debug, Default)]
pub(super) struct ReadThrottle {
    pages: Readers,
    all: Readers,
}

#[derive(Debug)]
struct Readers {
    parts: Bucket,
    config: BucketConfig,
    permits: Semaphore,
}

/// Permission to read, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct ReadPermit<'a> {
    readers: &'a Readers,
    _permit: SemaphorePermit<'a>,
}

impl Default for Readers {
    fn default() -> Self {
        Self {
            parts: Bucket::new(),
            config: BucketConfig::new(RATE, BURST),
            permits: Semaphore::new(CONCURRENT_READS),
        }
    }
}

impl ReadThrottle {
    fn readers(&self, kind: ReadKind) -> &Readers {
        match kind {
            ReadKind::Page => &self.pages,
            ReadKind::All => &self.all,
        }
    }

    /// Waits for a permit; `None` when that takes too long.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(super) async fn begin(&self, kind: ReadKind) -> Option<ReadPermit<'_>> {
        let readers = self.readers(kind);
        let permit = timeout(PERMIT_TIMEOUT, readers.permits.acquire()).await;
        Some(ReadPermit {
            readers,
            _permit: permit.ok()?.ok()?,
        })
    }

    /// Charges a part, and returns the delay before it may be read.
    pub(super) fn delay(&self, kind: ReadKind, now: Moment) -> Duration {
        self.readers(kind).delay(now)
    }
}

impl ReadPermit<'_> {
    /// Charges the next part, and returns the delay before it may be read.
    pub(crate) fn delay(&self, now: Moment) -> Duration {
        self.readers.delay(now)
    }
}

impl Readers {
    fn delay(&self, now: Moment) -> Duration {
        let parts = self.parts.at(self.config, now);
        parts.debit(1);
        parts.wait_for(0, Overdraft::None)
    }
}
