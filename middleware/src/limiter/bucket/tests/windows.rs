//! What was admitted when, and whether any stretch of time saw more than the limit allows it.

use std::ops::Range;

use super::reference::Rate;

/// The rates in force tick by tick, and what was admitted under them, in 1/512 tokens.
#[derive(Debug, Default)]
pub(super) struct Windows {
    rates: Vec<Rate>,
    admitted: Vec<Admitted>,
}

/// What was admitted at one tick.
#[derive(Debug, Clone, Copy)]
struct Admitted {
    tick: usize,
    total: i64,
    burst: i64,
    /// What costs more than a full bucket passes one, and leaves debt.
    debt: i64,
}

impl Windows {
    /// From the newest tick on this rate is in force.
    ///
    /// A gap in which everything passes forgives debt, however short it is: once something was admitted, such a tick counts as one.
    pub(super) fn switched(&mut self, rate: Rate) {
        match self.rates.last_mut() {
            Some(Rate::Open) if !self.admitted.is_empty() => {}
            Some(last) => *last = rate,
            None => self.rates.push(rate),
        }
    }

    /// Another tick begins, with this rate.
    pub(super) fn passed(&mut self, rate: Rate) {
        self.rates.push(rate);
    }

    /// So much was admitted at the newest tick.
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

    /// In every window between two admissions, at most what the rates issue in it, each in its own part, and one burst.
    pub(super) fn are_within_the_limit(&self) {
        let issued = self.running(|rate| match rate {
            Rate::At(rate) => rate,
            Rate::Shut | Rate::Open => 0,
        });
        let open = self.running(|rate| i64::from(rate == Rate::Open));
        let during = |sums: &[i64], ticks: Range<usize>| sums[ticks.end] - sums[ticks.start];
        for (index, first) in self.admitted.iter().enumerate() {
            let (mut total, mut burst, mut debt) = (0, 0, 0);
            for last in &self.admitted[index..] {
                // While everything passes there is no bound.
                if during(&open, first.tick..last.tick + 1) > 0 {
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

    /// The sum over all ticks before each.
    fn running(&self, of: impl Fn(Rate) -> i64) -> Vec<i64> {
        let sums = self.rates.iter().scan(0, |sum, &rate| {
            *sum += of(rate);
            Some(*sum)
        });
        std::iter::once(0).chain(sums).collect()
    }
}
