//! A bucket as one would explain it, in whole numbers, and the arithmetic under test behind the same calls.
//!
//! A tick is 1/512 s and an amount is counted in 1/512 tokens, so that a rate of so many tokens a second is the same number a tick,
//! and every quantity is exact in either notation.

use std::time::Duration;

use doorman_openapi::Moment;

use super::super::*;

pub(super) const TICKS: i64 = 512;
pub(super) const NANOS_PER_TICK: u64 = 1_000_000_000 / 512;

pub(super) fn moment(tick: i64) -> Moment {
    Moment::from_nanos(3_600_000_000_000 + u64::try_from(tick).unwrap() * NANOS_PER_TICK)
}

pub(super) fn flow(rate: Rate) -> Flow {
    match rate {
        Rate::Shut => Flow::Shut,
        Rate::At(rate) => Flow::leased(Some(rate as f64)),
        Rate::Open => Flow::Open,
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rate {
    Shut,
    /// Whole tokens a second, maybe none.
    At(i64),
    Open,
}

/// A bucket as one would explain it: a level, filled tick by tick.
#[derive(Debug, Clone)]
pub(super) struct Naive {
    pub(super) tick: i64,
    level: i64,
    burst_ticks: i64,
    lease: Option<(Rate, i64)>,
    lapse: Rate,
    /// When everything began to pass.
    open_since: Option<i64>,
    /// Whether there is debt of when everything passed that has met no rate yet.
    credit: bool,
    /// Whether no token has ever been issued.
    fresh: bool,
}

impl Naive {
    pub(super) fn new(burst_ticks: i64, lapse: Rate) -> Self {
        Self {
            tick: 0,
            level: 0,
            burst_ticks,
            lease: None,
            lapse,
            open_since: (lapse == Rate::Open).then_some(0),
            credit: false,
            fresh: true,
        }
    }

    pub(super) fn rate(&self) -> Rate {
        match self.lease {
            Some((rate, ends)) if self.tick < ends => rate,
            _ => self.lapse,
        }
    }

    pub(super) fn burst(&self, rate: i64) -> i64 {
        (rate * self.burst_ticks).max(TICKS)
    }

    /// What a full bucket holds now; without a rate, nothing in particular.
    pub(super) fn bucket_size(&self) -> i64 {
        match self.rate() {
            Rate::At(rate) => self.burst(rate),
            Rate::Shut | Rate::Open => 0,
        }
    }

    pub(super) fn pass_one_tick(&mut self) {
        if let Rate::At(rate) = self.rate() {
            self.level = (self.level + rate).min(self.burst(rate));
            (self.fresh, self.credit) = (false, false);
        }
        let before = self.rate();
        self.tick += 1;
        match self.rate() {
            Rate::At(rate) => self.level = self.level.min(self.burst(rate)),
            Rate::Open if before != Rate::Open => self.open_since = Some(self.tick),
            Rate::Shut | Rate::Open => {}
        }
    }

    pub(super) fn switch(&mut self, lease: Option<(Rate, i64)>, lapse: Rate) {
        let before = self.rate();
        (self.lease, self.lapse) = (lease, lapse);
        match (before, self.rate()) {
            (Rate::Open, Rate::Open) => {}
            (_, Rate::Open) => self.open_since = Some(self.tick),
            (before, Rate::Shut) => {
                self.credit |= before == Rate::Open;
                if self.credit
                    && let Rate::At(rate) = lapse
                {
                    self.level = self.level.max(-self.burst(rate));
                }
            }
            (before, Rate::At(rate)) => {
                let burst = self.burst(rate);
                if before == Rate::Open {
                    self.level += rate * (self.tick - self.open_since.unwrap());
                }
                if self.fresh {
                    self.level += burst;
                    self.fresh = false;
                }
                self.level = self.level.min(burst);
                if before == Rate::Open || self.credit {
                    self.level = self.level.max(-burst);
                }
                self.credit = false;
            }
        }
    }

    pub(super) fn admits(&self, cost: i64) -> bool {
        self.missing(cost).is_some_and(|missing| missing <= 0)
    }

    /// How much is missing until a request may go; `None` when none may.
    fn missing(&self, cost: i64) -> Option<i64> {
        match self.rate() {
            Rate::Open => Some(0),
            Rate::Shut => None,
            Rate::At(rate) => Some(cost.min(self.burst(rate)) - self.level),
        }
    }

    pub(super) fn ask(&mut self, cost: i64) -> bool {
        let admitted = self.admits(cost);
        if admitted {
            self.level -= cost;
        }
        admitted
    }

    /// The first nanosecond from now on at which a request would be admitted, if it comes within so many ticks.
    pub(super) fn first_admission(&self, cost: i64, horizon: i64) -> Option<Moment> {
        let mut later = self.clone();
        while later.tick <= self.tick + horizon {
            let now = moment(later.tick);
            if later.admits(cost) {
                return Some(now);
            }
            if let (Some(missing), Rate::At(rate @ 1..)) = (later.missing(cost), later.rate()) {
                // It may come within the tick, and be gone at its end, when that is the end of a lease.
                let nanos = missing.unsigned_abs() * NANOS_PER_TICK;
                let nanos = nanos.div_ceil(rate.unsigned_abs());
                if nanos < NANOS_PER_TICK {
                    return Some(Moment::from_nanos(now.as_nanos() + nanos));
                }
            }
            later.pass_one_tick();
        }
        None
    }
}

/// The arithmetic under test, with the two numbers that a limiter keeps for it.
pub(super) struct Bucket {
    pub(super) terms: Terms,
    pub(super) spent: f64,
    pub(super) burst: Burst,
}

impl Bucket {
    pub(super) fn new(burst_ticks: i64, lapse: Rate) -> Self {
        Self {
            terms: Terms::new(flow(lapse), moment(0)),
            spent: 0.0,
            burst: Burst::new(Duration::from_nanos(
                u64::try_from(burst_ticks).unwrap() * NANOS_PER_TICK,
            )),
        }
    }

    pub(super) fn switch(&mut self, supply: Supply, now: Moment) {
        let change = self.terms.succeed(supply, self.spent, now, self.burst);
        self.spent = self.spent.max(change.at_least).min(change.at_most);
        self.terms = change.terms;
    }

    pub(super) fn next(&self, cost: i64, now: Moment) -> Take {
        let view = self.terms.at(now, self.burst);
        view.next(self.spent, cost as f64 / TICKS as f64)
    }

    pub(super) fn admits(&self, take: Take, now: Moment) -> bool {
        self.terms.at(now, self.burst).admits(take)
    }
}
