//! The arithmetic of a token bucket whose rate is a lease. Pure: time is an argument, nothing is stored.
//!
//! Two running totals are all there is. *Issued* is how many tokens have ever been put in: a function of time, piecewise linear,
//! that the [`Terms`] describe ahead, the end of the lease included. *Spent* is how many have ever been taken out. What is left is
//! their difference, at most one burst; what was not taken in time to stay within the burst is lost, which is a floor under
//! *spent* that rises with *issued*.
//!
//! A new rate bends the line of *issued* and changes neither total. So no switch, whether of leases or between a lease and a
//! fallback, gives anybody a second burst.

use doorman_openapi::Moment;

use super::settings::Burst;

/// The most tokens a second that a bucket is filled at; a higher rate counts as this. So the totals, which grow with the rate whether
/// or not anything is spent, stay where one token makes a difference: below 2^53, for more than a hundred days at this rate.
const FASTEST: f64 = 1e9;

/// When a lease ended that came and did not count: before anything that happens here.
const LONG_AGO: Moment = Moment::from_nanos(1);

/// How a bucket is filled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Flow {
    /// Not at all, and nothing may be taken.
    Shut,
    /// At so many tokens a second. At 0 none come, but what is left may be taken: a burst is never less than one token.
    At(f64),
    /// Everything passes. What is taken is remembered, and charged when there is a rate again.
    Open,
}

impl Flow {
    /// The flow at a rate; no rate at all is shut.
    pub(crate) fn at(rate: f64) -> Self {
        if rate > 0.0 {
            Self::At(rate.min(FASTEST))
        } else {
            Self::Shut
        }
    }

    /// The flow of a lease. One of nothing, to a holder that wanted nothing, leaves what is left; only a capacity of nothing is shut.
    pub(crate) fn leased(rate: Option<f64>) -> Self {
        rate.map_or(Self::Shut, |rate| Self::At(rate.clamp(0.0, FASTEST)))
    }

    #[inline]
    fn tokens(self, seconds: f64) -> f64 {
        match self {
            Self::At(rate) => rate * seconds,
            Self::Shut | Self::Open => 0.0,
        }
    }

    /// The least that counts as spent when so much was issued: the rest overflowed. A bucket that is not being filled does not
    /// overflow.
    #[inline]
    fn floor(self, issued: f64, burst: Burst) -> f64 {
        match self {
            Self::At(rate) => issued - burst.tokens(rate),
            Self::Shut | Self::Open => f64::NEG_INFINITY,
        }
    }
}

/// How a bucket is filled, from `since` for ever.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Terms {
    /// The tokens issued by `since`.
    pub(crate) issued: f64,
    /// The least that counts as spent, for what overflowed before `since` stays lost.
    pub(crate) lost: f64,
    pub(crate) since: Moment,
    /// How it is filled until `ends`, under a lease.
    pub(crate) flow: Flow,
    /// The end of the lease; [`Moment::ORIGIN`] when there never was one.
    pub(crate) ends: Moment,
    /// How it is filled from `ends` on, without a lease.
    pub(crate) lapse: Flow,
    /// Whether some of what was spent passed on credit, and no rate has come yet that it could be charged to.
    pub(crate) credit: bool,
}

/// What new terms are made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Supply {
    Lease {
        flow: Flow,
        ends: Moment,
        lapse: Flow,
        /// What is left from now on, whatever was before; `None`: what there was.
        left: Option<f64>,
    },
    NoLease {
        lapse: Flow,
        /// Whether one has come that does not count.
        answered: bool,
    },
}

/// New terms, and the bounds that *spent* is taken to when they come into force.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Change {
    pub(crate) terms: Terms,
    /// What overflowed under the old terms stays lost.
    pub(crate) at_least: f64,
    /// The debt that is left of what passed on credit: at most one burst.
    pub(crate) at_most: f64,
}

impl Terms {
    /// Those of a resource that has never been leased. Its first rate adds a full bucket.
    pub(crate) fn new(lapse: Flow, now: Moment) -> Self {
        Self {
            issued: 0.0,
            lost: f64::NEG_INFINITY,
            since: now,
            flow: Flow::Shut,
            ends: Moment::ORIGIN,
            lapse,
            credit: false,
        }
    }

    /// Whether there has been a lease.
    pub(crate) fn ever_leased(&self) -> bool {
        self.ends > Moment::ORIGIN
    }

