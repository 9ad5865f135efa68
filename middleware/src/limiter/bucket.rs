//! Arithmetic of a token bucket whose rate is a lease. Pure: time is an argument.
//!
//! Two running totals: *issued*, a piecewise linear function of time ([`RefillSchedule`]), and
//! *spent*. Their difference is what is left, at most one burst: overflow raises a floor under
//! *spent*. A new rate bends *issued* and changes neither total, so no switch between rates adds a
//! burst.
//!
//! A gauge ([`Refill::Units`]) has the same two numbers: *issued* is how many units may be in use
//! at once, and *spent* how many are. Units that are given back lower *spent*.

use doorman_openapi::{Moment, Unit};

use super::settings::Burst;

/// The highest rate. The totals stay below 2^53, where one token still counts, for 100 days.
const MAX_RATE: f64 = 1e9;
/// The most units of a gauge, so that a word holds their number.
const MAX_UNITS: f64 = 1e12;
/// A lease that lacks less than this of a whole unit has it: the server's sums are not exact.
const UNIT_TOLERANCE: f64 = 1e-6;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Refill {
    /// None are added, and none may be taken.
    Blocked,
    /// Tokens a second. At 0 none are added, but those left may be taken.
    PerSecond(f64),
    /// None are added, and one bucket of this rate may be taken. It is charged when there is a
    /// rate.
    Credit(f64),
    /// Every request is admitted. Its cost is charged when there is a rate again.
    Unlimited,
    /// Of a gauge: so many units may be in use at once.
    Units(f64),
}

impl Refill {
    /// A rate or a number of units. 0 is blocked.
    pub(crate) fn at(amount: f64, unit: Unit) -> Self {
        match unit {
            _ if amount <= 0.0 => Self::Blocked,
            Unit::Rate => Self::PerSecond(amount.min(MAX_RATE)),
            Unit::Gauge => Self::units(amount),
        }
    }

    /// A rate of 0 is blocked.
    pub(crate) fn credit(rate: f64) -> Self {
        if rate > 0.0 {
            Self::Credit(rate.min(MAX_RATE))
        } else {
            Self::Blocked
        }
    }

    /// A lease of 0 leaves the tokens that are left; a capacity of 0 (`None`) is blocked.
    pub(crate) fn leased(amount: Option<f64>, unit: Unit) -> Self {
        match (amount, unit) {
            (None, _) => Self::Blocked,
            (Some(rate), Unit::Rate) => Self::PerSecond(rate.clamp(0.0, MAX_RATE)),
            (Some(units), Unit::Gauge) => Self::units(units),
        }
    }

    /// Whole units.
    pub(crate) fn units(units: f64) -> Self {
        let whole = (units + UNIT_TOLERANCE).floor();
        Self::Units(whole.clamp(0.0, MAX_UNITS))
    }

    #[inline]
    fn tokens(self, seconds: f64) -> f64 {
        match self {
            Self::PerSecond(rate) => rate * seconds,
            Self::Blocked | Self::Credit(_) | Self::Unlimited | Self::Units(_) => 0.0,
        }
    }

    /// *Issued*, which for a gauge does not depend on the past.
    #[inline]
    fn issued(self, total: f64) -> f64 {
        match self {
            Self::Units(units) => units,
            Self::PerSecond(_) | Self::Blocked | Self::Credit(_) | Self::Unlimited => total,
        }
    }

    /// The minimum of *spent*: tokens beyond the burst overflowed. Only a rate overflows.
    #[inline]
    fn floor(self, issued: f64, burst: Burst) -> f64 {
        match self {
            Self::PerSecond(rate) => issued - burst.tokens(rate),
            Self::Blocked | Self::Credit(_) | Self::Unlimited | Self::Units(_) => f64::NEG_INFINITY,
        }
    }
}

/// How a bucket is refilled from `since` on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RefillSchedule {
    /// Tokens issued by `since`.
    pub(crate) issued: f64,
    /// The minimum of *spent*, by what overflowed before `since`.
    pub(crate) lost: f64,
    pub(crate) since: Moment,
    /// The refill under a lease, until `ends`.
    pub(crate) refill: Refill,
    /// The end of the lease; [`Moment::ORIGIN`] when there never was one.
    pub(crate) ends: Moment,
    /// The refill without a lease, from `ends` on.
    pub(crate) lapsed: Refill,
    /// Some of *spent* was admitted without a rate and is not yet charged to one.
    pub(crate) on_credit: bool,
}

