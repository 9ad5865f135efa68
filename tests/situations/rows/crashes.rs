//! Processes that crash.

use super::{Case, DEFAULTS, Measured, document, measure, stepping};
use crate::situations::{Error, Outcome, Programs, traffic::Traffic};

/// The crashes of the cases are at other moments between two refreshes.
const CASES: u32 = 5;

/// A process crashes, and a second later another one takes its place.
pub(super) fn back_after_a_second(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const ENDS: f64 = 80.0;
    let (refresh_interval, _) = DEFAULTS;
    let mut cases = Vec::new();
    for index in 0..CASES {
        let crash = 15.0 + refresh_interval * f64::from(index) / f64::from(CASES);
        for (processes, rate) in [(1, 250.0), (3, 400.0 / 3.0)] {
            let name = format!("{processes}, crash at {crash} s");
            let back = crash + 1.0;
            let others = (1..processes).map(|index| {
                stepping(&name, "even", index, &[(ENDS, rate)])
                    .instance(&format!("{name}: {index}"))
            });
            let crashed = stepping(&name, "even", 0, &[(crash, rate)]);
            let successor = stepping(&name, "even", 0, &[(back, 0.0), (ENDS, rate)]);
            let mut plans = vec![
                successor.instance(&format!("{name}: 0")).joins(back),
                crashed.instance(&format!("{name}: 0")).crashes(),
            ];
            plans.extend(others);
            cases.push(Case::new(name, plans));
        }
    }
    measure(
        programs,
        &document(500.0, DEFAULTS),
        refresh_interval,
        &cases,
        |case, reports| {
            let is_lone = case.plans.len() == 2;
            // The first one is the successor.
            let counted = reports.iter().take(if is_lone { 1 } else { reports.len() });
            let back = case.plans.first().map_or(0.0, |plan| plan.joins);
            let sent = Traffic::of(counted).sent(back - 1.0, back + 59.0);
            let part = sent.refused().total() as f64 / sent.len() as f64;
            let (target, most) = if is_lone {
                (
                    "at most 2 % of the successor's requests refused in 60 s",
                    0.02,
                )
            } else {
                ("at most 3 % of all requests refused in 60 s", 0.03)
            };
            Measured::new(
                target,
                part <= most,
                format!("{:.2} %: {}", 100.0 * part, sent.refused()),
            )
        },
    )
}
