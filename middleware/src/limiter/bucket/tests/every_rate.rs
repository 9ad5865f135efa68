//! Every rate that a limit is likely to have, through leases that change, end and are renewed.

use super::{
    reference::{Rate, TICKS},
    side_by_side::SideBySide,
};

const RATES: std::ops::RangeInclusive<i64> = 1..=2_000;
const SCHEDULES: u64 = 10;

#[test]
fn every_whole_rate_admits_what_it_may_in_any_window_and_promises_the_exact_moment() {
    for rate in RATES {
        for schedule in 0..SCHEDULES {
            let seed = rate.unsigned_abs() * SCHEDULES + schedule;
            run(rate, &mut fastrand::Rng::with_seed(seed));
        }
    }
}

/// A lease of this rate, which is refreshed, replaced, lost and left to end by chance, under callers who ask until they are refused.
fn run(rate: i64, chance: &mut fastrand::Rng) {
    let bursts = [0, TICKS, chance.i64(0..2 * TICKS)];
    let burst_ticks = chance.choice(bursts).unwrap();
    // Long enough for the slowest to come by a token.
    let a_while = 40 + 2 * TICKS / rate;
    let mut both = SideBySide::new(burst_ticks, lapse(chance)).with_horizon(2 * a_while);
    both.lease(Rate::At(rate), chance.i64(1..8 * a_while), lapse(chance));
    for _ in 0..12 {
        let cost = match chance.u8(0..4) {
            0 => chance.i64(1..=TICKS),
            1 => chance.i64(1..=rate * TICKS),
            _ => TICKS,
        };
        // Whoever asks, asks without pause.
        for _ in 0..20 {
            if !both.ask(cost) {
                break;
            }
        }
        both.pass(chance.i64(0..a_while));
        match chance.u8(0..8) {
            0 => both.lease(any(chance), chance.i64(1..8 * a_while), lapse(chance)),
            1 => both.lose(lapse(chance)),
            2..=4 => both.lease(Rate::At(rate), chance.i64(1..8 * a_while), lapse(chance)),
            _ => {}
        }
    }
    both.end();
}

fn any(chance: &mut fastrand::Rng) -> Rate {
    match chance.u8(0..10) {
        0 => Rate::Shut,
        1 => Rate::At(0),
        _ => Rate::At(chance.i64(RATES)),
    }
}

fn lapse(chance: &mut fastrand::Rng) -> Rate {
    match chance.u8(0..4) {
        0 => Rate::Open,
        1 => Rate::Shut,
        _ => Rate::At(chance.i64(RATES)),
    }
}