/// The tokens in the bucket under a new lease, if it is a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Tokens {
    /// The first rate adds a full bucket, a later one nothing.
    Kept,
    /// So many are left.
    Left(f64),
    /// So many are added, also by the first rate.
    Added(f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Supply {
    Lease {
        refill: Refill,
        ends: Moment,
        lapsed: Refill,
        tokens: Tokens,
    },
    NoLease {
        lapsed: Refill,
    },
}

/// A new schedule, and the bounds to which *spent* is clamped when it starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Transition {
    pub(crate) schedule: RefillSchedule,
    /// Keeps lost what overflowed before.
    pub(crate) min_spent: f64,
    /// Limits the debt from credit to one bucket of the whole limit.
    pub(crate) max_spent: f64,
}

impl RefillSchedule {
    /// A resource without a lease so far. Its first rate adds a full bucket.
    pub(crate) fn new(lapsed: Refill, now: Moment) -> Self {
        Self {
            issued: 0.0,
            lost: f64::NEG_INFINITY,
            since: now,
            refill: Refill::Blocked,
            ends: Moment::ORIGIN,
            lapsed,
            on_credit: false,
        }
    }

    /// A resource whose lease was given up while it was idle. Nothing is admitted before it
    /// starts anew.
    pub(crate) fn asleep(now: Moment) -> Self {
        Self {
            // Without a lease this refill is not used, and marks the state.
            refill: Refill::Unlimited,
            ..Self::new(Refill::Blocked, now)
        }
    }

    pub(crate) fn is_asleep(&self) -> bool {
        !self.ever_leased() && self.refill == Refill::Unlimited
    }

    pub(crate) fn ever_leased(&self) -> bool {
        self.ends > Moment::ORIGIN
    }

    #[inline]
    pub(crate) fn at(&self, now: Moment, burst: Burst) -> BucketView {
        if now < self.ends {
            let issued = self.issued + self.refill.tokens(now.seconds_since(self.since));
            return BucketView {
                from: self.since,
                refill: self.refill,
                leased: true,
                issued: self.refill.issued(issued),
                floor: self.refill.floor(issued, burst).max(self.lost),
                burst,
            };
        }
        let (issued, floor) = self.at_end(burst);
        let from = self.since.max(self.ends);
        let issued = issued + self.lapsed.tokens(now.seconds_since(from));
        BucketView {
            from,
            refill: self.lapsed,
            leased: false,
            issued: self.lapsed.issued(issued),
            floor: self.lapsed.floor(issued, burst).max(floor),
            burst,
        }
    }

    /// *Issued* and the minimum of *spent* at the end of the lease.
    fn at_end(&self, burst: Burst) -> (f64, f64) {
        if self.since < self.ends {
            let issued = self.issued + self.refill.tokens(self.ends.seconds_since(self.since));
            (issued, self.refill.floor(issued, burst).max(self.lost))
        } else {
            (self.issued, self.lost)
        }
    }

