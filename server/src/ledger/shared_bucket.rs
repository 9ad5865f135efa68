//! The token bucket that all holders of a resource spend from (SHARED_BUCKET).
//!
//! It is filled at the rate of the resource and holds one second's worth, but at least one token. Holders decide by copies of it and
//! report afterwards what they have used, so it may go negative: then nobody is admitted until it is paid back, and on the average
//! no more is admitted than was issued. The idea is that of a central counter with lazily synchronised local ones.

use doorman_openapi::Moment;

/// How many seconds it holds.
const BURST: f64 = 1.0;

/// A debt is never more than was issued in so many seconds, so that no wrong report shuts a resource for ever.
const LONGEST_DEBT: f64 = 3600.0;

/// What was left at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SharedBucket {
    tokens: f64,
    at: Moment,
}

impl SharedBucket {
    /// One that nobody has taken from.
    pub(super) fn full(rate: f64, now: Moment) -> Self {
        Self::with(size(rate), rate, now)
    }

    /// One with so many tokens; of what is owed, as much as a bucket of this rate can owe.
    pub(super) fn with(tokens: f64, rate: f64, now: Moment) -> Self {
        Self {
            tokens: tokens.max(-rate * LONGEST_DEBT),
            at: now,
        }
    }

    /// What is left.
    pub(super) fn left(&self, rate: f64, now: Moment) -> f64 {
        (self.tokens + rate * now.seconds_since(self.at)).min(size(rate))
    }

    /// Takes out what was used, whether there is so much or not.
    pub(super) fn charge(&mut self, used: f64, rate: f64, now: Moment) {
        *self = Self::with(self.left(rate, now) - used, rate, now);
    }

    /// When it will be full if nothing is taken from now on; at once when nothing ever comes, and for the smallest rates after twice
    /// the longest debt: all that is given away then is a part of one token.
    pub(super) fn full_at(&self, rate: f64) -> Moment {
        if rate > 0.0 {
            let seconds = (size(rate) - self.tokens) / rate;
            self.at.after_seconds(seconds.min(2.0 * LONGEST_DEBT))
        } else {
            self.at
        }
    }
}

/// How much it holds: nothing where nothing comes.
pub(super) fn size(rate: f64) -> f64 {
    if rate > 0.0 {
        (rate * BURST).max(1.0)
    } else {
        0.0
    }
}
