//! Runs a scenario, and samples every second what clients want and hold.

use std::ops::AddAssign;

use doorman_openapi::Moment;

use super::{
    client::RequestCounts,
    event_loop::Simulation,
    extras::Extras,
    report::{Plan, Stats, Violation},
    scenario::{Resource, Scenario, ScenarioTarget},
    target::{Expected, TargetFigures},
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
    /// The last events; empty unless they were [asked for](trace_scenario).
    pub trace: Vec<String>,
}

/// Amounts at one second.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The simulated second.
    pub second: f64,
    /// Sums of each resource, in the order of [`Scenario::resources`].
    pub resources: Vec<Amounts>,
    /// The capacity of each resource.
    pub capacities: Vec<f64>,
    /// The effective capacity of each resource by the last response to a client; `None` if its
    /// template has no feedback.
    pub effective: Vec<Option<f64>>,
    /// The amounts of each client and resource, in the order of [`Scenario::holders`].
    pub holders: Vec<Amounts>,
    /// Whether each node has a running server that is master.
    pub has_master: bool,
}

/// A demand, and what there is for it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Amounts {
    /// The demand.
    pub wants: f64,
    /// The amount that leases allow; `used` where each lease is the whole capacity.
    pub held: f64,
    /// The requests admitted in the last second; of a stated demand the part that is held.
    pub used: f64,
    /// The requests rejected in the last second; of a stated demand the part that is not held.
    pub rejected: f64,
}

impl AddAssign for Amounts {
    fn add_assign(&mut self, other: Self) {
        self.wants += other.wants;
        self.held += other.held;
        self.used += other.used;
        self.rejected += other.rejected;
    }
}

/// Figures of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunReport {
    /// The seed.
    pub seed: u64,
    /// The share of min(sum of wants, capacity) that clients hold, or get of a capacity that is
    /// leased whole: the mean of all samples since
    /// [`Scenario::measure_from`].
    pub held_share: f64,
    /// The least share of a sample since then.
    pub least_share: f64,
    /// The share of min(sum of wants, capacity) that clients want and do not get, in the mean.
    pub unmet_share: f64,
    /// The share of the demand that is rejected.
    pub rejected_share: f64,
    /// The largest sum of leases as a share of the capacity, at any time.
    pub peak_share: f64,
    /// The most requests admitted in a second as a share of the capacity; `None` without requests.
    pub admitted_peak_share: Option<f64>,
    /// Of all targets; `None` without targets.
    pub targets: Option<TargetFigures>,
    /// How often the sum of leases rose above a capacity that is divided.
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
    /// The median of [`RunReport::rejected_share`].
    pub rejected_share_median: f64,
    /// The largest [`RunReport::peak_share`].
    pub peak_share: f64,
    /// The largest [`RunReport::admitted_peak_share`].
    pub admitted_peak_share: Option<f64>,
    /// Of all targets; `None` without targets.
    pub targets: Option<TargetSummary>,
    /// The sum over all runs.
    pub overshoot_episodes: u64,
    /// The first run, by seed, that exceeded a capacity.
    pub first_failed: Option<RunReport>,
}

/// Figures of the targets of several runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TargetSummary {
    /// [`TargetFigures::target_use`].
    pub target_use: MeanAndWorst,
    /// [`TargetFigures::overloaded_share`].
    pub overloaded_share: MeanAndWorst,
    /// [`TargetFigures::drop_seconds`]; `None` if no level falls.
    pub drop_seconds: Option<MeanAndWorst>,
    /// [`TargetFigures::rise_seconds`]; `None` if no level rises.
    pub rise_seconds: Option<MeanAndWorst>,
    /// [`TargetFigures::mean_seconds`].
    pub mean_seconds: MeanAndWorst,
}

/// A figure of several runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanAndWorst {
    /// The mean.
    pub mean: f64,
    /// That of the worst run.
    pub worst: f64,
}

impl MeanAndWorst {
    fn new(values: &[f64], worst: fn(f64, f64) -> f64) -> Option<Self> {
        Some(Self {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            worst: values.iter().copied().reduce(worst)?,
        })
    }
}

impl TargetSummary {
    fn new(figures: impl Iterator<Item = TargetFigures>) -> Option<Self> {
        let figures: Vec<_> = figures.collect();
        let all = |of: fn(&TargetFigures) -> Option<f64>, worst| {
            let values: Vec<_> = figures.iter().filter_map(of).collect();
            MeanAndWorst::new(&values, worst)
        };
        Some(Self {
            target_use: all(|it| Some(it.target_use()), f64::min)?,
            overloaded_share: all(|it| Some(it.overloaded_share()), f64::max)?,
            drop_seconds: all(|it| it.drop_seconds, f64::max),
            rise_seconds: all(|it| it.rise_seconds, f64::max),
            mean_seconds: all(|it| Some(it.mean_seconds()), f64::max)?,
        })
    }
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
            rejected_share_median: median(reports.iter().map(|it| it.rejected_share)),
            admitted_peak_share: largest(reports.iter().filter_map(|it| it.admitted_peak_share)),
            targets: TargetSummary::new(reports.iter().filter_map(|it| it.targets)),
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

fn largest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.max_by(f64::total_cmp)
}