    /// What the terms come to at one moment.
    #[inline]
    pub(crate) fn at(&self, now: Moment, burst: Burst) -> View {
        if now < self.ends {
            let issued = self.issued + self.flow.tokens(now.seconds_since(self.since));
            return View {
                from: self.since,
                flow: self.flow,
                leased: true,
                issued,
                floor: self.flow.floor(issued, burst).max(self.lost),
                burst,
            };
        }
        let (issued, floor) = self.at_end(burst);
        let from = self.since.max(self.ends);
        let issued = issued + self.lapse.tokens(now.seconds_since(from));
        View {
            from,
            flow: self.lapse,
            leased: false,
            issued,
            floor: self.lapse.floor(issued, burst).max(floor),
            burst,
        }
    }

    /// What is issued, and the floor under *spent*, when the lease ends.
    fn at_end(&self, burst: Burst) -> (f64, f64) {
        if self.since < self.ends {
            let issued = self.issued + self.flow.tokens(self.ends.seconds_since(self.since));
            (issued, self.flow.floor(issued, burst).max(self.lost))
        } else {
            (self.issued, self.lost)
        }
    }

    /// The terms that follow these at `now`, when so much has been taken by those who went.
    pub(crate) fn succeed(&self, supply: Supply, taken: f64, now: Moment, burst: Burst) -> Change {
        let (flow, ends, lapse, left) = match supply {
            Supply::Lease {
                flow,
                ends,
                lapse,
                left,
            } if now < ends => (flow, ends, lapse, left),
            Supply::NoLease {
                lapse,
                answered: true,
            } => (Flow::Shut, self.ends.min(now).max(LONG_AGO), lapse, None),
            Supply::Lease { lapse, .. }
            | Supply::NoLease {
                lapse,
                answered: false,
            } => (Flow::Shut, self.ends.min(now), lapse, None),
        };
        let next = if now < ends { flow } else { lapse };

        let view = self.at(now, burst);
        let (mut issued, mut since) = (view.issued, now);
        match (view.flow, next) {
            // The gap goes on: it is charged as a whole, from its beginning.
            (Flow::Open, Flow::Open) => since = view.from,
            // Charge what passed against what the rate would have issued meanwhile.
            (Flow::Open, Flow::At(rate)) => {
                issued += rate * now.seconds_since(view.from);
            }
            (Flow::Open, Flow::Shut) | (Flow::At(_) | Flow::Shut, _) => {}
        }
        if let Flow::At(rate) = next
            && view.issued == 0.0
        {
            issued += burst.tokens(rate);
        }
        // What passed on credit is owed until there is a rate, but never more than the burst of that rate.
        let owed = match view.flow {
            Flow::Open => true,
            Flow::Shut => self.credit,
            Flow::At(_) => false,
        };
        let left = left.filter(|_| matches!(next, Flow::At(_)));
        if let Some(left) = left {
            issued = taken.max(view.floor) + left;
        }
        let charged_to = match (next, lapse) {
            // What is left counts all that was taken.
            _ if left.is_some() => None,
            (Flow::At(rate), _) | (Flow::Shut, Flow::At(rate)) => Some(rate).filter(|_| owed),
            (Flow::Shut | Flow::Open, _) => None,
        };
        Change {
            terms: Self {
                issued,
                lost: view.floor,
                since,
                flow,
                ends,
                lapse,
                credit: owed && next == Flow::Shut,
            },
            at_least: view.floor,
            at_most: charged_to.map_or(f64::INFINITY, |rate| issued + burst.tokens(rate)),
        }
    }

    /// The earliest moment, not before `now`, at which `take` may go, if these terms stay; `None` if they never let it.
    pub(crate) fn reach(&self, take: Take, now: Moment, burst: Burst) -> Option<Moment> {
        if now < self.ends {
            let moment = self.meet(self.flow, self.issued, self.since, take, now, burst);
            if let Some(moment) = moment.filter(|&moment| moment < self.ends) {
                return Some(moment);
            }
        }
        let (issued, _) = self.at_end(burst);
        let from = self.since.max(self.ends);
        self.meet(self.lapse, issued, from, take, now.max(from), burst)
    }

