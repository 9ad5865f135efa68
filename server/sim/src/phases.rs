//! Phases of a run: the time between two changes of its scenario, and what each client gets in it.

use super::{
    run::{Amounts, Run},
    scenario::Scenario,
};

/// Shorter phases belong to the one before. A phase needs a sample.
const SHORTEST: f64 = 2.0;

/// The time from one change of a scenario to the next.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// The second at which it begins.
    pub from: f64,
    /// The second at which it ends.
    pub to: f64,
    /// The changes at its beginning; empty for the first one.
    pub begins_with: Vec<String>,
    /// The mean amounts of each client and resource, in the order of [`Scenario::holders`].
    pub holders: Vec<Amounts>,
}

impl Phase {
    /// The phases of a run.
    #[must_use]
    pub fn of_run(scenario: &Scenario, run: &Run) -> Vec<Self> {
        let mut phases: Vec<Self> = vec![Self {
            from: 0.0,
            to: scenario.seconds(),
            begins_with: Vec::new(),
            holders: Vec::new(),
        }];
        for (at, change) in scenario.events() {
            let Some(last) = phases.last_mut() else {
                continue;
            };
            if at - last.from < SHORTEST || scenario.seconds() - at < SHORTEST {
                last.begins_with.push(change);
                continue;
            }
            last.to = at;
            phases.push(Self {
                from: at,
                to: scenario.seconds(),
                begins_with: vec![change],
                holders: Vec::new(),
            });
        }
        for phase in &mut phases {
            phase.holders = phase.means(scenario, run);
        }
        phases
    }

    /// A sample counts the requests of the second before it. What changes at its second counts
    /// already.
    fn means(&self, scenario: &Scenario, run: &Run) -> Vec<Amounts> {
        let is_last = self.to == scenario.seconds();
        let is_within = |second: f64| second > self.from && (second < self.to || is_last);
        let samples = run.samples.iter().filter(|it| is_within(it.second));
        let mut sums: Vec<Amounts> = Vec::new();
        let mut count = 0.0;
        for sample in samples {
            count += 1.0;
            sums.resize(sample.holders.len(), Amounts::default());
            for (sum, amounts) in sums.iter_mut().zip(&sample.holders) {
                *sum += *amounts;
            }
        }
        let mean = |sum: Amounts| Amounts {
            wants: sum.wants / count,
            held: sum.held / count,
            used: sum.used / count,
            rejected: sum.rejected / count,
        };
        sums.into_iter().map(mean).collect()
    }
}