/// Runs a scenario. The same seed always gives the same result.
///
/// # Errors
/// [`Violation`] if a server sends hints that it must not send.
pub fn run_scenario(scenario: &Scenario, seed: u64) -> Result<Run, Box<Violation>> {
    run(Runner::new(scenario, seed, false))
}

/// As [`run_scenario`], and records the events.
///
/// # Errors
/// As [`run_scenario`].
pub fn trace_scenario(scenario: &Scenario, seed: u64) -> Result<Run, Box<Violation>> {
    run(Runner::new(scenario, seed, true))
}

/// Runs a scenario and checks the invariants of [`simulate`](super::simulate) after every event.
/// The length of the run is that of the scenario, and not that of the plan.
///
/// # Errors
/// [`Violation`] if an invariant breaks.
///
/// # Panics
/// Unless all clients use the one resource `db`, whose algorithm divides its capacity.
pub fn check_scenario(
    scenario: &Scenario,
    seed: u64,
    plan: &Plan,
) -> Result<Stats, Box<Violation>> {
    let limit = scenario
        .limit()
        .expect("all clients use `db`, which is divided");
    let plan = Plan {
        seconds: scenario.seconds,
        ..*plan
    };
    let mut simulation = Simulation::of_scenario(seed, scenario, plan);
    simulation.check_limits(vec![limit]);
    simulation.run_until(Moment::ORIGIN.after_seconds(scenario.seconds))
}

fn run(mut runner: Runner<'_>) -> Result<Run, Box<Violation>> {
    let mut samples = Vec::new();
    for second in 0..=runner.scenario.seconds as u64 {
        runner.run_until(Moment::ORIGIN.after_seconds(second as f64))?;
        samples.push(runner.sample(second as f64));
    }
    let trace = runner.simulation.take_trace();
    Ok(Run {
        report: runner.report(&samples),
        samples,
        trace,
    })
}

struct Runner<'a> {
    scenario: &'a Scenario,
    seed: u64,
    simulation: Simulation,
    holders: Vec<Holder>,
    /// Whether more of a resource is leased than there is.
    is_above: Vec<bool>,
    peak_share: f64,
    overshoot_episodes: u64,
    first_overshoot: Option<Overshoot>,
}

/// A resource of a client.
struct Holder {
    client: usize,
    /// The position among the client's resources.
    slot: usize,
    resource: usize,
    /// The requests up to the last sample.
    counts: RequestCounts,
}