    /// The schedule from `now` on. `taken` is what admitted requests have spent, `limit` the rate
    /// of the whole resource.
    pub(crate) fn succeed(
        &self,
        supply: Supply,
        taken: f64,
        limit: Option<f64>,
        now: Moment,
        burst: Burst,
    ) -> Transition {
        let (refill, ends, lapsed, tokens) = match supply {
            Supply::Lease {
                refill,
                ends,
                lapsed,
                tokens,
            } if now < ends => (refill, ends, lapsed, tokens),
            Supply::Lease { lapsed, .. } | Supply::NoLease { lapsed } => {
                (Refill::Blocked, self.ends.min(now), lapsed, Tokens::Kept)
            }
        };
        let next = if now < ends { refill } else { lapsed };

        let view = self.at(now, burst);
        let (mut issued, since) = continued(&view, next, now);
        let owed = match view.refill {
            Refill::Unlimited | Refill::Credit(_) => true,
            Refill::Blocked => self.on_credit,
            Refill::PerSecond(_) | Refill::Units(_) => false,
        };
        let mut is_set = false;
        if let Refill::PerSecond(rate) = next {
            match tokens {
                Tokens::Kept if view.issued == 0.0 => issued += burst.tokens(rate),
                Tokens::Kept => {}
                Tokens::Left(left) => {
                    issued = taken.max(view.floor) + left;
                    is_set = true;
                }
                Tokens::Added(added) => issued = not_zero(issued + added),
            }
        }
        // Credit is charged to the first rate, in full, or one bucket of the whole limit.
        let charged_to = match (next, lapsed) {
            // The tokens that are left already include everything taken.
            _ if is_set => None,
            (Refill::PerSecond(rate), _) | (Refill::Blocked, Refill::PerSecond(rate)) => {
                Some(rate).filter(|_| owed)
            }
            (Refill::Blocked | Refill::Credit(_) | Refill::Unlimited | Refill::Units(_), _) => None,
        };
        Transition {
            schedule: Self {
                issued,
                lost: view.floor,
                since,
                refill,
                ends,
                lapsed,
                on_credit: owed && next == Refill::Blocked,
            },
            min_spent: view.floor,
            max_spent: charged_to.map_or(f64::INFINITY, |rate| {
                issued + burst.tokens(limit.map_or(rate, |limit| limit.max(rate)))
            }),
        }
    }

    /// The same, under a lease that does not end.
    pub(crate) fn renewed(&self) -> Self {
        Self {
            ends: Moment::NEVER,
            ..*self
        }
    }

    /// The earliest moment from `now` on at which `range` is available; `None` if never.
    pub(crate) fn reach(&self, range: TokenRange, now: Moment, burst: Burst) -> Option<Moment> {
        if now < self.ends {
            let line = IssueLine {
                refill: self.refill,
                issued: self.issued,
                from: self.since,
            };
            let moment = line.reach(range, now, burst);
            if let Some(moment) = moment.filter(|&moment| moment < self.ends) {
                return Some(moment);
            }
        }
        let (issued, _) = self.at_end(burst);
        let from = self.since.max(self.ends);
        let line = IssueLine {
            refill: self.lapsed,
            issued,
            from,
        };
        line.reach(range, now.max(from), burst)
    }
}

/// The tokens issued when the refill becomes the `next` one, and since when it counts.
fn continued(view: &BucketView, next: Refill, now: Moment) -> (f64, Moment) {
    let (mut issued, mut since) = (view.issued, now);
    match (view.refill, next) {
        // Credit continues: it is charged as a whole, from its beginning.
        (Refill::Unlimited | Refill::Credit(_), Refill::Unlimited | Refill::Credit(_)) => {
            since = view.from;
        }
        // What was admitted is charged against what the rate would have issued meanwhile.
        (Refill::Unlimited | Refill::Credit(_), Refill::PerSecond(rate)) => {
            issued += rate * now.seconds_since(view.from);
        }
        // Only what is in use counts.
        (Refill::Units(_), _) | (_, Refill::Units(_)) => issued = 0.0,
        (Refill::Unlimited | Refill::Credit(_), Refill::Blocked)
        | (Refill::PerSecond(_) | Refill::Blocked, _) => {}
    }
    (issued, since)
}

/// *Issued* is 0 only before the first rate.
fn not_zero(issued: f64) -> f64 {
    if issued == 0.0 {
        f64::MIN_POSITIVE
    } else {
        issued
    }
}

/// *Issued* as a line that starts at (`from`, `issued`).
struct IssueLine {
    refill: Refill,
    issued: f64,
    from: Moment,
}

impl IssueLine {
    fn reach(&self, range: TokenRange, now: Moment, burst: Burst) -> Option<Moment> {
        let Self {
            refill,
            issued,
            from,
        } = *self;
        match refill {
            Refill::Blocked => None,
            Refill::Unlimited => Some(now),
            Refill::Credit(rate) => range
                .is_on_credit(issued, burst.tokens(rate))
                .then_some(now),
            Refill::PerSecond(rate) => {
                let bucket = burst.tokens(rate);
                if rate == 0.0 {
                    return range.is_available(issued, bucket).then_some(now);
                }
                let missing = range.start + range.cost.min(bucket) - issued;
                let about = from.after_seconds(missing / rate).max(now);
                Some(first_moment(about, |moment| {
                    range.is_available(issued + rate * moment.seconds_since(from), bucket)
                }))
            }
            Refill::Units(units) => (range.end() <= units).then_some(now),
        }
    }
}

