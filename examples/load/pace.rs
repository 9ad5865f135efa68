//! How many requests are due, so that they come evenly and none is lost to rounding.

use std::time::Duration;

/// What is left over of a request that is not due yet.
#[derive(Debug, Default)]
pub(super) struct Pace {
    carried: f64,
}

impl Pace {
    /// How many requests fall due in the next stretch of time at a rate per second.
    pub(super) fn due(&mut self, rate: f64, over: Duration) -> usize {
        if rate.is_finite() && rate > 0.0 {
            self.carried += rate * over.as_secs_f64();
        }
        let whole = self.carried.floor();
        self.carried -= whole;
        whole as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(5);

    fn over_a_second(rate: f64) -> Vec<usize> {
        let mut pace = Pace::default();
        (0..200).map(|_| pace.due(rate, TICK)).collect()
    }

    #[test]
    fn a_second_holds_the_whole_rate() {
        for rate in [0.0, 1.0, 45.0, 333.0, 900.0, 2_700.0] {
            let sent = over_a_second(rate).iter().sum::<usize>() as f64;
            assert!((rate - sent).abs() <= 1.0, "{sent} of {rate}");
        }
    }

    #[test]
    fn no_tick_holds_more_than_its_part() {
        for rate in [30.0, 333.0, 2_700.0] {
            let most = (rate / 200.0_f64).ceil() as usize;
            assert!(over_a_second(rate).iter().all(|&due| due <= most));
        }
    }

    #[test]
    fn a_rate_that_is_none_offers_nothing() {
        for rate in [-1.0, 0.0, f64::NAN, f64::INFINITY] {
            assert_eq!(over_a_second(rate).iter().sum::<usize>(), 0);
        }
    }

    #[test]
    fn a_change_of_the_rate_loses_nothing_of_a_request() {
        let mut pace = Pace::default();
        let due: usize = (0..2_000)
            .map(|tick| pace.due(if tick % 2 == 0 { 7.0 } else { 93.0 }, TICK))
            .sum();
        assert!((499..=500).contains(&due), "{due}");
    }
}
