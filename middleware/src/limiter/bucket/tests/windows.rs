//! Checks that no window of time admitted more than its rates allow.

use std::ops::Range;

use super::reference::Rate;

/// The rate of each tick, and the amounts admitted, in 1/512 tokens.
#[derive(Debug, Default)]
pub(super) struct Windows {
    rates: Vec<Rate>,
    admitted: Vec<Admitted>,
}

/// The amount admitted at one tick.
#[derive(Debug, Clone, Copy)]
struct Admitted {
    tick: usize,
    total: i64,
    burst: i64,
    /// Left by requests above a full bucket.
    debt: i64,
}

impl Windows {
    /// Sets the rate from the newest tick on.
    ///
    /// An unlimited gap of any length forgives debt, so that its tick stays unlimited.
    pub(super) fn switched(&mut self, rate: Rate) {
        match self.rates.last_mut() {
            Some(Rate::Unlimited) if !self.admitted.is_empty() => {}
            Some(last) => *last = rate,
            None => self.rates.push(rate),
        }
    }

    /// Starts a tick with this rate.
    pub(super) fn passed(&mut self, rate: Rate) {
        self.rates.push(rate);
    }

    pub(super) fn admitted(&mut self, cost: i64, burst: i64) {
        let tick = self.rates.len() - 1;
        let debt = (cost - burst).max(0);
        match self.admitted.last_mut() {
            Some(last) if last.tick == tick => {
                last.total += cost;
                last.burst = last.burst.max(burst);
                last.debt = last.debt.max(debt);
            }
            _ => self.admitted.push(Admitted {
                tick,
                total: cost,
                burst,
                debt,
            }),
        }
    }

    /// Every window admits at most what its rates issue, plus one burst.
    pub(super) fn check(&self) {
        let issued = self.running(|rate| match rate {
            Rate::At(rate) => rate,
            Rate::Blocked | Rate::Unlimited => 0,
        });
        let unlimited = self.running(|rate| i64::from(rate == Rate::Unlimited));
        let during = |sums: &[i64], ticks: Range<usize>| sums[ticks.end] - sums[ticks.start];
        for (index, first) in self.admitted.iter().enumerate() {
            let (mut total, mut burst, mut debt) = (0, 0, 0);
            for last in &self.admitted[index..] {
                if during(&unlimited, first.tick..last.tick + 1) > 0 {
                    break;
                }
                total += last.total;
                burst = burst.max(last.burst);
                debt = debt.max(last.debt);
                let issued = during(&issued, first.tick..last.tick);
                assert!(
                    total <= issued + burst + debt,
                    "{total} in ticks {}..={}: {issued} issued, a burst of {burst}, a debt of {debt}",
                    first.tick,
                    last.tick
                );
            }
        }
    }

    /// The sum over the ticks before each.
    fn running(&self, of: impl Fn(Rate) -> i64) -> Vec<i64> {
        let sums = self.rates.iter().scan(0, |sum, &rate| {
            *sum += of(rate);
            Some(*sum)
        });
        std::iter::once(0).chain(sums).collect()
    }
}
