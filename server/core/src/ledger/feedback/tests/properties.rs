//! Any input.

use proptest::prelude::*;

use doorman_openapi::Moment;

use super::fleet::terms;
use crate::ledger::feedback::{
    control::FeedbackControl,
    holder::HolderEvidence,
    report::{Bookings, OutcomeReport},
    terms::{ControlTerms, ControlUnit},
};

const HOLDERS: usize = 10;

#[derive(Debug, Clone)]
enum Step {
    Report(usize, OutcomeReport),
    Tick(Bookings, f64),
    SetTerms(ControlTerms),
    FollowClaims(f64),
    HandOver,
    Wait(f64),
}

fn number() -> BoxedStrategy<f64> {
    prop_oneof![
        5 => 0.0..1000.0f64,
        2 => 0.0..1.0f64,
        1 => any::<f64>(),
        1 => prop_oneof![Just(0.0), Just(5e-324), Just(f64::MAX), Just(f64::MIN_POSITIVE)],
    ]
    .boxed()
}

fn count() -> BoxedStrategy<u64> {
    prop_oneof![3 => 0..1000u64, 3 => Just(0u64), 1 => any::<u64>(), 1 => Just(u64::MAX)].boxed()
}

fn any_terms() -> BoxedStrategy<ControlTerms> {
    let unit = prop_oneof![
        3 => Just(ControlUnit::Rate { per: 1.0 }),
        1 => number().prop_map(|per| ControlUnit::Rate { per }),
        2 => Just(ControlUnit::Gauge),
    ];
    let latency = proptest::option::of(number());
    (number(), number(), number(), any::<bool>(), unit, latency)
        .prop_map(
            |(configured, floor, tolerate, follows_headers, unit, latency)| ControlTerms {
                configured,
                floor,
                tolerate,
                follows_headers,
                unit,
                latency,
                ..terms(None)
            },
        )
        .boxed()
}

fn any_report() -> BoxedStrategy<OutcomeReport> {
    let amounts = (number(), number(), number(), number(), number());
    let counts = (count(), count(), count());
    let said = (
        proptest::option::of(number()),
        proptest::option::of((number(), number())),
    );
    (amounts, counts, said)
        .prop_map(|(amounts, counts, (pause, seen))| {
            let (elapsed, used, ok_seconds, wants, has) = amounts;
            let (ok, overloaded, failed) = counts;
            OutcomeReport {
                elapsed,
                used,
                ok,
                overloaded,
                failed,
                ok_seconds,
                wants,
                has,
                pause,
                seen,
            }
        })
        .boxed()
}

fn any_step() -> BoxedStrategy<Step> {
    let tick = (number(), number(), number());
    prop_oneof![
        8 => (0..HOLDERS, any_report()).prop_map(|(holder, it)| Step::Report(holder, it)),
        6 => tick.prop_map(|(booked, wants, each)| Step::Tick(Bookings { booked, wants }, each)),
        6 => (0.0..1.0f64).prop_map(Step::Wait),
        1 => number().prop_map(Step::Wait),
        1 => any_terms().prop_map(Step::SetTerms),
        1 => number().prop_map(Step::FollowClaims),
        1 => Just(Step::HandOver),
    ]
    .boxed()
}

fn is_allowed(control: &FeedbackControl, now: Moment) -> Result<(), TestCaseError> {
    let terms = control.terms;
    let effective = control.effective(now);
    let level = control.level.capacity();
    prop_assert!((0.0..=terms.configured).contains(&effective), "{control:?}");
    prop_assert!(level >= terms.floor * terms.configured, "{control:?}");
    // Only a pause or the target's own limit goes below the level.
    let is_stopped = control.pauses.is_paused(now) || control.pace.told().is_some();
    prop_assert!(is_stopped || effective == level, "{control:?}");
    let status = control.status(now);
    let numbers = [
        status.plateau.unwrap_or(0.0),
        status.base.unwrap_or(0.0),
        status.overloaded_share,
        control.probe.step,
        control.probe.lost,
    ];
    let are_finite = numbers.iter().all(|it| it.is_finite() && *it >= 0.0);
    prop_assert!(are_finite, "{control:?}");
    prop_assert!(control.next_tick(now) > Moment::ORIGIN);
    Ok(())
}

proptest! {
    #[test]
    fn level_stays_within_its_bounds_for_any_input(
        terms in any_terms(),
        effective in proptest::option::of(number()),
        steps in proptest::collection::vec(any_step(), 1..120),
    ) {
        let mut now = Moment::ORIGIN.after_seconds(1.0);
        let mut control = FeedbackControl::new(terms, effective, now);
        let mut holders = [HolderEvidence::default(); HOLDERS];
        is_allowed(&control, now)?;
        for step in steps {
            match step {
                Step::Report(index, report) => {
                    control.report(index, &mut holders[index], &report, now);
                }
                Step::Tick(bookings, each) => {
                    let holders = holders.iter().map(|it| (*it, each));
                    control.tick(bookings, holders, now);
                }
                Step::SetTerms(terms) => control.set_terms(terms, now),
                Step::FollowClaims(effective) => { control.follow_claims(effective, now); }
                Step::HandOver => if let Some(record) = control.record(now) {
                    control = FeedbackControl::restore(&record, control.terms, now);
                    holders = [HolderEvidence::default(); HOLDERS];
                }
                Step::Wait(seconds) => now = now.after_seconds(seconds),
            }
            is_allowed(&control, now)?;
            for holder in &holders {
                let cap = control.demand_cap(holder).unwrap_or(0.0);
                prop_assert!(cap.is_finite() && cap >= 0.0, "{cap}");
            }
        }
    }
}