    /// When a line that begins at (`from`, `issued`) meets what `take` needs, not before `now`.
    fn meet(
        &self,
        flow: Flow,
        issued: f64,
        from: Moment,
        take: Take,
        now: Moment,
        burst: Burst,
    ) -> Option<Moment> {
        match flow {
            Flow::Shut => None,
            Flow::Open => Some(now),
            Flow::At(rate) => {
                let bucket = burst.tokens(rate);
                if rate == 0.0 {
                    return take.fits(issued, bucket).then_some(now);
                }
                let missing = take.start + take.cost.min(bucket) - issued;
                let about = from.after_seconds(missing / rate).max(now);
                Some(first_from(about, |moment| {
                    take.fits(issued + rate * moment.seconds_since(from), bucket)
                }))
            }
        }
    }
}

/// The first moment from `about` on that fits, if all fit that come after one that does; [`Moment::NEVER`] if none does.
///
/// Seconds become whole nanoseconds by rounding down, and a quotient is rounded too. This is the moment at which the sum itself agrees:
/// who comes back then is admitted, and nobody before.
fn first_from(about: Moment, fits: impl Fn(Moment) -> bool) -> Moment {
    let (mut too_early, mut moment) = (None, about);
    let mut step = 1_u64;
    while !fits(moment) && moment < Moment::NEVER {
        too_early = Some(moment);
        moment = Moment::from_nanos(moment.as_nanos().saturating_add(step));
        step = step.saturating_mul(2);
    }
    // It lies between the last two.
    while let Some(early) = too_early {
        let middle = Moment::from_nanos(early.as_nanos().midpoint(moment.as_nanos()));
        if middle == early {
            break;
        }
        if fits(middle) {
            moment = middle;
        } else {
            too_early = Some(middle);
        }
    }
    moment
}

/// The terms at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct View {
    /// Since when the flow has been as it is.
    pub(crate) from: Moment,
    pub(crate) flow: Flow,
    /// Whether there is a lease.
    pub(crate) leased: bool,
    pub(crate) issued: f64,
    /// The least that counts as spent.
    pub(crate) floor: f64,
    burst: Burst,
}

/// A place in the order of tokens: `cost` of them, after the first `start`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Take {
    pub(crate) start: f64,
    pub(crate) cost: f64,
}

impl Take {
    /// The total spent once it is taken.
    pub(crate) fn end(self) -> f64 {
        self.start + self.cost
    }

    /// Whether its turn has come when so much has been issued. What costs more than a full bucket goes when the bucket is full, and
    /// leaves debt.
    #[inline]
    fn fits(self, issued: f64, burst: f64) -> bool {
        if self.cost < burst {
            self.end() <= issued
        } else {
            // Full is as the floor has it, to the last bit: added to it again, the burst may come to a little more than was issued.
            self.start <= issued - burst
        }
    }

    /// How much of it can be given back: what has not overflowed meanwhile.
    pub(crate) fn returnable(self, view: &View) -> f64 {
        (self.end() - view.floor).clamp(0.0, self.cost)
    }
}

impl View {
    /// The next place in the order.
    #[inline]
    pub(crate) fn next(&self, spent: f64, cost: f64) -> Take {
        Take {
            start: spent.max(self.floor),
            cost,
        }
    }

    /// Whether a place's turn has come.
    #[inline]
    pub(crate) fn admits(&self, take: Take) -> bool {
        match self.flow {
            Flow::Shut => false,
            Flow::Open => true,
            Flow::At(rate) => take.fits(self.issued, self.burst.tokens(rate)),
        }
    }

    /// The tokens left; negative when some are owed or promised. Infinite when everything passes.
    #[inline]
    pub(crate) fn left(&self, spent: f64) -> f64 {
        match self.flow {
            Flow::Shut => 0.0,
            Flow::Open => f64::INFINITY,
            Flow::At(_) => self.issued - spent.max(self.floor),
        }
    }

    /// Tokens a second; `None` when none come, or everything passes.
    pub(crate) fn rate(&self) -> Option<f64> {
        match self.flow {
            Flow::At(rate) => Some(rate),
            Flow::Shut | Flow::Open => None,
        }
    }

    /// Whether nothing is lost on anybody by beginning anew with a full bucket: it is full, or where it is not being filled, nothing is owed.
    pub(crate) fn is_full(&self, spent: f64) -> bool {
        match self.flow {
            Flow::At(_) => spent <= self.floor,
            Flow::Shut | Flow::Open => spent <= self.issued,
        }
    }

    /// Whether less than half a bucket is left.
    #[inline]
    pub(crate) fn runs_low(&self, spent: f64) -> bool {
        match self.flow {
            Flow::At(rate) => self.left(spent) < self.burst.tokens(rate) / 2.0,
            Flow::Shut | Flow::Open => false,
        }
    }
}

#[cfg(test)]
mod tests;
