//! What is asked for, in decisions: a decision is about as much work as one lease takes.

/// What a request costs beside its resources.
pub(super) const REQUEST: u64 = 8;

/// What an answer without a token, or the verifying of one that does not count, costs. A signature takes some 0.1 ms.
pub(super) const UNVERIFIED: u64 = 100;

/// What a look at the books, or at the document, costs: it may list a thousand things.
const VIEW: u64 = 1_000;

/// A change of the document or a dry run: it visits all resources, or waits for the disk. A scrape
/// is a view: the read throttle bounds how many resources it visits.
const CHANGE: u64 = 10_000;

/// What to read and refuse a request costs, of what it would cost to decide it.
const REFUSED: u64 = 4;

/// So many bytes take as long to read as a decision takes.
const BYTES: u64 = 1024;

/// What an operator asks for.
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

/// A call for leases, by what it costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseCost {
    /// What is paid before it is read.
    pub(super) reading: u64,
    pub(super) all: u64,
}

impl LeaseCost {
    /// That nobody pays for.
    pub(crate) const NONE: Self = Self { reading: 0, all: 0 };

    /// One of which nothing is known but how long its body is.
    pub(crate) fn unread(bytes: u64) -> Self {
        let reading = REQUEST.saturating_add(bytes / BYTES);
        Self {
            reading,
            all: reading,
        }
    }

    /// The same, that has turned out to be about so many resources.
    pub(crate) fn about(self, resources: usize) -> Self {
        let all = REQUEST.saturating_add(tokens(resources));
        Self {
            all: all.max(self.reading),
            ..self
        }
    }

    /// What it costs, of all that it would, to be refused.
    pub(super) fn refused(self) -> u64 {
        self.all / REFUSED
    }

    /// What it costs to be refused for its reading alone.
    pub(super) fn unread_refused(self) -> u64 {
        self.reading / REFUSED
    }
}

/// What decisions on so many resources cost.
pub(super) fn tokens(resources: usize) -> u64 {
    u64::try_from(resources).unwrap_or(u64::MAX)
}
