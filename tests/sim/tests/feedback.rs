//! How fast and how far the capacity of a resource follows what its target accepts.
//!
//! The figures beside their bars:
//! `cargo test --release -p doorman-tests --test sim feedback -- --ignored --nocapture`
//! `DOORMAN_FEEDBACK_SEEDS` says of how many seeds, `DOORMAN_FEEDBACK_CASE` a part of the name of
//! the only cases to run.

#![expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a panic fails the test, and the figures are for readers"
)]

use doorman_core::ledger::{FeedbackRule, Tuning};
use doorman_sim::{Run, Scenario, TargetFigures, on_all_cores, run_scenario};

/// 20 clients that want 1300 a second of 1000.
const FLEET: &str = "{count: 20, resource: api, requests: random, demand: {constant: {wants: 65}}}";
const GAUGE: &str = ", unit: gauge, feedback: {}";
const SLOW_FROM_150_MS: &str = ", unit: gauge, feedback: {latency: 0.15}";
const DROP: &str = "rate: [{at: 0, value: 1000}, {at: 40, value: 300}, {at: 110, value: 1000}]";

/// A run with a target, and the figures that it must have in the mean. No seed misses one by more
/// than a third.
struct Case {
    name: &'static str,
    capacity: f64,
    /// More of the template.
    feedback: &'static str,
    clients: Vec<String>,
    target: String,
    /// More lines of the scenario.
    more: &'static str,
    seconds: u32,
    measured: [u32; 2],
    bars: Bars,
}

#[derive(Clone, Copy)]
struct Bars {
    drop: f64,
    rise: f64,
    /// The least use of the target.
    used: f64,
    overloaded: f64,
    /// Of the effective capacity in the measured time, as a part of its mean.
    amplitude: f64,
    /// The mean seconds of a request.
    seconds: f64,
}

const NO_BARS: Bars = Bars {
    drop: f64::INFINITY,
    rise: f64::INFINITY,
    used: 0.0,
    overloaded: 1.0,
    amplitude: f64::INFINITY,
    seconds: f64::INFINITY,
};

impl Case {
    /// A capacity of 1000 a second for 20 clients that want more, and a target that accepts less
    /// from 40 to 110.
    fn new(name: &'static str, bars: Bars) -> Self {
        Self {
            name,
            capacity: 1_000.0,
            feedback: ", feedback: {}",
            clients: vec![FLEET.to_owned()],
            target: DROP.to_owned(),
            more: "",
            seconds: 160,
            measured: [60, 110],
            bars,
        }
    }

    fn target(self, target: &str) -> Self {
        let target = target.to_owned();
        Self { target, ..self }
    }

    /// Clients that want so much each.
    fn clients(self, count: usize, wants: f64) -> Self {
        self.with_clients(client(count, wants, ""))
    }

    fn with_clients(self, clients: String) -> Self {
        let clients = vec![clients];
        Self { clients, ..self }
    }

    fn also(mut self, count: usize, wants: f64, more: &str) -> Self {
        self.clients.push(client(count, wants, more));
        self
    }

    /// A gauge, and clients that would use so many units in all.
    fn gauge(self, capacity: f64, feedback: &'static str, count: usize, wants: f64) -> Self {
        let case = Self { feedback, ..self };
        case.of_capacity(capacity)
            .clients(count, wants / count as f64)
    }

    fn of_capacity(self, capacity: f64) -> Self {
        Self { capacity, ..self }
    }

    fn with(self, more: &'static str) -> Self {
        Self { more, ..self }
    }

    fn for_seconds(self, seconds: u32, measured: [u32; 2]) -> Self {
        Self {
            seconds,
            measured,
            ..self
        }
    }

