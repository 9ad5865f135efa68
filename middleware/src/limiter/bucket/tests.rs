//! The arithmetic against a naive reference: a level filled tick by tick, in integers.

mod every_rate;
mod reference;
mod side_by_side;
mod windows;

use proptest::prelude::*;

use self::{
    reference::{Bucket, Rate, TICKS, moment},
    side_by_side::SideBySide,
};
use super::*;

#[derive(Debug, Clone)]
enum Step {
    Pass {
        ticks: i64,
    },
    /// Requests of `cost` 512ths of a token, until one is rejected.
    Request {
        cost: i64,
        times: u32,
    },
    Lease {
        rate: Rate,
        ticks: i64,
        lapsed: Rate,
    },
    LoseLease {
        lapsed: Rate,
    },
}

fn rates() -> impl Strategy<Value = i64> {
    prop_oneof![6 => 1..40_i64, 2 => 40..3_000_i64]
}

fn leases() -> impl Strategy<Value = Rate> {
    prop_oneof![1 => Just(Rate::Blocked), 1 => Just(Rate::At(0)), 8 => rates().prop_map(Rate::At)]
}

fn lapsed_rates() -> impl Strategy<Value = Rate> {
    prop_oneof![1 => Just(Rate::Unlimited), 1 => Just(Rate::Blocked), 2 => rates().prop_map(Rate::At)]
}

fn steps() -> impl Strategy<Value = Step> {
    let costs = prop_oneof![6 => Just(TICKS), 2 => 1..TICKS, 1 => TICKS..20 * TICKS];
    prop_oneof![
        8 => prop_oneof![0..40_i64, 0..1_000_i64].prop_map(|ticks| Step::Pass { ticks }),
        16 => (costs, prop_oneof![Just(1), 1..100_u32]).prop_map(|(cost, times)| Step::Request { cost, times }),
        3 => (leases(), 1..3_000_i64, lapsed_rates()).prop_map(|(rate, ticks, lapsed)| Step::Lease { rate, ticks, lapsed }),
        1 => lapsed_rates().prop_map(|lapsed| Step::LoseLease { lapsed }),
    ]
}

proptest! {
    #[test]
    fn agrees_with_the_reference(
        burst_ticks in prop_oneof![Just(0), Just(TICKS), 0..2_000_i64],
        lapsed in lapsed_rates(),
        steps in prop::collection::vec(steps(), 1..120),
    ) {
        let mut both = SideBySide::new(burst_ticks, lapsed);
        for step in steps {
            match step {
                Step::Pass { ticks } => both.pass(ticks),
                Step::Lease { rate, ticks, lapsed } => both.lease(rate, ticks, lapsed),
                Step::LoseLease { lapsed } => both.lose_lease(lapsed),
                Step::Request { cost, times } => {
                    for _ in 0..times {
                        if !both.request(cost) {
                            break;
                        }
                    }
                }
            }
        }
        both.check_windows();
    }
}

#[test]
fn late_release_returns_only_what_has_not_overflowed() {
    let mut bucket = Bucket::new(TICKS, Rate::Blocked);
    let supply = Supply::Lease {
        refill: Refill::PerSecond(10.0),
        ends: Moment::NEVER,
        lapsed: Refill::Blocked,
        tokens: Tokens::Kept,
    };
    bucket.switch(supply, moment(0));
    let range = bucket.next(4 * TICKS, moment(0));
    bucket.spent = range.end();

    let returned = |ticks| range.returnable(&bucket.schedule.at(moment(ticks), bucket.burst));
    assert_eq!(returned(0), 4.0);
    assert_eq!(returned(TICKS / 4), 1.5);
    assert_eq!(returned(TICKS), 0.0);
}

#[test]
fn rate_below_one_token_per_burst_admits() {
    let mut bucket = Bucket::new(TICKS, Rate::Blocked);
    let supply = Supply::Lease {
        refill: Refill::PerSecond(0.25),
        ends: Moment::NEVER,
        lapsed: Refill::Blocked,
        tokens: Tokens::Kept,
    };
    bucket.switch(supply, moment(0));
    let range = bucket.next(TICKS, moment(0));
    assert!(bucket.admits(range, moment(0)));
    bucket.spent = range.end();

    let next = bucket.next(TICKS, moment(0));
    let retry_at = bucket.schedule.reach(next, moment(0), bucket.burst);
    assert_eq!(retry_at, Some(moment(4 * TICKS)));
}

#[test]
fn extreme_rates_do_not_overflow_the_retry_time() {
    for rate in [f64::MIN_POSITIVE, 1e-300, 1e-12, 1e15, f64::MAX] {
        let mut bucket = Bucket::new(TICKS, Rate::Blocked);
        let supply = Supply::Lease {
            refill: Refill::at(rate, Unit::Rate),
            ends: Moment::NEVER,
            lapsed: Refill::Blocked,
            tokens: Tokens::Kept,
        };
        bucket.switch(supply, moment(0));
        bucket.spent += 1e15;
        let range = bucket.next(TICKS, moment(0));
        let retry_at = bucket.schedule.reach(range, moment(0), bucket.burst);
        let seconds = 1e15 / rate;
        assert!(
            retry_at.is_none_or(|moment| moment == Moment::NEVER
                || moment.seconds_since(self::moment(0)) >= seconds * 0.99),
            "{rate}: {retry_at:?}"
        );
    }
}

#[test]
fn single_tokens_are_exact_after_any_rate() {
    for rate in [1e9, 1e12, 1e15, f64::MAX] {
        let mut bucket = Bucket::new(TICKS, Rate::Blocked);
        let lease = |rate| Supply::Lease {
            refill: Refill::leased(Some(rate), Unit::Rate),
            ends: Moment::NEVER,
            lapsed: Refill::Blocked,
            tokens: Tokens::Kept,
        };
        bucket.switch(lease(rate), moment(0));
        let a_day_later = moment(86_400 * TICKS);
        bucket.switch(lease(10.0), a_day_later);
        let admitted = (0..1_000)
            .take_while(|_| {
                let range = bucket.next(TICKS, a_day_later);
                let admitted = bucket.admits(range, a_day_later);
                bucket.spent = range.end();
                admitted
            })
            .count();
        assert_eq!(admitted, 10, "{rate}");
    }
}
