//! Runs a scenario, and samples every second what clients want and hold.

use doorman_openapi::Moment;

use super::{
    event_loop::Simulation,
    report::Violation,
    scenario::{Resource, Scenario},
};

/// Relative tolerance of sums.
const TOLERANCE: f64 = 1e-9;

/// A run of a scenario with one seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its figures.
    pub report: RunReport,
    /// One a second, from the beginning on.
    pub samples: Vec<Sample>,
}

/// Amounts at one second.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The simulated second.
    pub second: f64,
    /// Sums of each resource, in the order of [`Scenario::resources`].
    pub resources: Vec<Amounts>,
    /// The amounts of each client.
    pub clients: Vec<Amounts>,
    /// Whether a running server is master.
    pub has_master: bool,
}

/// A demand, and what there is for it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Amounts {
    /// The demand.
    pub wants: f64,
    /// The amount that leases allow.
    pub held: f64,
    /// The part of `held` that is wanted.
    pub used: f64,
}

/// Figures of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunReport {
    /// The seed.
    pub seed: u64,
    /// The share of min(sum of wants, capacity) that clients hold: the mean of all samples since
    /// [`Scenario::measure_from`].
    pub held_share: f64,
    /// The least share of a sample since then.
    pub least_share: f64,
    /// The share of min(sum of wants, capacity) that clients want and do not hold, in the mean.
    pub unmet_share: f64,
    /// The largest sum of leases as a share of the capacity, at any time.
    pub peak_share: f64,
    /// How often the sum of leases rose above the capacity.
    pub overshoot_episodes: u64,
    /// The first of them.
    pub first_overshoot: Option<Overshoot>,
    /// Lease requests that reached a server.
    pub requests: u64,
    /// How often a server became master.
    pub masterships: u64,
}

/// A sum of leases above the capacity.
#[derive(Debug, Clone, PartialEq)]
pub struct Overshoot {
    /// The simulated second.
    pub second: f64,
    /// The resource.
    pub resource: Resource,
    /// The sum of leases.
    pub held: f64,
}

/// Figures of several runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The median of [`RunReport::held_share`].
    pub held_share_median: f64,
    /// The run with the least [`RunReport::held_share`].
    pub worst: RunReport,
    /// The median of [`RunReport::unmet_share`].
    pub unmet_share_median: f64,
    /// The largest [`RunReport::peak_share`].
    pub peak_share: f64,
    /// The sum over all runs.
    pub overshoot_episodes: u64,
    /// The first run, by seed, that exceeded a capacity.
    pub first_failed: Option<RunReport>,
}

impl Summary {
    /// Summarizes runs; `None` without any.
    #[must_use]
    pub fn new(mut reports: Vec<RunReport>) -> Option<Self> {
        reports.sort_unstable_by_key(|it| it.seed);
        let by_share = |a: &&RunReport, b: &&RunReport| a.held_share.total_cmp(&b.held_share);
        let worst = reports.iter().min_by(by_share)?.clone();
        let failed = reports.iter().find(|it| it.first_overshoot.is_some());
        Some(Self {
            held_share_median: median(reports.iter().map(|it| it.held_share)),
            worst,
            unmet_share_median: median(reports.iter().map(|it| it.unmet_share)),
            peak_share: reports.iter().map(|it| it.peak_share).fold(0.0, f64::max),
            overshoot_episodes: reports.iter().map(|it| it.overshoot_episodes).sum(),
            first_failed: failed.cloned(),
        })
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

/// Runs a scenario. The same seed always gives the same result.
///
/// # Errors
/// [`Violation`] if a server sends hints that it must not send.
pub fn run_scenario(scenario: &Scenario, seed: u64) -> Result<Run, Box<Violation>> {
    let mut runner = Runner::new(scenario, seed);
    let mut samples = Vec::new();
    for second in 0..=scenario.seconds as u64 {
        runner.run_until(Moment::ORIGIN.after_seconds(second as f64))?;
        samples.push(runner.sample(second as f64));
    }
    Ok(Run {
        report: runner.report(seed, &samples),
        samples,
    })
}

struct Runner<'a> {
    scenario: &'a Scenario,
    simulation: Simulation,
    /// The resource of each client.
    resource_of: Vec<usize>,
    /// Whether more of a resource is leased than there is.
    is_above: Vec<bool>,
    peak_share: f64,
    overshoot_episodes: u64,
    first_overshoot: Option<Overshoot>,
}

impl<'a> Runner<'a> {
    fn new(scenario: &'a Scenario, seed: u64) -> Self {
        let groups = scenario.groups.iter();
        let members = groups.flat_map(|it| std::iter::repeat_n(it.resource, it.count));
        Self {
            scenario,
            simulation: Simulation::of_scenario(seed, scenario),
            resource_of: members.collect(),
            is_above: vec![false; scenario.resources().len()],
            peak_share: 0.0,
            overshoot_episodes: 0,
            first_overshoot: None,
        }
    }

