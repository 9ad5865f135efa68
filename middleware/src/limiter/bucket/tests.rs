//! The arithmetic against a naive reference: a level that is filled tick by tick, in whole numbers. The two must agree on every single
//! decision.

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
    /// So many ticks pass.
    Pass(i64),
    /// Requests of so many 512ths of a token each, so many times unless one is refused.
    Ask(i64, u32),
    /// A lease of a rate for so many ticks, and what counts after it.
    Lease(Rate, i64, Rate),
    /// The lease is lost, or known to have ended.
    Lose(Rate),
}

fn rates() -> impl Strategy<Value = i64> {
    prop_oneof![6 => 1..40_i64, 2 => 40..3_000_i64]
}

fn leases() -> impl Strategy<Value = Rate> {
    prop_oneof![1 => Just(Rate::Shut), 1 => Just(Rate::At(0)), 8 => rates().prop_map(Rate::At)]
}

fn lapses() -> impl Strategy<Value = Rate> {
    prop_oneof![1 => Just(Rate::Open), 1 => Just(Rate::Shut), 2 => rates().prop_map(Rate::At)]
}

fn steps() -> impl Strategy<Value = Step> {
    let costs = prop_oneof![6 => Just(TICKS), 2 => 1..TICKS, 1 => TICKS..20 * TICKS];
    prop_oneof![
        8 => prop_oneof![0..40_i64, 0..1_000_i64].prop_map(Step::Pass),
        16 => (costs, prop_oneof![Just(1), 1..100_u32]).prop_map(|(cost, times)| Step::Ask(cost, times)),
        3 => (leases(), 1..3_000_i64, lapses()).prop_map(|(rate, ticks, lapse)| Step::Lease(rate, ticks, lapse)),
        1 => lapses().prop_map(Step::Lose),
    ]
}

proptest! {
    #[test]
    fn decides_as_the_naive_bucket_in_any_window_and_promises_the_exact_moment(
        burst_ticks in prop_oneof![Just(0), Just(TICKS), 0..2_000_i64],
        lapse in lapses(),
        steps in prop::collection::vec(steps(), 1..120),
    ) {
        let mut both = SideBySide::new(burst_ticks, lapse);
        for step in steps {
            match step {
                Step::Pass(ticks) => both.pass(ticks),
                Step::Lease(rate, ticks, lapse) => both.lease(rate, ticks, lapse),
                Step::Lose(lapse) => both.lose(lapse),
                Step::Ask(cost, times) => {
                    // Whoever asks, asks without pause.
                    for _ in 0..times {
                        if !both.ask(cost) {
                            break;
                        }
                    }
                }
            }
        }
        both.end();
    }
}

#[test]
fn a_place_given_back_late_returns_only_what_has_not_overflowed() {
    let mut bucket = Bucket::new(TICKS, Rate::Shut);
    let supply = Supply::Lease {
        flow: Flow::At(10.0),
        ends: Moment::NEVER,
        lapse: Flow::Shut,
        left: None,
    };
    bucket.switch(supply, moment(0));
    let take = bucket.next(4 * TICKS, moment(0));
    bucket.spent = take.end();

    let returned = |ticks| take.returnable(&bucket.terms.at(moment(ticks), bucket.burst));
    assert_eq!(returned(0), 4.0);
    assert_eq!(returned(TICKS / 4), 1.5);
    assert_eq!(returned(TICKS), 0.0);
}

#[test]
fn a_rate_below_one_request_a_burst_still_admits() {
    let mut bucket = Bucket::new(TICKS, Rate::Shut);
    let supply = Supply::Lease {
        flow: Flow::At(0.25),
        ends: Moment::NEVER,
        lapse: Flow::Shut,
        left: None,
    };
    bucket.switch(supply, moment(0));
    let take = bucket.next(TICKS, moment(0));
    assert!(bucket.admits(take, moment(0)));
    bucket.spent = take.end();

    let next = bucket.next(TICKS, moment(0));
    let promise = bucket.terms.reach(next, moment(0), bucket.burst);
    assert_eq!(promise, Some(moment(4 * TICKS)));
}

#[test]
fn no_rate_makes_the_promise_run_past_the_end_of_time() {
    for rate in [f64::MIN_POSITIVE, 1e-300, 1e-12, 1e15, f64::MAX] {
        let mut bucket = Bucket::new(TICKS, Rate::Shut);
        let supply = Supply::Lease {
            flow: Flow::at(rate),
            ends: Moment::NEVER,
            lapse: Flow::Shut,
            left: None,
        };
        bucket.switch(supply, moment(0));
        bucket.spent += 1e15;
        let take = bucket.next(TICKS, moment(0));
        let promise = bucket.terms.reach(take, moment(0), bucket.burst);
        // A quadrillion tokens are owed: not before they have come.
        let seconds = 1e15 / rate;
        assert!(
            promise.is_none_or(|moment| moment == Moment::NEVER
                || moment.seconds_since(self::moment(0)) >= seconds * 0.99),
            "{rate}: {promise:?}"
        );
    }
}

#[test]
fn after_any_rate_single_tokens_still_count() {
    for rate in [1e9, 1e12, 1e15, f64::MAX] {
        let mut bucket = Bucket::new(TICKS, Rate::Shut);
        let lease = |rate| Supply::Lease {
            flow: Flow::leased(Some(rate)),
            ends: Moment::NEVER,
            lapse: Flow::Shut,
            left: None,
        };
        bucket.switch(lease(rate), moment(0));
        let a_day_later = moment(86_400 * TICKS);
        bucket.switch(lease(10.0), a_day_later);
        let admitted = (0..1_000)
            .take_while(|_| {
                let take = bucket.next(TICKS, a_day_later);
                let admitted = bucket.admits(take, a_day_later);
                bucket.spent = take.end();
                admitted
            })
            .count();
        assert_eq!(admitted, 10, "{rate}");
    }
}