impl<'a> Runner<'a> {
    fn new(scenario: &'a Scenario, seed: u64, trace: bool) -> Self {
        let mut holders: Vec<Holder> = Vec::new();
        for it in scenario.holders() {
            let before = holders.last().filter(|last| last.client == it.client);
            holders.push(Holder {
                client: it.client,
                slot: before.map_or(0, |last| last.slot + 1),
                resource: it.resource,
                counts: RequestCounts::default(),
            });
        }
        Self {
            scenario,
            seed,
            simulation: Simulation::of_scenario(
                seed,
                scenario,
                Plan {
                    seconds: scenario.seconds,
                    without: None,
                    extras: Extras::NONE,
                    trace,
                },
            ),
            holders,
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

    fn held(&self, holder: &Holder) -> f64 {
        self.simulation.clients[holder.client].usable[holder.slot].at(self.simulation.time)
    }

    fn check_capacity(&mut self) {
        let second = self.simulation.time.seconds_since(Moment::ORIGIN);
        let mut sums = vec![0.0; self.is_above.len()];
        for holder in &self.holders {
            sums[holder.resource] += self.held(holder);
        }
        for (index, held) in sums.into_iter().enumerate() {
            let resource = &self.scenario.resources()[index];
            if resource.is_leased_whole() {
                continue;
            }
            let capacity = self.scenario.leasable(index, second);
            if capacity > 0.0 {
                self.peak_share = self.peak_share.max(held / capacity);
            }
            let is_above = resource.is_divided() && held > capacity * (1.0 + TOLERANCE);
            if is_above && !self.is_above[index] {
                self.overshoot_episodes += 1;
                self.first_overshoot.get_or_insert_with(|| Overshoot {
                    second,
                    resource: Resource {
                        capacity,
                        ..resource.clone()
                    },
                    held,
                });
            }
            self.is_above[index] = is_above;
        }
    }

    fn sample(&mut self, second: f64) -> Sample {
        let mut resources = vec![Amounts::default(); self.is_above.len()];
        let mut holders = Vec::with_capacity(self.holders.len());
        for index in 0..self.holders.len() {
            let holder = &self.holders[index];
            let resource = &self.scenario.resources()[holder.resource];
            let client = &self.simulation.clients[holder.client];
            let wants = self.simulation.scripted_demand(holder.client, holder.slot);
            let mut held = self.held(holder);
            let (used, rejected) = if client.sends_requests() {
                let counts = client.counts[holder.slot];
                let before = std::mem::replace(&mut self.holders[index].counts, counts);
                let in_unit = |now: f64, before: f64| (now - before) * resource.per;
                (
                    in_unit(counts.admitted, before.admitted),
                    in_unit(counts.rejected, before.rejected),
                )
            } else {
                (wants.min(held), (wants - held).max(0.0))
            };
            if resource.is_leased_whole() {
                held = used;
            }
            let amounts = Amounts {
                wants,
                held,
                used,
                rejected,
            };
            resources[self.holders[index].resource] += amounts;
            holders.push(amounts);
        }
        Sample {
            second,
            resources,
            capacities: self.scenario.capacities(second).to_vec(),
            effective: self.simulation.effective(self.scenario.resources()),
            holders,
            has_master: self.simulation.have_masters(),
        }
    }

    fn report(self, samples: &[Sample]) -> RunReport {
        let seconds = self.scenario.measure_from..=self.scenario.measure_until;
        let measured = || samples.iter().filter(|it| seconds.contains(&it.second));
        let shares: Vec<_> = measured().map(|sample| self.shares(sample)).collect();
        let mean = |of: fn(&(f64, f64)) -> f64| {
            shares.iter().map(of).sum::<f64>() / shares.len().max(1) as f64
        };
        let sums = measured().flat_map(|it| &it.resources);
        let (mut used, mut rejected) = (0.0, 0.0);
        for sum in sums {
            used += sum.used;
            rejected += sum.rejected;
        }
        let offered: f64 = used + rejected;
        let mut peak_share = self.peak_share;
        let mut admitted_peak_share = None;
        for (index, resource) in self.scenario.resources().iter().enumerate() {
            let admitted = measured().filter_map(|it| {
                let capacity = it.capacities[index];
                (capacity > 0.0).then(|| it.resources[index].used / capacity)
            });
            let admitted = largest(admitted).unwrap_or_default();
            if resource.is_leased_whole() {
                peak_share = peak_share.max(admitted);
            }
            if self.sends_requests(index) {
                admitted_peak_share = largest(admitted_peak_share.into_iter().chain([admitted]));
            }
        }
        RunReport {
            seed: self.seed,
            held_share: mean(|it| it.0),
            least_share: shares.iter().map(|it| it.0).fold(1.0, f64::min),
            unmet_share: mean(|it| it.1),
            rejected_share: if offered > 0.0 {
                rejected / offered
            } else {
                0.0
            },
            peak_share,
            admitted_peak_share,
            targets: self.target_figures(samples),
            overshoot_episodes: self.overshoot_episodes,
            first_overshoot: self.first_overshoot,
            requests: self.simulation.stats.requests,
            masterships: self.simulation.stats.masterships,
        }
    }

    fn target_figures(&self, samples: &[Sample]) -> Option<TargetFigures> {
        let targets = self.scenario.targets.iter();
        let figures = targets.filter_map(|it| self.figures_of(it, samples));
        figures.reduce(TargetFigures::and)
    }

    fn figures_of(&self, target: &ScenarioTarget, samples: &[Sample]) -> Option<TargetFigures> {
        let resource = &self.scenario.resources()[target.resource];
        let level = |second: f64| {
            let sample = samples.get(second as usize);
            let demand = sample.map_or(0.0, |it| it.resources[target.resource].wants);
            let capacity = self.scenario.capacities(second)[target.resource];
            let most = demand.min(capacity) / resource.per;
            target.accepts(second).min(most) * (1.0 - target.always)
        };
        let history = &self
            .simulation
            .targets
            .of_resource(target.resource)?
            .history;
        Some(history.figures(&Expected {
            from: self.scenario.measure_from,
            until: self.scenario.measure_until,
            seconds: self.scenario.seconds,
            level: &level,
            in_use: target.seconds_in_use(resource),
            changes: &self.scenario.level_changes(target),
        }))
    }

    fn sends_requests(&self, resource: usize) -> bool {
        let mut holders = self.holders.iter().filter(|it| it.resource == resource);
        holders.any(|it| self.simulation.clients[it.client].sends_requests())
    }

    /// The shares of min(demand, capacity) that are held, and that are wanted and rejected.
    fn shares(&self, sample: &Sample) -> (f64, f64) {
        let (mut target, mut held, mut used) = (0.0, 0.0, 0.0);
        for (sum, capacity) in sample.resources.iter().zip(&sample.capacities) {
            let most = (sum.used + sum.rejected).min(*capacity);
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
