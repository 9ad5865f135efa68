//! Processes that share a limit.

use super::{
    Case, DEFAULTS, Measured, PACES, arrivals, document, document_with, list, measure, stepping,
};
use crate::situations::{
    Error, Outcome, Programs,
    load::Load,
    plan::{Plan, Report},
    traffic::Traffic,
};

/// Fraction by which the clocks of processes and timers may make a rate look larger.
const TOLERANCE: f64 = 0.01;

pub(super) fn small_bursts(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const ENDS: f64 = 8.0;
    let cases = PACES.map(|pace| {
        let bursts = Load::Bursts {
            from: 0.0,
            every: 1.0,
            times: 8,
            requests: 50,
        };
        Case::new(
            pace,
            [
                Plan::new(pace, ENDS).load(bursts),
                stepping(pace, pace, 1, &[(ENDS, 700.0)]),
                stepping(pace, pace, 2, &[(ENDS, 150.0)]),
            ],
        )
    });
    let document = document(1000.0, DEFAULTS);
    measure(programs, &document, DEFAULTS.0, &cases, |_, reports| {
        let small = Traffic::of(reports.first());
        let refused = small.refused();
        let others = Traffic::of(reports.iter().skip(1)).refused();
        Measured::new(
            "none of the small one refused",
            refused.total() == 0,
            format!("{refused} of {}; others: {others}", small.len()),
        )
    })
}

/// At most one bucket beyond the limit, from the first second on.
fn within_a_bucket(limit: f64, seconds: f64, reports: &[Report]) -> Measured {
    let traffic = Traffic::of(reports);
    let bucket = traffic.bucket(limit);
    Measured::new(
        &format!("at most {limit}/s and a bucket of {limit}"),
        bucket <= limit * (1.0 + TOLERANCE) + 1.0,
        format!(
            "{}/s, a bucket of {bucket:.0}; {}",
            list(traffic.admitted_per_second(0.0, seconds)),
            traffic.refused()
        ),
    )
}

pub(super) fn readme(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const ENDS: f64 = 5.0;
    let cases = PACES.map(|pace| {
        let plans = (1..=3).map(|seed| stepping(pace, pace, seed, &[(ENDS, 1000.0)]).joins(-0.3));
        Case::new(pace, plans)
    });
    let document = document(1000.0, (1.0, 20.0));
    measure(programs, &document, 1.0, &cases, |_, reports| {
        within_a_bucket(1000.0, ENDS, reports)
    })
}

pub(super) fn start_together(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const ENDS: f64 = 8.0;
    let cases = PACES.map(|pace| {
        Case::new(
            pace,
            (1..=12).map(|seed| stepping(pace, pace, seed, &[(ENDS, 50.0)])),
        )
    });
    let document = document(100.0, DEFAULTS);
    measure(programs, &document, DEFAULTS.0, &cases, |_, reports| {
        within_a_bucket(100.0, ENDS, reports)
    })
}

pub(super) fn overload(programs: &Programs, intervals: (f64, f64)) -> Result<Vec<Outcome>, Error> {
    const ENDS: f64 = 12.0;
    let cases = PACES.map(|pace| {
        let rates = [2700.0, 270.0, 30.0];
        let plans = (1..)
            .zip(rates)
            .map(|(seed, rate)| stepping(pace, pace, seed, &[(ENDS, rate)]).joins(-0.3));
        Case::new(pace, plans)
    });
    let document = document(1000.0, intervals);
    measure(programs, &document, intervals.0, &cases, |case, reports| {
        let traffic = Traffic::of(reports);
        let bucket = traffic.bucket(1000.0);
        let seconds = traffic.admitted_per_second(0.0, ENDS);
        let lowest = seconds.iter().min().copied().unwrap_or_default();
        let mean = seconds.iter().skip(1).sum::<usize>() as f64 / (ENDS - 1.0);
        // At random arrivals the small ones do not offer their mean every second.
        let least = if case.name == "Poisson" {
            mean
        } else {
            lowest as f64
        };
        let later = seconds.iter().skip(2).max().copied().unwrap_or_default();
        Measured::new(
            "985–1000/s (Poisson: their mean from 1 s on) and a bucket of 1000",
            least >= 985.0 && bucket <= 1000.0 * (1.0 + TOLERANCE) + 1.0,
            format!(
                "{lowest}–{later}/s (the highest without the first 2 s), {mean:.0}/s on average: {}; \
                 a bucket of {bucket:.0}; {}",
                list(seconds),
                traffic.refused()
            ),
        )
    })
}

pub(super) fn twenty(programs: &Programs, algorithm: &str) -> Result<Vec<Outcome>, Error> {
    const ENDS: f64 = 60.0;
    let plans = (1..=20).map(|seed| {
        Plan::new("api", ENDS).load(Load::Rate {
            from: 0.0,
            until: ENDS,
            per_second: 9.0,
            arrivals: arrivals("Poisson", seed),
        })
    });
    let cases = [Case::new("", plans)];
    let document = document_with(200.0, algorithm, DEFAULTS);
    measure(programs, &document, DEFAULTS.0, &cases, |_, reports| {
        let traffic = Traffic::of(reports);
        let refused = traffic.refused();
        let percent = 100.0 * refused.total() as f64 / traffic.len() as f64;
        let bucket = traffic.bucket(200.0);
        Measured::new(
            "below 1 % refused with one of the algorithms",
            percent < 1.0,
            format!(
                "{percent:.2} %, {refused} of {}; a bucket of {bucket:.0}",
                traffic.len()
            ),
        )
    })
}
