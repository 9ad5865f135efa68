//! Processes with different priorities on one PRIORITY_SHARE resource.

use super::{Case, DEFAULTS, Measured, PACES, document_with, measure, stepping};
use crate::situations::{Error, Outcome, Programs, traffic::Traffic};

/// When the process with the high priority starts.
const START: f64 = 10.0;
const ENDS: f64 = 25.0;

const LIMIT: f64 = 1000.0;
/// Requests per second of the high priority.
const HIGH: f64 = 700.0;

pub(super) fn high_joins_low(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    let mut cases = Vec::new();
    for pace in PACES {
        // With 700/s the low one holds its demand and a surplus, with 1500/s all capacity.
        for low in [700.0, 1500.0] {
            let name = format!("{low}/s {pace}");
            let high = stepping(&name, pace, 1, &[(START, 0.0), (ENDS, HIGH)]);
            let low = stepping(&name, pace, 2, &[(ENDS, low)]);
            cases.push(Case::new(name, [high.joins(START).priority(10), low]));
        }
    }
    let document = document_with(LIMIT, "PRIORITY_SHARE", DEFAULTS);
    measure(programs, &document, DEFAULTS.0, &cases, |_, reports| {
        let (high, all) = (Traffic::of(reports.first()), Traffic::of(reports));
        let low = Traffic::of(reports.get(1));
        let settled = high.sent(START + 1.0, ENDS);
        let refused = settled.refused();
        let first = high.sent(START, START + 1.0).refused();
        let rest = low.admitted_per_second(START + 1.0, ENDS);
        let least = rest.iter().min().copied().unwrap_or_default();
        Measured::new(
            "at most 0.1 % of the high one refused from 1 s on, each with 429",
            refused.total() as f64 <= 0.001 * settled.len() as f64 && all.refused().all_have(429),
            format!(
                "{refused} of {}; in the first second: {first}; {:.0}/s of the low one, the lowest \
                 second {least}; a bucket of {:.0}; low: {}",
                settled.len(),
                rest.iter().sum::<usize>() as f64 / rest.len() as f64,
                all.bucket(LIMIT),
                low.refused(),
            ),
        )
    })
}