/// The first moment from `about` on that satisfies a monotonic predicate; [`Moment::NEVER`] if none
/// does. A search, because division rounds: a client that retries then is admitted, and none
/// before.
fn first_moment(about: Moment, holds: impl Fn(Moment) -> bool) -> Moment {
    let (mut too_early, mut moment) = (None, about);
    let mut step = 1_u64;
    while !holds(moment) && moment < Moment::NEVER {
        too_early = Some(moment);
        moment = Moment::from_nanos(moment.as_nanos().saturating_add(step));
        step = step.saturating_mul(2);
    }
    while let Some(early) = too_early {
        let middle = Moment::from_nanos(early.as_nanos().midpoint(moment.as_nanos()));
        if middle == early {
            break;
        }
        if holds(middle) {
            moment = middle;
        } else {
            too_early = Some(middle);
        }
    }
    moment
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BucketView {
    /// When the current refill started.
    pub(crate) from: Moment,
    pub(crate) refill: Refill,
    pub(crate) leased: bool,
    pub(crate) issued: f64,
    /// The minimum of *spent*.
    pub(crate) floor: f64,
    burst: Burst,
}

/// The tokens of one request: `cost` of them, after the first `start` ever spent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TokenRange {
    pub(crate) start: f64,
    pub(crate) cost: f64,
}

impl TokenRange {
    pub(crate) fn end(self) -> f64 {
        self.start + self.cost
    }

    /// A cost above a full bucket is available when the bucket is full, and leaves debt.
    #[inline]
    pub(crate) fn is_available(self, issued: f64, burst: f64) -> bool {
        if self.cost < burst {
            self.end() <= issued
        } else {
            // The same expression as the floor: adding the burst back could round above `issued`.
            self.start <= issued - burst
        }
    }

    /// Whether a full bucket is left, or it is available and leaves what is kept.
    #[inline]
    fn leaves(self, kept: f64, issued: f64, bucket: f64) -> bool {
        self.start <= issued - bucket || self.cost < bucket && self.end() + kept <= issued
    }

    /// Within a bucket of credit, of which a first request may cost more.
    #[inline]
    fn is_on_credit(self, issued: f64, bucket: f64) -> bool {
        self.is_available(issued + bucket, bucket)
    }

    /// The range that is available when this one leaves what is kept, or finds the bucket full.
    fn with_kept(self, kept: f64, bucket: f64) -> Self {
        Self {
            start: self.start + kept.min(bucket - self.cost).max(0.0),
            cost: self.cost,
        }
    }

    /// The tokens that a release returns: those that have not overflowed meanwhile.
    pub(crate) fn returnable(self, view: &BucketView) -> f64 {
        (self.end() - view.floor).clamp(0.0, self.cost)
    }
}

impl BucketView {
    #[inline]
    pub(crate) fn next(&self, spent: f64, cost: f64) -> TokenRange {
        TokenRange {
            start: spent.max(self.floor),
            cost,
        }
    }

    #[inline]
    pub(crate) fn admits(&self, range: TokenRange) -> bool {
        match self.refill {
            Refill::Blocked => false,
            Refill::Unlimited => true,
            Refill::Credit(rate) => range.is_on_credit(self.issued, self.burst.tokens(rate)),
            Refill::PerSecond(rate) => range.is_available(self.issued, self.burst.tokens(rate)),
            Refill::Units(units) => range.end() <= units,
        }
    }

    /// Whether a range is available and leaves what is kept, or finds everything unused.
    pub(crate) fn admits_beside(&self, range: TokenRange, kept: f64) -> bool {
        match self.refill {
            Refill::Blocked => false,
            Refill::Unlimited => true,
            Refill::Credit(rate) => {
                let bucket = self.burst.tokens(rate);
                range.leaves(kept, self.issued + bucket, bucket)
            }
            Refill::PerSecond(rate) => range.leaves(kept, self.issued, self.burst.tokens(rate)),
            Refill::Units(units) => {
                let needed = if range.start > 0.0 { kept } else { 0.0 };
                range.end() + needed <= units
            }
        }
    }

