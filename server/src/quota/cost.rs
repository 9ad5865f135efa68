//! Cost of calls in tokens. A token pays for about the work of one lease.

/// A call, in addition to its resources.
pub(super) const REQUEST: u64 = 8;

/// A response without a token, or the verification of an invalid one. A signature takes 0.1 ms.
pub(super) const UNVERIFIED: u64 = 100;

/// A read of the ledger or the document, which may list a thousand items, or a scrape.
const VIEW: u64 = 1_000;

/// A change of the document or a dry run: it visits all resources or waits for the disk.
const CHANGE: u64 = 10_000;

/// Rejecting a call after reading it costs this fraction of deciding it.
pub(super) const REJECTION_FRACTION: u64 = 4;

/// Reading so many bytes takes as long as one lease.
const BYTES_PER_TOKEN: u64 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    View,
    Change,
}

impl Operation {
    pub(super) fn cost(self) -> u64 {
        match self {
            Self::View => VIEW,
            Self::Change => CHANGE,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseCost {
    /// Charged before the body is read.
    pub(super) reading: u64,
    pub(super) total: u64,
}

impl LeaseCost {
    pub(crate) const NONE: Self = Self {
        reading: 0,
        total: 0,
    };

    /// The cost that the length of the body determines.
    pub(crate) fn for_body(bytes: u64) -> Self {
        let reading = REQUEST.saturating_add(bytes / BYTES_PER_TOKEN);
        Self {
            reading,
            total: reading,
        }
    }

    pub(crate) fn with_resources(self, resources: usize) -> Self {
        let total = REQUEST.saturating_add(tokens(resources));
        Self {
            total: total.max(self.reading),
            ..self
        }
    }
}

/// Tokens for decisions on so many resources.
pub(super) fn tokens(resources: usize) -> u64 {
    u64::try_from(resources).unwrap_or(u64::MAX)
}
