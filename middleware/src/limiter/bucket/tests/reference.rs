//! A naive bucket in integers, and the arithmetic under test behind the same calls.
//!
//! A tick is 1/512 s and amounts are in 1/512 tokens. A rate has the same value per second and per
//! tick, and all quantities are exact as integers and as floats.

use std::time::Duration;

use doorman_openapi::Moment;

use super::super::*;

pub(super) const TICKS: i64 = 512;
pub(super) const NANOS_PER_TICK: u64 = 1_000_000_000 / 512;

pub(super) fn moment(tick: i64) -> Moment {
    Moment::from_nanos(3_600_000_000_000 + u64::try_from(tick).unwrap() * NANOS_PER_TICK)
}

pub(super) fn refill(rate: Rate) -> Refill {
    match rate {
        Rate::Blocked => Refill::Blocked,
        Rate::At(rate) => Refill::leased(Some(rate as f64), Unit::Rate),
        Rate::Unlimited => Refill::Unlimited,
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rate {
    Blocked,
    /// Tokens a second; may be 0.
    At(i64),
    Unlimited,
}

/// A level that is filled tick by tick.
#[derive(Debug, Clone)]
pub(super) struct Naive {
    pub(super) tick: i64,
    level: i64,
    burst_ticks: i64,
    lease: Option<(Rate, i64)>,
    lapsed: Rate,
    unlimited_since: Option<i64>,
    /// Debt from unlimited refill is not yet charged to a rate.
    on_credit: bool,
    /// No token has been issued yet.
    fresh: bool,
}

impl Naive {
    pub(super) fn new(burst_ticks: i64, lapsed: Rate) -> Self {
        Self {
            tick: 0,
            level: 0,
            burst_ticks,
            lease: None,
            lapsed,
            unlimited_since: (lapsed == Rate::Unlimited).then_some(0),
            on_credit: false,
            fresh: true,
        }
    }

    pub(super) fn rate(&self) -> Rate {
        match self.lease {
            Some((rate, ends)) if self.tick < ends => rate,
            _ => self.lapsed,
        }
    }

    pub(super) fn burst(&self, rate: i64) -> i64 {
        (rate * self.burst_ticks).max(TICKS)
    }

    /// 0 without a rate.
    pub(super) fn bucket_size(&self) -> i64 {
        match self.rate() {
            Rate::At(rate) => self.burst(rate),
            Rate::Blocked | Rate::Unlimited => 0,
        }
    }

    pub(super) fn pass_one_tick(&mut self) {
        if let Rate::At(rate) = self.rate() {
            self.level = (self.level + rate).min(self.burst(rate));
            (self.fresh, self.on_credit) = (false, false);
        }
        let before = self.rate();
        self.tick += 1;
        match self.rate() {
            Rate::At(rate) => self.level = self.level.min(self.burst(rate)),
            Rate::Unlimited if before != Rate::Unlimited => self.unlimited_since = Some(self.tick),
            Rate::Blocked | Rate::Unlimited => {}
        }
    }

    pub(super) fn switch(&mut self, lease: Option<(Rate, i64)>, lapsed: Rate) {
        let before = self.rate();
        (self.lease, self.lapsed) = (lease, lapsed);
        match (before, self.rate()) {
            (Rate::Unlimited, Rate::Unlimited) => {}
            (_, Rate::Unlimited) => self.unlimited_since = Some(self.tick),
            (before, Rate::Blocked) => {
                self.on_credit |= before == Rate::Unlimited;
                if self.on_credit
                    && let Rate::At(rate) = lapsed
                {
                    self.level = self.level.max(-self.burst(rate));
                }
            }
            (before, Rate::At(rate)) => {
                let burst = self.burst(rate);
                if before == Rate::Unlimited {
                    self.level += rate * (self.tick - self.unlimited_since.unwrap());
                }
                if self.fresh {
                    self.level += burst;
                    self.fresh = false;
                }
                self.level = self.level.min(burst);
                if before == Rate::Unlimited || self.on_credit {
                    self.level = self.level.max(-burst);
                }
                self.on_credit = false;
            }
        }
    }

    pub(super) fn admits(&self, cost: i64) -> bool {
        self.missing(cost).is_some_and(|missing| missing <= 0)
    }

    /// The amount missing to admit a request; `None` when blocked.
    fn missing(&self, cost: i64) -> Option<i64> {
        match self.rate() {
            Rate::Unlimited => Some(0),
            Rate::Blocked => None,
            Rate::At(rate) => Some(cost.min(self.burst(rate)) - self.level),
        }
    }

    pub(super) fn request(&mut self, cost: i64) -> bool {
        let admitted = self.admits(cost);
        if admitted {
            self.level -= cost;
        }
        admitted
    }

    /// The first nanosecond at which a request would be admitted, within `horizon` ticks.
    pub(super) fn first_admission(&self, cost: i64, horizon: i64) -> Option<Moment> {
        let mut later = self.clone();
        while later.tick <= self.tick + horizon {
            let now = moment(later.tick);
            if later.admits(cost) {
                return Some(now);
            }
            if let (Some(missing), Rate::At(rate @ 1..)) = (later.missing(cost), later.rate()) {
                // Within the tick, as a lease may end with the tick.
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

/// The arithmetic under test, with the state of a limiter.
pub(super) struct Bucket {
    pub(super) schedule: RefillSchedule,
    pub(super) spent: f64,
    pub(super) burst: Burst,
}

impl Bucket {
    pub(super) fn new(burst_ticks: i64, lapsed: Rate) -> Self {
        Self {
            schedule: RefillSchedule::new(refill(lapsed), moment(0)),
            spent: 0.0,
            burst: Burst::new(Duration::from_nanos(
                u64::try_from(burst_ticks).unwrap() * NANOS_PER_TICK,
            )),
        }
    }

    pub(super) fn switch(&mut self, supply: Supply, now: Moment) {
        let transition = self
            .schedule
            .succeed(supply, self.spent, None, now, self.burst);
        self.spent = self
            .spent
            .max(transition.min_spent)
            .min(transition.max_spent);
        self.schedule = transition.schedule;
    }

    pub(super) fn next(&self, cost: i64, now: Moment) -> TokenRange {
        let view = self.schedule.at(now, self.burst);
        view.next(self.spent, cost as f64 / TICKS as f64)
    }

    pub(super) fn admits(&self, range: TokenRange, now: Moment) -> bool {
        self.schedule.at(now, self.burst).admits(range)
    }
}