    /// The range that is available when this one is admitted beside what is kept.
    pub(crate) fn with_kept(&self, range: TokenRange, kept: f64) -> TokenRange {
        match self.refill {
            Refill::Blocked | Refill::Unlimited => range,
            Refill::Credit(rate) | Refill::PerSecond(rate) => {
                range.with_kept(kept, self.burst.tokens(rate))
            }
            Refill::Units(units) => range.with_kept(kept, units),
        }
    }

    /// When a range becomes available to a lower band if so many tokens a second are spent by
    /// others, after waiting requests that cost `ahead`; `None` if never, or without a rate.
    pub(crate) fn reach_beside(
        &self,
        range: TokenRange,
        ahead: f64,
        others: f64,
        now: Moment,
    ) -> Option<Moment> {
        let Refill::PerSecond(rate) = self.refill else {
            return None;
        };
        let missing = range.start + ahead + range.cost.min(self.burst.tokens(rate)) - self.issued;
        let free = rate - others;
        if missing <= 0.0 {
            return Some(now);
        }
        (free > 0.0).then(|| now.after_seconds(missing / free))
    }

    /// Whether a request of a gauge is admitted once others have given back enough units.
    pub(crate) fn admits_after_returns(&self, cost: f64) -> bool {
        matches!(self.refill, Refill::Units(units) if cost <= units)
    }

    /// Whether a cost is more than all units together.
    pub(crate) fn outgrows(&self, cost: f64) -> bool {
        matches!(self.refill, Refill::Units(units) if cost > units)
    }

    /// The tokens left: negative when in debt or reserved ahead, infinite when unlimited.
    #[inline]
    pub(crate) fn left(&self, spent: f64) -> f64 {
        match self.refill {
            Refill::Blocked => 0.0,
            Refill::Unlimited => f64::INFINITY,
            Refill::Credit(rate) => self.issued + self.burst.tokens(rate) - spent.max(self.floor),
            Refill::PerSecond(_) => self.issued - spent.max(self.floor),
            Refill::Units(units) => units - spent,
        }
    }

    pub(crate) fn rate(&self) -> Option<f64> {
        match self.refill {
            Refill::PerSecond(rate) | Refill::Credit(rate) => Some(rate),
            Refill::Blocked | Refill::Unlimited | Refill::Units(_) => None,
        }
    }

    /// When `range` is available if `rate` is leased from `now` on. Credit is charged to the first
    /// lease, which adds a bucket.
    pub(crate) fn reach_at(&self, rate: f64, range: TokenRange, now: Moment) -> Option<Moment> {
        let line = match self.refill {
            Refill::Credit(_) => IssueLine {
                refill: Refill::at(rate, Unit::Rate),
                issued: self.issued + self.burst.tokens(rate),
                from: self.from,
            },
            // Nobody knows when units are given back.
            Refill::Units(_) => return None,
            Refill::Blocked | Refill::PerSecond(_) | Refill::Unlimited => IssueLine {
                refill: Refill::at(rate, Unit::Rate),
                issued: self.issued,
                from: now,
            },
        };
        line.reach(range, now, self.burst)
    }

    /// Whether a new full bucket could replace this one: it is full, or has no rate and no debt.
    pub(crate) fn is_full(&self, spent: f64) -> bool {
        match self.refill {
            Refill::PerSecond(_) => spent <= self.floor,
            Refill::Blocked | Refill::Credit(_) | Refill::Unlimited => spent <= self.issued,
            Refill::Units(_) => spent <= 0.0,
        }
    }

    #[inline]
    pub(crate) fn runs_low(&self, spent: f64) -> bool {
        match self.refill {
            Refill::PerSecond(rate) => runs_low(self.left(spent), self.burst.tokens(rate)),
            Refill::Units(units) => self.left(spent) < units * 0.25,
            Refill::Blocked | Refill::Credit(_) | Refill::Unlimited => false,
        }
    }
}

/// Whether less than three quarters of a bucket are left.
#[inline]
pub(crate) fn runs_low(left: f64, bucket: f64) -> bool {
    left < bucket * 0.75
}

#[cfg(test)]
mod tests;