    fn scenario(&self, feedback: &str) -> Scenario {
        let [from, until] = self.measured;
        let (seconds, capacity, clients) = (self.seconds, self.capacity, self.clients.join(", "));
        let kind = if clients.contains("priority") {
            "PRIORITY_SHARE"
        } else {
            "FAIR_SHARE"
        };
        let text = format!(
            "seconds: {seconds}
measure_from: {from}
measure_until: {until}
document:
  resources:
    - {{identifier_glob: api, capacity: {capacity}{feedback}, algorithm: {{kind: {kind}}}}}
clients: [{clients}]
targets: [{{resource: api, {}}}]
{}",
            self.target, self.more
        );
        Scenario::parse(&text, None).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The same with clients that limit themselves alone.
    fn alone(&self) -> Self {
        let clients = self.clients.iter();
        let clients = clients.map(|it| it.replacen("requests: ", "limits: aimd, requests: ", 1));
        Self {
            clients: clients.collect(),
            target: self.target.clone(),
            ..*self
        }
    }

    fn run(&self, feedback: &str, seeds: u64) -> Vec<Run> {
        self.run_without(None, feedback, seeds)
    }

    fn run_without(&self, rule: Option<FeedbackRule>, feedback: &str, seeds: u64) -> Vec<Run> {
        let tuning = Box::leak(Box::new(Tuning {
            feedback_without: rule,
            ..Tuning::DEFAULT
        }));
        let scenario = self.scenario(feedback).with_tuning(tuning);
        on_all_cores(0..seeds, |seed| run_scenario(&scenario, seed)).unwrap()
    }
}

fn client(count: usize, wants: f64, more: &str) -> String {
    format!(
        "{{count: {count}, resource: api, requests: random, \
         demand: {{constant: {{wants: {wants}}}}}{more}}}"
    )
}

/// A rate that falls by 20 a second each second, from 1000 to 200.
fn ramp() -> String {
    let steps = (0..=40).map(|n| format!("{{at: {}, value: {}}}", 40 + n, 1_000 - 20 * n));
    let steps: Vec<_> = steps.collect();
    format!(
        "rate: [{{at: 0, value: 1000}}, {}, {{at: 110, value: 1000}}]",
        steps.join(", ")
    )
}

fn figures(run: &Run) -> TargetFigures {
    run.report.targets.unwrap()
}

/// The effective capacities at the seconds that are measured, in order of size.
fn levels(run: &Run, [from, until]: [u32; 2]) -> Vec<f64> {
    let measured = f64::from(from)..f64::from(until);
    let samples = run
        .samples
        .iter()
        .filter(|it| measured.contains(&it.second));
    let mut levels: Vec<_> = samples.filter_map(|it| it.effective[0]).collect();
    levels.sort_by(f64::total_cmp);
    levels
}

fn amplitude(run: &Run, measured: [u32; 2]) -> f64 {
    let levels = levels(run, measured);
    let (count, sum) = (levels.len(), levels.iter().sum::<f64>());
    match levels
        .get(count / 20)
        .zip(levels.get(count - 1 - count / 20))
    {
        Some((low, high)) if sum > 0.0 => (high - low) / (sum / count as f64),
        _ => 0.0,
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Prints the figures of a case: the mean, and the worst in parentheses. Returns the bars that it
/// misses.
fn check_case(case: &Case, rule: Option<FeedbackRule>, seeds: u64) -> Vec<String> {
    let runs = case.run_without(rule, case.feedback, seeds);
    let all = |of: &dyn Fn(&Run) -> f64| -> Vec<f64> { runs.iter().map(of).collect() };
    let bars = case.bars;
    let longest = |seconds: Option<f64>| seconds.unwrap_or(0.0);
    let figures = [
        (
            "drop",
            1.0,
            bars.drop,
            all(&|it| longest(figures(it).drop_seconds)),
        ),
        (
            "rise",
            1.0,
            bars.rise,
            all(&|it| longest(figures(it).rise_seconds)),
        ),
        (
            "unused",
            100.0,
            1.0 - bars.used,
            all(&|it| 1.0 - figures(it).target_use()),
        ),
        (
            "over",
            100.0,
            bars.overloaded,
            all(&|it| figures(it).overloaded_share()),
        ),
        (
            "amplitude",
            100.0,
            bars.amplitude,
            all(&|it| amplitude(it, case.measured)),
        ),
        (
            "ms",
            1e3,
            bars.seconds,
            all(&|it| figures(it).mean_seconds()),
        ),
    ];
    let mut line = format!("{:32}", case.name);
    let mut missed = Vec::new();
    for (name, factor, bar, values) in figures {
        let mean = mean(&values);
        let worst = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        line += &format!(" | {name} {:.2} ({:.2})", factor * mean, factor * worst);
        if bar.is_finite() {
            line += &format!(" ≤ {:.2}", factor * bar);
        }
        if mean > bar || worst > bar + bar.abs() / 3.0 {
            missed.push(format!("{}: {name} {mean} ({worst}), bar {bar}", case.name));
        }
    }
    println!("{line}");
    missed
}

/// The figures of clients that limit themselves alone: the mean, and the worst in parentheses.
fn figures_alone(case: &Case, seeds: u64) -> String {
    let runs = case.alone().run("", seeds);
    let figure = |name: &str, factor: f64, of: &dyn Fn(TargetFigures) -> f64| {
        let values: Vec<_> = runs.iter().map(|it| of(figures(it))).collect();
        let worst = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!(
            " | {name} {:.2} ({:.2})",
            factor * mean(&values),
            factor * worst
        )
    };
    [
        figure("drop", 1.0, &|it| it.drop_seconds.unwrap_or(0.0)),
        figure("rise", 1.0, &|it| it.rise_seconds.unwrap_or(0.0)),
        figure("unused", 100.0, &|it| 1.0 - it.target_use()),
        figure("over", 100.0, &|it| it.overloaded_share()),
    ]
    .concat()
}

#[test]
fn fleet_without_feedback_overloads_a_target_that_shrinks() {
    let case = Case::new("none", NO_BARS);
    for run in case.run("", 2) {
        let figures = figures(&run);
        assert!(
            (0.69..0.71).contains(&figures.overloaded_share()),
            "{figures:?}"
        );
        assert!(figures.target_use() > 0.99, "{figures:?}");
        // It never falls.
        assert_eq!(figures.drop_seconds, Some(70.0));
        assert!(levels(&run, case.measured).is_empty());
    }
}

#[test]
fn fleet_that_only_observes_overloads_its_target() {
    let case = Case::new("observe", NO_BARS);
    for run in case.run(", feedback: {mode: observe}", 1) {
        let figures = figures(&run);
        assert!(figures.overloaded_share() > 0.69, "{figures:?}");
    }
}

#[test]
fn capacity_follows_a_target_that_shrinks_and_returns() {
    let case = Case::new("drop", NO_BARS);
    for run in case.run(", feedback: {}", 2) {
        let figures = figures(&run);
        assert!(figures.drop_seconds.unwrap() < 3.5, "{figures:?}");
        assert!(figures.rise_seconds.unwrap() < 46.0, "{figures:?}");
        assert!(figures.target_use() > 0.95, "{figures:?}");
        assert!(figures.overloaded_share() < 0.01, "{figures:?}");
        assert!(run.report.peak_share <= 1.0 + 1e-9, "{:?}", run.report);
        let levels = levels(&run, case.measured);
        assert!(
            levels[0] > 250.0 && *levels.last().unwrap() < 350.0,
            "{levels:?}"
        );
    }
}

#[test]
fn client_that_always_claims_overload_takes_nothing_from_others() {
    let case = Case::new("liar", NO_BARS)
        .clients(9, 130.0)
        .also(1, 130.0, ", claims: always")
        .target("rate: [{at: 0, value: 1100}]")
        .for_seconds(60, [20, 60]);
    for run in case.run(", feedback: {}", 1) {
        let levels = levels(&run, case.measured);
        assert_eq!((levels[0], *levels.last().unwrap()), (1_000.0, 1_000.0));
        assert!(figures(&run).target_use() > 0.95, "{:?}", run.report);
    }
}

#[test]
fn fleet_that_always_claims_overload_has_the_floor() {
    let case = Case::new("liars", NO_BARS)
        .with_clients(client(20, 65.0, ", claims: always"))
        .target("rate: [{at: 0, value: 1100}]")
        .for_seconds(40, [20, 40]);
    let run = &case.run(", feedback: {floor: 0.2}", 1)[0];
    assert_eq!(levels(run, case.measured)[0], 200.0);
    assert_eq!(figures(run).overloaded_share(), 0.0);
}

#[test]
fn fleet_that_never_claims_overload_is_not_cut() {
    let case = Case::new("liars", NO_BARS)
        .with_clients(client(20, 65.0, ", claims: never"))
        .target("rate: [{at: 0, value: 300}]")
        .for_seconds(40, [20, 40]);
    let run = &case.run(", feedback: {}", 1)[0];
    assert_eq!(levels(run, case.measured)[0], 1_000.0);
    assert!(figures(run).overloaded_share() > 0.69, "{:?}", run.report);
}

#[test]
fn limit_that_a_target_states_prevents_overloads() {
    let case = Case::new("headers", NO_BARS)
        .target(
            "rate: [{at: 0, value: 500}], foreign: [{at: 0, value: 100}], burst: 10, \
             headers: true, latency: 0.3",
        )
        .for_seconds(60, [20, 60]);
    let overloaded = |feedback: &str| figures(&case.run(feedback, 1)[0]).overloaded_share();
    assert!(overloaded(", feedback: {headers: false}") > 0.002);
    assert_eq!(overloaded(", feedback: {}"), 0.0);
}

#[test]
fn pause_that_a_target_asks_for_saves_requests() {
    let windows = "rate: [{at: 0, value: 500}], window: 10";
    let overloaded = |retry_after: &str| {
        let case = Case::new("windows", NO_BARS)
            .target(&format!("{windows}{retry_after}"))
            .for_seconds(90, [40, 90]);
        figures(&case.run(", feedback: {}", 1)[0]).overloaded_share()
    };
    let (without, with) = (overloaded(""), overloaded(", retry_after: true"));
    assert!(with < without / 3.0, "{with} {without}");
}

#[test]
fn network_that_passes_little_is_seen_as_overload() {
    let case = Case::new("region", NO_BARS)
        .clients(5, 65.0)
        .also(15, 65.0, "")
        .target("rate: [{at: 0, value: 2000}]")
        .for_seconds(40, [20, 40]);
    let overloaded = |passes: &str| {
        let clients = case
            .clients
            .join(", ")
            .replacen("}}", &format!("}}}}{passes}"), 1);
        let case = Case {
            clients: vec![clients],
            target: case.target.clone(),
            ..case
        };
        figures(&case.run("", 1)[0]).overloaded_share()
    };
    assert_eq!(overloaded(""), 0.0);
    // A quarter sends 250 a second, of which 50 pass.
    let share = overloaded(", passes: 50");
    assert!((0.18..0.22).contains(&share), "{share}");
}

#[test]
fn refusals_at_any_load_stop_only_clients_that_limit_themselves() {
    let case = Case::new("always", NO_BARS)
        .target("rate: [{at: 0, value: 1100}], always: 0.1")
        .for_seconds(90, [60, 90]);
    let used = |case: &Case, feedback: &str| figures(&case.run(feedback, 1)[0]).target_use();
    let (alone, together) = (used(&case.alone(), ""), used(&case, ", feedback: {}"));
    assert!(alone < 0.5 && together > 0.9, "{alone} {together}");
}

#[test]
fn clients_that_limit_themselves_follow_a_target_with_refusals() {
    let figures = figures(&Case::new("alone", NO_BARS).alone().run("", 1)[0]);
    assert!(figures.target_use() > 0.9, "{figures:?}");
    assert!(
        (0.01..0.2).contains(&figures.overloaded_share()),
        "{figures:?}"
    );
    assert!(figures.drop_seconds.unwrap() < 20.0, "{figures:?}");
}

/// A database of 100 workers, and of 30 from 20 on. The clients would use 130 of them.
fn database(capacity: f64, more: &str) -> Case {
    Case::new("database", NO_BARS)
        .of_capacity(capacity)
        .clients(5, 26.0)
        .target(&format!(
            "workers: [{{at: 0, value: 100}}, {{at: 20, value: 30}}], latency: 0.1{more}"
        ))
        .for_seconds(50, [30, 50])
}

#[test]
fn gauge_without_feedback_lets_requests_wait_for_a_slow_database() {
    let run = &database(400.0, "").run(", unit: gauge", 1)[0];
    let figures = figures(run);
    assert!(figures.mean_seconds() > 0.4, "{figures:?}");
    assert_eq!(figures.drop_seconds, Some(30.0));
}

#[test]
fn gauge_follows_a_database_that_slows_down() {
    let case = database(400.0, "");
    let run = &case.run(SLOW_FROM_150_MS, 1)[0];
    let figures = figures(run);
    assert!(figures.mean_seconds() < 0.18, "{figures:?}");
    assert!(figures.target_use() > 0.93, "{figures:?}");
    assert!(figures.drop_seconds.unwrap() < 6.0, "{figures:?}");
    // 300 requests a second that take 0.15 seconds are 45 at a time.
    let levels = levels(run, case.measured);
    assert!(
        levels[0] > 30.0 && *levels.last().unwrap() < 65.0,
        "{levels:?}"
    );
}

#[test]
fn gauge_follows_a_pool_that_shrinks() {
    let case = database(200.0, ", queue: 0");
    let run = &case.run(GAUGE, 1)[0];
    let figures = figures(run);
    assert!(figures.overloaded_share() < 0.02, "{figures:?}");
    assert!(figures.target_use() > 0.85, "{figures:?}");
    assert!(figures.drop_seconds.unwrap() < 6.0, "{figures:?}");
    let levels = levels(run, case.measured);
    assert!(
        levels[0] > 22.0 && *levels.last().unwrap() < 38.0,
        "{levels:?}"
    );
}

#[test]
fn units_of_refused_requests_cool_down() {
    let case = database(200.0, ", queue: 0");
    let overloaded = |scenario: &Scenario| {
        let run = run_scenario(scenario, 0).unwrap();
        figures(&run).overloaded_share()
    };
    let scenario = case.scenario(GAUGE);
    let with = overloaded(&scenario);
    let without = overloaded(&scenario.without_cool_down());
    assert!(without > 4.0 * with, "{without} {with}");
}

/// Bars that most targets with a rate have.
const STANDARD: Bars = Bars {
    drop: 2.5,
    rise: 35.0,
    used: 0.98,
    overloaded: 0.005,
    amplitude: 0.12,
    seconds: f64::INFINITY,
};

fn cases() -> Vec<Case> {
    let bars = |drop: f64, used: f64, overloaded: f64| Bars {
        drop,
        used,
        overloaded,
        ..NO_BARS
    };
    let mut cases = of_one_fleet(bars);
    cases.extend(of_faults(bars));
    cases.extend(of_limits_and_demands(bars));
    cases.extend(of_liars(bars));
    cases.extend(of_sizes(bars));
    cases.extend(of_gauges(bars));
    cases
}

fn of_one_fleet(bars: impl Fn(f64, f64, f64) -> Bars) -> Vec<Case> {
    let never = f64::INFINITY;
    vec![
        Case::new("drop 1000-300-1000", STANDARD),
        Case::new(
            "same, demand 5000",
            Bars {
                overloaded: 0.008,
                ..STANDARD
            },
        )
        .clients(20, 250.0),
        Case::new(
            "target burst 1 s",
            Bars {
                overloaded: 0.015,
                amplitude: never,
                ..STANDARD
            },
        )
        .target(&format!("{DROP}, burst: 1")),
        Case::new("foreign 20 % from 60", bars(3.5, 0.98, 1.0))
            .target("rate: [{at: 0, value: 500}], foreign: [{at: 60, value: 100}]")
            .for_seconds(160, [80, 160]),
        Case::new("ramp down", bars(never, 0.98, 0.06))
            .target(&ramp())
            .for_seconds(160, [40, 110]),
        Case::new("queue, sheds", bars(never, 0.95, 0.025)).target(
            "workers: [{at: 0, value: 50}, {at: 40, value: 15}, {at: 110, value: 50}], \
             latency: 0.05, queue: 0.25",
        ),
    ]
}

fn of_faults(bars: impl Fn(f64, f64, f64) -> Bars) -> Vec<Case> {
    let never = f64::INFINITY;
    vec![
        Case::new("RTT 300 ms", bars(3.0, 0.97, 0.01)).with("network: {delay: 0.15}"),
        Case::new("reports lost 10 %", bars(9.0, 0.97, 1.0)).with("network: {loss: 0.1}"),
        Case::new("fail-over while held", bars(never, 0.0, 0.01))
            .with("servers: {count: 3, election_lease: 5}\nfaults: [{kind: elect_master, at: 70}]"),
        Case::new("fail-over 6 s in the cut", bars(11.0, 0.0, 1.0)).with(
            "servers: {count: 3, election_lease: 5}\nfaults: [{kind: elect_master, at: 40.5}]",
        ),
    ]
}

fn of_limits_and_demands(bars: impl Fn(f64, f64, f64) -> Bars) -> Vec<Case> {
    let never = f64::INFINITY;
    vec![
        Case::new("minute windows, foreign 20 %", bars(never, 0.98, 0.004))
            .target(
                "rate: [{at: 0, value: 500}], foreign: [{at: 0, value: 100}], window: 60, \
                 headers: true, retry_after: true, latency: 0.3",
            )
            .for_seconds(300, [60, 300]),
        Case::new("minute windows, Retry-After", bars(never, 0.95, 0.04))
            .target("rate: [{at: 0, value: 500}], window: 60, retry_after: true, latency: 0.3")
            .for_seconds(300, [60, 300]),
        Case::new("refill of a minute, foreign 20 %", bars(never, 0.98, 0.0))
            .target(
                "rate: [{at: 0, value: 500}], foreign: [{at: 0, value: 100}], burst: 60, \
                 headers: true, retry_after: true, latency: 0.3",
            )
            .for_seconds(300, [60, 300]),
        Case::new("10 % refused at any load", bars(never, 0.94, 1.0))
            .target("rate: [{at: 0, value: 1100}], always: 0.1")
            .for_seconds(160, [60, 160]),
        Case::new("demand 400 of 800", bars(never, 0.98, 0.001))
            .clients(20, 20.0)
            .target("rate: [{at: 0, value: 800}]"),
        Case::new("demand 760 of 800", bars(never, 0.98, 0.001))
            .clients(20, 38.0)
            .target("rate: [{at: 0, value: 800}]"),
        Case::new(
            "surge 200-900 after a drop",
            Bars {
                rise: 22.0,
                ..NO_BARS
            },
        )
        .target("rate: [{at: 0, value: 1000}, {at: 20, value: 300}, {at: 50, value: 1000}]")
        .with(
            "faults: [{kind: change_demand, at: 50, wants: 10}, \
                 {kind: change_demand, at: 100, wants: 45}]",
        )
        .for_seconds(160, [130, 160]),
        Case::new("idle at 300, then surge", bars(never, 0.0, 0.06))
            .target("rate: [{at: 0, value: 1000}, {at: 20, value: 300}]")
            .with(
                "faults: [{kind: change_demand, at: 50, wants: 5}, \
                 {kind: change_demand, at: 120, wants: 65}]",
            )
            .for_seconds(130, [120, 130]),
    ]
}

fn of_liars(bars: impl Fn(f64, f64, f64) -> Bars) -> Vec<Case> {
    let never = f64::INFINITY;
    let honest = "rate: [{at: 0, value: 1100}]";
    vec![
        Case::new("liar 1 of 10: always", bars(never, 0.95, 1.0))
            .clients(9, 130.0)
            .also(1, 130.0, ", claims: always")
            .target(honest)
            .for_seconds(120, [20, 120]),
        Case::new("liar 1 of 4: a fifth", bars(never, 0.95, 1.0))
            .clients(3, 325.0)
            .also(1, 325.0, ", claims: 0.2")
            .target(honest)
            .for_seconds(300, [100, 300]),
        Case::new("liar 1 of 10: never", bars(4.5, 0.98, 0.007))
            .clients(9, 130.0)
            .also(1, 130.0, ", claims: never"),
        Case::new("region of 5 of 20 passes 50", bars(never, 0.95, 0.01))
            .clients(15, 65.0)
            .also(5, 65.0, ", passes: 50")
            .target(honest)
            .for_seconds(160, [60, 160]),
        Case::new("priorities 5 of 20 high", bars(never, 0.0, 0.015))
            .clients(15, 50.0)
            .also(5, 50.0, ", priority: 1"),
    ]
}

fn of_sizes(bars: impl Fn(f64, f64, f64) -> Bars) -> Vec<Case> {
    vec![
        Case::new("large: 30,000-10,000/s", bars(2.5, 0.98, 0.008))
            .of_capacity(30_000.0)
            .clients(20, 2_000.0)
            .target("rate: [{at: 0, value: 30000}, {at: 20, value: 10000}]")
            .for_seconds(55, [30, 55]),
        Case::new("300 holders, 9000-3000/s", bars(3.0, 0.96, 0.008))
            .of_capacity(9_000.0)
            .clients(300, 40.0)
            .target("rate: [{at: 0, value: 9000}, {at: 20, value: 3000}]")
            .for_seconds(55, [30, 55]),
        Case::new("300 holders, 50/s", bars(f64::INFINITY, 0.88, 0.05))
            .of_capacity(100.0)
            .clients(300, 130.0 / 300.0)
            .target("rate: [{at: 0, value: 100}, {at: 40, value: 50}]")
            .for_seconds(200, [80, 200]),
        Case::new("tiny: 1/s of 2/s", bars(60.0, 0.92, 0.06))
            .of_capacity(2.0)
            .clients(10, 0.26)
            .target("rate: [{at: 0, value: 2}, {at: 100, value: 1}], burst: 10")
            .for_seconds(900, [300, 900]),
    ]
}

/// Clients that would use more than twice the units, so that those that they lease are in use.
fn of_gauges(bars: impl Fn(f64, f64, f64) -> Bars) -> Vec<Case> {
    let shrinks = "workers: [{at: 0, value: 100}, {at: 40, value: 30}, {at: 120, value: 100}], \
                 latency: 0.1";
    let small = "workers: [{at: 0, value: 10}, {at: 100, value: 3}, {at: 400, value: 10}], \
                 latency: 0.1";
    vec![
        Case::new("gauge, pool 100-30-100", bars(2.0, 0.95, 0.005))
            .gauge(200.0, GAUGE, 5, 325.0)
            .target(&format!("{shrinks}, queue: 0"))
            .for_seconds(200, [60, 120]),
        Case::new(
            "gauge, 100-30-100 workers",
            Bars {
                seconds: 1.1 * 0.15,
                ..bars(3.0, 0.98, 1.0)
            },
        )
        .gauge(400.0, SLOW_FROM_150_MS, 5, 325.0)
        .target(shrinks)
        .for_seconds(200, [60, 120]),
        Case::new("gauge, 10-3-10 workers", bars(5.0, 0.97, 1.0))
            .gauge(40.0, SLOW_FROM_150_MS, 2, 13.0)
            .target(small)
            .for_seconds(600, [150, 400]),
    ]
}

#[test]
#[ignore = "takes minutes, and prints a table"]
fn bars_are_met() {
    let seeds = std::env::var("DOORMAN_FEEDBACK_SEEDS");
    let seeds = seeds.map_or(5, |it| it.parse().unwrap());
    let only = std::env::var("DOORMAN_FEEDBACK_CASE").unwrap_or_default();
    let missed: Vec<_> = cases()
        .iter()
        .filter(|it| it.name.contains(&only))
        .flat_map(|it| {
            let missed = check_case(it, None, seeds);
            if !it.feedback.contains("gauge") {
                println!("{:>32}{}", "AIMD alone", figures_alone(it, seeds));
            }
            missed
        })
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

/// The case of this name.
fn case(name: &str) -> Case {
    let mut cases = cases().into_iter();
    cases.find(|it| it.name == name).unwrap()
}

/// Of the first seeds of a case, a mean misses its bar without the rule, and not with it.
fn assert_needed(rule: FeedbackRule, name: &str, seeds: u64) {
    let case = case(name);
    let missed = |rule| check_case(&case, rule, seeds);
    assert_eq!(missed(None), [""; 0]);
    assert!(!missed(Some(rule)).is_empty(), "{rule:?} is not needed");
}

macro_rules! ablations {
    ($($name:ident: $rule:ident, $seeds:literal of $case:literal,)*) => {$(
        #[test]
        fn $name() {
            assert_needed(FeedbackRule::$rule, $case, $seeds);
        }
    )*};
}

// `GrowthAfterVerdict` has unit tests: without it no mean misses a bar.
ablations! {
    intervals_before_the_window_are_no_evidence: IntervalInWindow, 2 of "RTT 300 ms",
    a_cut_must_have_arrived: CutArrived, 2 of "RTT 300 ms",
    the_level_before_useless_cuts_is_tried: Trial, 2 of "10 % refused at any load",
    suffering_holders_are_no_evidence: SuffersAlone, 2 of "region of 5 of 20 passes 50",
    levels_rise_under_load_only: GrowthUnderLoad, 3 of "idle at 300, then surge",
    steps_near_the_plateau_are_small: CarefulZone, 4 of "liar 1 of 10: never",
    probes_earn_back_their_cost: EarnBack, 8 of "drop 1000-300-1000",
    a_target_that_accepts_nothing_rests: Pause, 2 of "minute windows, Retry-After",
    the_limit_of_the_target_is_followed: Seen, 2 of "refill of a minute, foreign 20 %",
    verdicts_take_enough_requests: EnoughRequests, 6 of "tiny: 1/s of 2/s",
}
