//! Load that moves between processes.

use super::{Case, DEFAULTS, Measured, PACES, document, list, measure, stepping};
use crate::situations::{Error, Outcome, Programs, traffic::Traffic};

pub(super) fn to_one(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const SHIFT: f64 = 15.0;
    const ENDS: f64 = 30.0;
    let mut cases = Vec::new();
    for pace in PACES {
        for load in [100.0, 150.0] {
            let name = format!("{load}/s {pace}");
            let plans = (0..3_u8).map(|index| {
                let later = if index == 0 { load } else { 0.0 };
                let rates = [(SHIFT, load / 3.0), (ENDS, later)];
                stepping(&name, pace, u64::from(index) * 10 + 1, &rates)
            });
            let plans: Vec<_> = plans.collect();
            cases.push(Case::new(name, plans));
        }
    }
    let document = document(100.0, DEFAULTS);
    measure(programs, &document, DEFAULTS.0, &cases, |case, reports| {
        let traffic = Traffic::of(reports);
        let five = |from: f64| traffic.admitted_per_second(from, from + 5.0);
        let means = [15.0, 20.0, 25.0].map(|from| five(from).iter().sum::<usize>() / 5);
        let seconds = traffic.admitted_per_second(SHIFT + 0.5, ENDS);
        let lowest = seconds.iter().min().copied().unwrap_or_default();
        let from_half = traffic.sent(SHIFT + 0.5, ENDS);
        let later = seconds.iter().skip(3).min().copied().unwrap_or_default();
        let (met, target) = match case.name.as_str() {
            "100/s even" => (lowest >= 95, "95/s in every second from 0.5 s on"),
            // Not every second brings as many.
            "100/s Poisson" => (
                from_half.admitted() as f64 >= 0.95 * from_half.len() as f64,
                "95 % of the requests from 0.5 s on",
            ),
            // All three were short before, so that nothing signals the change at once.
            _ => (later >= 95, "95/s in every second from 3.5 s on"),
        };
        let refused = traffic.sent(SHIFT, ENDS).refused();
        Measured::new(
            target,
            met,
            format!(
                "{}/s in successive 5 s, lowest second {lowest}; {refused}",
                list(means)
            ),
        )
    })
}

/// Rates of the three services before and after the shift.
fn shift(
    programs: &Programs,
    (refresh_interval, lease_length): (f64, f64),
    shift: f64,
    rates: [[f64; 2]; 3],
) -> Result<Vec<Outcome>, Error> {
    let ends = shift + 5.0;
    let cases = PACES.map(|pace| {
        let plans = (1_u64..).zip(rates).map(|(index, [before, after])| {
            let rates = [(shift, before), (ends, after)];
            stepping(pace, pace, index * 10, &rates)
        });
        Case::new(pace, plans)
    });
    let document = document(1000.0, (refresh_interval, lease_length));
    measure(
        programs,
        &document,
        refresh_interval,
        &cases,
        |_, reports| {
            let traffic = Traffic::of(reports);
            let before = traffic.sent(0.0, shift).refused();
            let first = traffic.sent(shift, shift + 1.0);
            let after = traffic.sent(shift, ends);
            let refused = after.refused();
            Measured::new(
                "at most 20 refused in the 5 s after the shift",
                refused.total() <= 20,
                format!(
                    "{} of {} in the first second; {refused} of {} in 5 s; before the shift: {before}",
                    first.refused().total(),
                    first.len(),
                    after.len(),
                ),
            )
        },
    )
}

pub(super) fn of_825(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    shift(
        programs,
        (1.0, 20.0),
        6.0,
        [[825.0, 45.0], [45.0, 825.0], [30.0, 30.0]],
    )
}

pub(super) fn of_800(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    shift(
        programs,
        DEFAULTS,
        17.0,
        [[850.0, 50.0], [50.0, 850.0], [0.0, 0.0]],
    )
}
