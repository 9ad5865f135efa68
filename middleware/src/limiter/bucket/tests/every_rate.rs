//! Every likely rate, with leases that change, end and are renewed.

use super::{
    reference::{Rate, TICKS},
    side_by_side::SideBySide,
};

const RATES: std::ops::RangeInclusive<i64> = 1..=2_000;
const SCHEDULES: u64 = 10;

#[test]
fn every_integer_rate_agrees_with_the_reference() {
    for rate in RATES {
        for schedule in 0..SCHEDULES {
            let seed = rate.unsigned_abs() * SCHEDULES + schedule;
            run(rate, &mut fastrand::Rng::with_seed(seed));
        }
    }
}

/// A lease of this rate that is randomly refreshed, replaced, lost or expired, with requests until
/// one is rejected.
fn run(rate: i64, chance: &mut fastrand::Rng) {
    let bursts = [0, TICKS, chance.i64(0..2 * TICKS)];
    let burst_ticks = chance.choice(bursts).unwrap();
    // Long enough for a token at the slowest rate.
    let a_while = 40 + 2 * TICKS / rate;
    let mut both = SideBySide::new(burst_ticks, lapsed(chance)).with_horizon(2 * a_while);
    both.lease(Rate::At(rate), chance.i64(1..8 * a_while), lapsed(chance));
    for _ in 0..12 {
        let cost = match chance.u8(0..4) {
            0 => chance.i64(1..=TICKS),
            1 => chance.i64(1..=rate * TICKS),
            _ => TICKS,
        };
        for _ in 0..20 {
            if !both.request(cost) {
                break;
            }
        }
        both.pass(chance.i64(0..a_while));
        match chance.u8(0..8) {
            0 => both.lease(any(chance), chance.i64(1..8 * a_while), lapsed(chance)),
            1 => both.lose_lease(lapsed(chance)),
            2..=4 => both.lease(Rate::At(rate), chance.i64(1..8 * a_while), lapsed(chance)),
            _ => {}
        }
    }
    both.check_windows();
}

fn any(chance: &mut fastrand::Rng) -> Rate {
    match chance.u8(0..10) {
        0 => Rate::Blocked,
        1 => Rate::At(0),
        _ => Rate::At(chance.i64(RATES)),
    }
}

fn lapsed(chance: &mut fastrand::Rng) -> Rate {
    match chance.u8(0..4) {
        0 => Rate::Unlimited,
        1 => Rate::Blocked,
        _ => Rate::At(chance.i64(RATES)),
    }
}
