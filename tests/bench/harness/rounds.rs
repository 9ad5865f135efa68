//! Sides that take turns, so that what else the machine does falls on all of them alike.

use std::time::Instant;

use crate::Figures;

/// One side of a comparison: runs one round, and returns its figure.
pub type Turn<'a, T = f64> = &'a mut dyn FnMut() -> T;

/// Runs so many rounds of each side, one side after the other, every second time in the opposite order. A round before the first warms
/// up and does not count.
pub fn take_turns<const N: usize>(rounds: usize, sides: [Turn<'_>; N]) -> [Figures; N] {
    take_turns_of(rounds, sides).map(|figures| figures.into_iter().collect())
}

/// The same where a round tells more than one figure, or may fail.
pub fn take_turns_of<T, const N: usize>(rounds: usize, mut sides: [Turn<'_, T>; N]) -> [Vec<T>; N] {
    let mut told = [(); N].map(|()| Vec::with_capacity(rounds));
    for round in 0..=rounds {
        let turn = |(side, told): (&mut Turn<'_, T>, &mut Vec<T>)| {
            let result = side();
            if round > 0 {
                told.push(result);
            }
        };
        let pairs = sides.iter_mut().zip(&mut told);
        if round.is_multiple_of(2) {
            pairs.for_each(turn);
        } else {
            pairs.rev().for_each(turn);
        }
    }
    told
}

/// How long something takes that is done so many times over, in nanoseconds for one time.
#[expect(
    clippy::disallowed_methods,
    reason = "a stretch of work is measured, not the length of a lease"
)]
pub fn nanos_per(times: usize, work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64() * 1e9 / times as f64
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn every_side_goes_first_as_often_and_the_first_round_does_not_count() {
        let order = RefCell::new(String::new());
        let [a, b] = take_turns(
            3,
            [
                &mut || {
                    order.borrow_mut().push('a');
                    order.borrow().len() as f64
                },
                &mut || {
                    order.borrow_mut().push('b');
                    0.0
                },
            ],
        );
        assert_eq!(*order.borrow(), "abbaabba");
        assert_eq!(a, [4.0, 5.0, 8.0].into_iter().collect());
        assert_eq!(b, [0.0; 3].into_iter().collect());
    }
}
