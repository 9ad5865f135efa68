//! Token bucket that all holders of a resource share (SHARED_BUCKET).
//!
//! It refills at the rate of the resource and holds one second's worth, at least one token. Holders
//! decide by local copies and report their usage afterwards, so the balance may become negative.
//! Requests are then rejected until it refills, which keeps the average at the rate.
//!
//! A full bucket that overflows may only look full, because holders have yet to report what they
//! used. The overflow therefore pays for their next reports, up to the usage that their demand
//! explains. A demand that is reported late, with the first usage, explains what overflowed before,
//! as long as all demands fit: else a fleet that starts would be in debt for its first interval.

use doorman_openapi::Moment;

/// Seconds of refill that the bucket holds.
const BURST: f64 = 1.0;

/// The largest debt, in seconds of refill, so that a wrong report cannot block a resource for good.
const MAX_DEBT: f64 = 3600.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SharedBucket {
    tokens: f64,
    at: Moment,
    /// Tokens that overflowed and pay for reports to come.
    overflowed: f64,
    /// Tokens that overflowed in the last interval, and that nobody is known to have wanted.
    unexplained: f64,
    /// Tokens a second that all holders want since then.
    wanted: f64,
}

/// The terms of a bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BucketTerms {
    /// Tokens a second.
    pub(crate) rate: f64,
    /// Seconds between two reports of a holder.
    pub(crate) interval: f64,
}

impl SharedBucket {
    pub(crate) fn full(rate: f64, now: Moment) -> Self {
        Self::with_balance(Self::burst(rate), rate, now)
    }

    /// Limits a debt to the largest of this rate.
    pub(crate) fn with_balance(tokens: f64, rate: f64, now: Moment) -> Self {
        Self {
            tokens: tokens.max(-rate * MAX_DEBT),
            at: now,
            overflowed: 0.0,
            unexplained: 0.0,
            wanted: 0.0,
        }
    }

    /// Restores tokens that overflowed: those that pay for reports to come, and the others of the
    /// last interval.
    pub(crate) fn with_overflowed(self, overflowed: f64, unexplained: f64) -> Self {
        Self {
            overflowed,
            unexplained,
            ..self
        }
    }

    pub(crate) fn overflowed(&self) -> f64 {
        self.overflowed
    }

    pub(crate) fn unexplained(&self) -> f64 {
        self.unexplained
    }

    pub(crate) fn burst(rate: f64) -> f64 {
        if rate > 0.0 {
            (rate * BURST).max(1.0)
        } else {
            0.0
        }
    }

    pub(crate) fn balance(&self, rate: f64, now: Moment) -> f64 {
        (self.tokens + rate * now.seconds_since(self.at)).min(Self::burst(rate))
    }

    /// Sets the tokens a second that all holders want from now on.
    pub(crate) fn set_demand(&mut self, wanted: f64, terms: BucketTerms, now: Moment) {
        self.refill(terms, now);
        if wanted <= terms.rate {
            let late = (wanted - self.wanted).max(0.0) * terms.interval;
            let explained = late.min(self.unexplained);
            self.unexplained -= explained;
            self.overflowed += explained;
        }
        self.wanted = wanted;
    }

    /// Restores the tokens a second that all holders want. They explain no overflow again.
    pub(crate) fn restore_demand(&mut self, wanted: f64) {
        self.wanted = wanted;
    }

    /// Takes reported usage, whether or not there are enough tokens.
    pub(crate) fn charge(&mut self, used: f64, terms: BucketTerms, now: Moment) {
        self.refill(terms, now);
        let paid = used.min(self.overflowed);
        self.overflowed -= paid;
        self.tokens = (self.tokens - (used - paid)).max(-terms.rate * MAX_DEBT);
    }

    /// Adds the tokens since the last time, and keeps of the overflow what the demand may have
    /// used.
    pub(crate) fn refill(&mut self, BucketTerms { rate, interval }: BucketTerms, now: Moment) {
        let seconds = now.seconds_since(self.at);
        if seconds <= 0.0 {
            return;
        }
        let wanted = self.wanted.min(rate);
        if rate > 0.0 {
            let overflow = (self.tokens + rate * seconds - Self::burst(rate)).max(0.0);
            let explained = overflow * wanted / rate;
            self.overflowed = (self.overflowed + explained).min(wanted * interval);
            self.unexplained = (self.unexplained + overflow - explained).min(rate * interval);
        }
        self.tokens = self.balance(rate, now);
        self.at = now;
    }

    /// When the bucket will be full if it is not used. A tiny rate is cut off at twice the largest
    /// debt, which gives away less than one token.
    pub(crate) fn full_at(&self, rate: f64) -> Moment {
        if rate > 0.0 {
            let seconds = (Self::burst(rate) - self.tokens) / rate;
            self.at.after_seconds(seconds.min(2.0 * MAX_DEBT))
        } else {
            self.at
        }
    }
}