    fn run_until(&mut self, end: Moment) -> Result<(), Box<Violation>> {
        while self.simulation.step(end)? {
            if std::mem::take(&mut self.simulation.has_lease_changed) {
                self.check_capacity();
            }
        }
        self.simulation.time = end;
        Ok(())
    }

    fn held(&self, client: usize) -> f64 {
        self.simulation.clients[client].usable[0].at(self.simulation.time)
    }

    fn check_capacity(&mut self) {
        let mut sums = vec![0.0; self.is_above.len()];
        for (client, resource) in self.resource_of.iter().enumerate() {
            sums[*resource] += self.held(client);
        }
        for (index, held) in sums.into_iter().enumerate() {
            let resource = &self.scenario.resources()[index];
            if resource.capacity > 0.0 {
                self.peak_share = self.peak_share.max(held / resource.capacity);
            }
            let is_above = held > resource.capacity * (1.0 + TOLERANCE);
            if is_above && !self.is_above[index] {
                self.overshoot_episodes += 1;
                let time = self.simulation.time;
                self.first_overshoot.get_or_insert_with(|| Overshoot {
                    second: time.seconds_since(Moment::ORIGIN),
                    resource: resource.clone(),
                    held,
                });
            }
            self.is_above[index] = is_above;
        }
    }

    fn sample(&self, second: f64) -> Sample {
        let mut resources = vec![Amounts::default(); self.is_above.len()];
        let mut clients = Vec::with_capacity(self.resource_of.len());
        for (client, resource) in self.resource_of.iter().enumerate() {
            let wants = self.simulation.scripted_demand(client);
            let held = self.held(client);
            let used = wants.min(held);
            clients.push(Amounts { wants, held, used });
            let sum = &mut resources[*resource];
            sum.wants += wants;
            sum.held += held;
            sum.used += used;
        }
        Sample {
            second,
            resources,
            clients,
            has_master: self.simulation.master().is_some(),
        }
    }

    fn report(self, seed: u64, samples: &[Sample]) -> RunReport {
        let from = self.scenario.measure_from;
        let measured = samples.iter().filter(|it| it.second >= from);
        let shares = measured.map(|sample| self.shares(sample));
        let shares: Vec<_> = shares.collect();
        let mean = |of: fn(&(f64, f64)) -> f64| {
            shares.iter().map(of).sum::<f64>() / shares.len().max(1) as f64
        };
        RunReport {
            seed,
            held_share: mean(|it| it.0),
            least_share: shares.iter().map(|it| it.0).fold(1.0, f64::min),
            unmet_share: mean(|it| it.1),
            peak_share: self.peak_share,
            overshoot_episodes: self.overshoot_episodes,
            first_overshoot: self.first_overshoot,
            requests: self.simulation.stats.requests,
            masterships: self.simulation.stats.masterships,
        }
    }

    /// The shares of min(sum of wants, capacity) that are held, and that are wanted and not held.
    fn shares(&self, sample: &Sample) -> (f64, f64) {
        let (mut target, mut held, mut used) = (0.0, 0.0, 0.0);
        for (sum, resource) in sample.resources.iter().zip(self.scenario.resources()) {
            let most = sum.wants.min(resource.capacity);
            target += most;
            held += sum.held.min(most);
            used += sum.used.min(most);
        }
        if target > 0.0 {
            (held / target, 1.0 - used / target)
        } else {
            (1.0, 0.0)
        }
    }
}
