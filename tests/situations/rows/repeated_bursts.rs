//! Bursts one after the other, as a load generator with so many connections sends them.

use super::{Case, DEFAULTS, Measured, document, list, measure, stepping};
use crate::situations::{Error, Outcome, Programs, load::Load, plan::Plan, traffic::Traffic};

/// Moments of a shift between two refreshes.
const MOMENTS: u32 = 10;

/// A rate in bursts.
fn bursts(from: f64, until: f64, per_second: f64, requests: u32) -> Load {
    let every = f64::from(requests) / per_second;
    Load::Bursts {
        from,
        every,
        times: ((until - from) / every).round() as u32,
        requests,
    }
}

pub(super) fn shift(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const SHIFT: f64 = 17.0;
    let (refresh_interval, _) = DEFAULTS;
    let cases = (0..MOMENTS).map(|index| {
        let at = SHIFT + refresh_interval * f64::from(index) / f64::from(MOMENTS);
        let name = format!("at {at} s");
        let ends = at + 5.0;
        let before = Plan::new(&name, ends).load(bursts(0.0, at, 800.0, 50));
        let after = Plan::new(&name, ends).load(bursts(at, ends, 800.0, 50));
        Case::new(name, [after, before])
    });
    let cases: Vec<_> = cases.collect();
    let document = document(1000.0, DEFAULTS);
    measure(
        programs,
        &document,
        refresh_interval,
        &cases,
        |_, reports| {
            // The first one is the one that the load moves to.
            let traffic = Traffic::of(reports.first());
            let refused = traffic.refused();
            Measured::new(
                "at most 25 refused in the 5 s after the shift",
                refused.total() <= 25,
                format!("{refused} of {}", traffic.len()),
            )
        },
    )
}

pub(super) fn overload(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const ENDS: f64 = 15.0;
    let mut measured = Vec::new();
    for intervals in [(1.0, 8.0), DEFAULTS] {
        let (refresh_interval, _) = intervals;
        let name = format!("refreshed every {refresh_interval} s");
        let small = Plan::new(&name, ENDS).load(bursts(0.0, ENDS, 50.0, 50));
        let large = [2_700.0, 250.0].map(|rate| stepping(&name, "even", 1, &[(ENDS, rate)]));
        let cases = [Case::new(name, large.into_iter().chain([small]))];
        let document = document(1000.0, intervals);
        measured.extend(measure(
            programs,
            &document,
            refresh_interval,
            &cases,
            |_, reports| {
                let traffic = Traffic::of(reports);
                let seconds = traffic.admitted_per_second(0.0, ENDS);
                let lowest = seconds.iter().skip(2).min().copied().unwrap_or_default();
                Measured::new(
                    "98 % of the limit used in each second from 2 s on",
                    lowest >= 980,
                    format!("{}/s", list(seconds)),
                )
            },
        )?);
    }
    Ok(measured)
}

pub(super) fn beside_even(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const FROM: f64 = 12.0;
    const ENDS: f64 = 20.0;
    let cases = [0.0, 0.3, 0.6].map(|late| {
        let name = format!("from {} s on", FROM + late);
        let small = Plan::new(&name, ENDS + late).load(bursts(FROM + late, ENDS, 40.0, 40));
        let large = stepping(&name, "even", 1, &[(ENDS, 850.0)]);
        Case::new(name, [small, large])
    });
    let document = document(1000.0, DEFAULTS);
    measure(programs, &document, DEFAULTS.0, &cases, |_, reports| {
        let small = Traffic::of(reports.first());
        let refused = small.refused();
        let others = Traffic::of(reports.iter().skip(1))
            .sent(1.0, ENDS)
            .refused();
        Measured::new(
            "none refused",
            refused.total() + others.total() == 0,
            format!("{refused} of {}; of the even ones: {others}", small.len()),
        )
    })
}
