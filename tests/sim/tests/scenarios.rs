//! The original Doorman's scenarios, and what faults and patterns of a scenario do.

#![expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a panic fails the test, and the figures are for readers"
)]

use doorman_sim::{Run, RunReport, Scenario, Summary, on_all_cores, run_scenario};

const SEEDS: u64 = 50;

fn read_text(name: &str) -> String {
    let path = format!(
        "{}/../examples/scenarios/{name}.yaml",
        env!("CARGO_MANIFEST_DIR")
    );
    std::fs::read_to_string(path).unwrap()
}

fn read(name: &str) -> Scenario {
    parse(&read_text(name))
}

fn parse(text: &str) -> Scenario {
    Scenario::parse(text, None).unwrap()
}

fn run_seeds(scenario: &Scenario, seeds: u64) -> Summary {
    Summary::new(reports(scenario, seeds)).unwrap()
}

fn reports(scenario: &Scenario, seeds: u64) -> Vec<RunReport> {
    on_all_cores(0..seeds, |seed| {
        run_scenario(scenario, seed).map(|run| run.report)
    })
    .unwrap()
}

/// Shares of min(demand, capacity), as `docs/SIMULATION.md` defines them.
struct Expected {
    /// The least median of what clients hold.
    held: f64,
    /// The least that they hold in a seed.
    worst_held: f64,
    /// The largest median of what they want and do not get.
    unmet: f64,
}

#[track_caller]
fn check_reports(name: &str, reports: Vec<RunReport>, expected: &Expected) {
    // The demand exceeds the capacity, at least for a while, and all of it is leased then.
    for report in &reports {
        assert!(report.peak_share > 0.999, "{report:?}");
    }
    let summary = Summary::new(reports).unwrap();
    println!(
        "{name}: held {} at the median, {} in seed {}; unmet {}",
        summary.held_share_median,
        summary.worst.held_share,
        summary.worst.seed,
        summary.unmet_share_median,
    );
    assert_eq!(summary.overshoot_episodes, 0, "{summary:?}");
    let Expected {
        held,
        worst_held,
        unmet,
    } = *expected;
    assert!(summary.held_share_median >= held, "{summary:?}");
    assert!(summary.worst.held_share >= worst_held, "{summary:?}");
    assert!(summary.unmet_share_median <= unmet, "{summary:?}");
}

/// The least median and the least share of a seed that clients hold, and the largest median of what
/// they do not get. `original` is the share that they hold in the simulation of the original.
#[test]
fn clients_hold_the_capacity() {
    for (name, what, [held, worst_held, unmet], _original) in [
        ("scenario-one", "without faults", [0.995, 0.99, 0.01], 0.992),
        ("scenario-two", "an election", [0.995, 0.985, 0.015], 0.992),
        (
            "scenario-three",
            "a late election",
            [0.9, 0.88, 0.11],
            0.476,
        ),
        ("scenario-four", "a region", [0.995, 0.995, 0.01], 0.995),
        ("scenario-five", "a tree", [0.995, 0.995, 0.005], 0.991),
        ("scenario-six", "a spike", [0.995, 0.995, 0.005], 0.975),
    ] {
        let expected = Expected {
            held,
            worst_held,
            unmet,
        };
        let name_and_case = format!("{name}, {what}");
        check_reports(&name_and_case, reports(&read(name), SEEDS), &expected);
    }
}

/// 0.923 in the simulation of the original, and 36 overshoots an hour. This is the first quarter of
/// the hour, because a whole one takes most of a minute without optimization: one seed runs it
/// here, and `doorman simulate` many.
#[test]
fn clients_of_a_tree_hold_the_capacity_through_mishaps() {
    let text = read_text("scenario-seven");
    let expected = |worst_held| Expected {
        held: 0.99,
        worst_held,
        unmet: 0.01,
    };
    let quarter = parse(&text.replace("seconds: 3600", "seconds: 900"));
    assert_eq!(quarter.seconds(), 900.0);
    // In the worst of 50 seeds, and two of 400, a region without a master for 58 s finds its last
    // lease of 60 s still booked, and gets more than its share until that ends. Meanwhile another
    // region loses its master for 55 s, with less than its share.
    let mut reports_of_quarter = reports(&quarter, SEEDS);
    reports_of_quarter.sort_by(|a, b| a.held_share.total_cmp(&b.held_share));
    let worst = reports_of_quarter.remove(0);
    assert!(worst.held_share > 0.92, "{worst:?}");
    check_reports(
        "scenario-seven, 15 min",
        reports_of_quarter,
        &expected(0.97),
    );
    check_reports("scenario-seven", reports(&parse(&text), 1), &expected(0.98));
}

#[test]
fn same_seed_repeats_a_scenario() {
    let scenario = read("scenario-three");
    let run = |seed| run_scenario(&scenario, seed).unwrap();
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

/// A scenario of four clients, with more lines.
fn four_clients(lines: &str) -> Scenario {
    parse(&format!(
        "
seconds: 120
measure_from: 30
servers: {{count: 3, election_lease: 3}}
document:
  resources:
    - identifier_glob: db
      capacity: 100
      algorithm: {{kind: FAIR_SHARE, lease_length: 20, refresh_interval: 4}}
clients:
  - {{count: 4, resource: db, demand: {{constant: {{wants: 20}}}}}}
{lines}"
    ))
}

#[test]
fn capacity_holds_under_all_faults_together() {
    let scenario = four_clients(
        "network: {delay: 0.01, jitter: 0.5, loss: 0.05, duplication: 0.05}
clock_drift: 0.05
random_faults:
  kinds: [lose_master, crash_server, stop_server, pause_server, partition_server, stop_etcd,
          crash_clients, pause_clients, partition_clients, restart_clients]
  every: 5
  for: 10",
    );
    let summary = run_seeds(&scenario, SEEDS);
    assert_eq!(summary.overshoot_episodes, 0, "{summary:?}");
    assert!(summary.unmet_share_median > 0.02, "{summary:?}");
}

#[test]
fn capacity_of_a_tree_holds_under_all_faults_together() {
    let scenario = three_levels(
        "network: {delay: 0.01, jitter: 0.5, loss: 0.05, duplication: 0.05}
clock_drift: 0.05
random_faults:
  kinds: [lose_master, elect_master, crash_server, stop_server, pause_server, partition_server,
          stop_etcd, partition_node, crash_clients, pause_clients, partition_clients,
          restart_clients, change_demand]
  every: 5
  for: 10
  more: 20",
    );
    let summary = run_seeds(&scenario, SEEDS);
    assert_eq!(summary.overshoot_episodes, 0, "{summary:?}");
    assert!(summary.unmet_share_median > 0.02, "{summary:?}");
}

#[test]
fn every_fault_has_an_effect() {
    let calm = run_scenario(&four_clients(""), 1).unwrap();
    for kind in [
        "lose_master",
        "crash_server",
        "stop_server",
        "pause_server",
        "partition_server",
        "stop_etcd",
        "crash_clients",
        "pause_clients",
        "partition_clients",
        "lose_client_answers",
        "delay_client_requests, by: 20",
        "restart_clients",
    ] {
        let faults = format!("faults: [{{kind: {kind}, at: 40, for: 45}}]");
        let run = run_scenario(&four_clients(&faults), 1).unwrap();
        assert_eq!(run.samples[..40], calm.samples[..40], "{kind}");
        // Clients may not notice an election.
        let effects = |it: &Run| (it.samples.clone(), it.report.masterships);
        assert_ne!(effects(&run), effects(&calm), "{kind}");
        let last = run.samples.last().unwrap();
        assert!(last.resources[0].held >= 80.0 * 0.999, "{kind}: {last:?}");
    }
}

/// A scenario of two regions with two clients each, with more lines.
fn two_regions(lines: &str) -> Scenario {
    parse(&format!(
        "
seconds: 120
servers: {{count: 3, election_lease: 3}}
nodes: [{{name: eu, servers: 2}}, {{name: us, servers: 2}}]
document:
  resources:
    - identifier_glob: db
      capacity: 100
      algorithm: {{kind: FAIR_SHARE, lease_length: 20, refresh_interval: 4}}
clients:
  - {{count: 4, resource: db, demand: {{constant: {{wants: 20}}}}}}
{lines}"
    ))
}

/// A scenario of three levels. Eight clients want 480 of 100 together.
fn three_levels(lines: &str) -> Scenario {
    parse(&format!(
        "
seconds: 120
measure_from: 30
servers: {{count: 3, election_lease: 3}}
nodes:
  - {{name: region, count: 2, servers: 2, nodes: [{{name: leaf, count: 2, servers: 2}}]}}
document:
  resources:
    - identifier_glob: db
      capacity: 100
      algorithm: {{kind: FAIR_SHARE, lease_length: 20, refresh_interval: 4}}
clients:
  - {{count: 8, resource: db, demand: {{constant: {{wants: 60}}}}}}
{lines}"
    ))
}

/// The seconds from a second on until clients use all of the capacity.
fn recovery(run: &Run, from: usize) -> usize {
    let samples = run.samples.iter().skip(from);
    let mut is_used = samples.map(|it| it.resources[0].used >= it.capacities[0] * 0.999);
    is_used.position(|is_used| is_used).unwrap()
}

/// Runs some seeds, without an overshoot in any. Returns the longest recovery from a second on.
#[track_caller]
fn longest_recovery(name: &str, scenario: &Scenario, from: usize, check: impl Fn(&Run)) -> usize {
    let longest = (0..20).map(|seed| {
        let run = run_scenario(scenario, seed).unwrap();
        assert_eq!(run.report.overshoot_episodes, 0, "{name}: {:?}", run.report);
        check(&run);
        recovery(&run, from)
    });
    let mut longest: Vec<usize> = longest.collect();
    longest.sort_unstable();
    println!("{name}: full use again after {longest:?} s");
    longest[longest.len() - 1]
}

/// All regions are lost for twice the length of their leases.
#[test]
fn tree_recovers_from_loss_of_a_whole_level() {
    // A request that is lost just before the end of a partition times out after two seconds.
    for (kind, most) in [
        ("partition_node", 3),
        ("lose_node_answers", 3),
        ("delay_node_requests, by: 20", 3),
        ("lose_master", 2),
    ] {
        let faults = format!(
            "faults:
  - {{kind: {kind}, at: 40, for: 40, node: region-0}}
  - {{kind: {kind}, at: 40, for: 40, node: region-1}}"
        );
        let leases_end = |run: &Run| {
            assert!(run.samples[42].resources[0].held > 99.0, "{kind}");
            assert_eq!(run.samples[62].resources[0].held, 0.0, "{kind}");
        };
        let longest = longest_recovery(kind, &three_levels(&faults), 80, leases_end);
        assert!(longest <= most, "{kind}: {longest}");
    }
}

/// The root learns while nodes on both levels below it do, and demand moves meanwhile.
#[test]
fn tree_recovers_from_elections_at_all_levels_at_once() {
    for kind in ["elect_master", "lose_master, for: 5"] {
        let nodes = ["root", "region-0", "region-1", "leaf-0", "leaf-3"];
        let faults = nodes.map(|node| format!("\n  - {{kind: {kind}, at: 40, node: {node}}}"));
        let faults = format!(
            "faults:{}\n  - {{kind: change_demand, at: 41, clients: 4, wants: 5}}",
            faults.concat()
        );
        let longest = longest_recovery(kind, &three_levels(&faults), 42, |_| {});
        // Masters learn until leases of 20 s have ended by any clock, and some of what clients gave
        // up waits for that.
        assert!(longest <= 28, "{kind}: {longest}");
    }
}

#[test]
fn cut_capacity_of_a_tree_is_used_again_once_restored() {
    let changes = "changes:
  - {at: 50, template: db, capacity: 10}
  - {at: 80, template: db, capacity: 100}";
    let shrinks = |run: &Run| {
        for second in 52..80 {
            let held = run.samples[second].resources[0].held;
            assert!(held <= 10.0 * (1.0 + 1e-9), "{held} at {second}");
        }
        let held = run.samples[52].resources[0].held;
        assert!(held >= 9.99, "{held}");
    };
    let longest = longest_recovery("cut to a tenth", &three_levels(changes), 80, shrinks);
    assert!(longest <= 2, "{longest}");
}

#[test]
fn every_fault_of_a_node_has_an_effect() {
    let calm = run_scenario(&two_regions(""), 1).unwrap();
    for fault in [
        "kind: lose_master, for: 45",
        "kind: elect_master",
        "kind: crash_server, for: 45",
        "kind: crash_server, for: 45, server: 0",
        "kind: stop_server, for: 45",
        "kind: pause_server, for: 45",
        "kind: partition_server, for: 45",
        "kind: stop_etcd, for: 45",
        "kind: partition_node, for: 45",
    ] {
        let run = |node: &str| {
            let faults = format!("faults: [{{at: 40, node: {node}, {fault}}}]");
            run_scenario(&two_regions(&faults), 1).unwrap()
        };
        let effects = |it: &Run| {
            (
                it.samples.clone(),
                it.report.requests,
                it.report.masterships,
            )
        };
        let of_eu = run("eu");
        assert_ne!(effects(&of_eu), effects(&calm), "{fault}");
        // Either of the two servers may be master.
        if !fault.contains("server: 0") {
            assert_ne!(effects(&of_eu), effects(&run("us")), "{fault}");
        }
        let last = of_eu.samples.last().unwrap();
        assert!(last.resources[0].held >= 80.0 * 0.999, "{fault}: {last:?}");
        assert_eq!(of_eu.report.overshoot_episodes, 0, "{fault}");
    }
}

#[test]
fn node_without_its_parent_loses_its_leases_alone() {
    let faults = "faults: [{kind: partition_node, at: 40, for: 45, node: us}]";
    let run = run_scenario(&two_regions(faults), 1).unwrap();
    let has_any = |second: usize| {
        let held = held_at(&run, second).into_iter();
        held.map(|held| held > 0.0).collect::<Vec<_>>()
    };
    assert_eq!(has_any(45), [true; 4]);
    assert_eq!(has_any(80), [true, false, true, false]);
    assert_eq!(has_any(100), [true; 4]);
}

#[test]
fn demand_changes_at_a_time_and_at_random() {
    let wants = |lines: &str, second: usize| {
        let run = run_scenario(&two_regions(lines), 1).unwrap();
        run.samples[second].resources[0].wants
    };
    let once = "faults: [{kind: change_demand, at: 40, clients: 3, wants: 90}]";
    assert_eq!((wants(once, 39), wants(once, 41)), (80.0, 290.0));
    let often = "random_faults: {kinds: [change_demand], from: 30, every: 20, more: 5}";
    let often = [29, 31, 49, 51, 119].map(|second| wants(often, second));
    assert_eq!(often, [80.0, 85.0, 85.0, 90.0, 105.0]);
}

#[test]
fn faults_affect_the_chosen_clients_only() {
    let faults = "faults: [{kind: crash_clients, at: 40, for: 20, clients: 1}]";
    let run = run_scenario(&four_clients(faults), 1).unwrap();
    let wants = run.samples.iter().map(|it| it.resources[0].wants);
    let wants: Vec<f64> = wants.collect();
    assert_eq!((wants[39], wants[50], wants[70]), (80.0, 60.0, 80.0));
}

#[test]
fn network_and_clocks_have_an_effect() {
    let calm = run_scenario(&four_clients(""), 1).unwrap();
    for line in [
        "network: {delay: 0.3}",
        "network: {jitter: 0.5}",
        "network: {loss: 0.2}",
        "network: {duplication: 0.5}",
        "clock_drift: 0.05",
        "hints: false",
    ] {
        let run = run_scenario(&four_clients(line), 1).unwrap();
        assert_ne!(
            (run.report.requests, run.samples),
            (calm.report.requests, calm.samples.clone()),
            "{line}"
        );
    }
}

#[test]
fn demand_follows_its_pattern() {
    let wants = |demand: &str| {
        let scenario = parse(&format!(
            "
seconds: 200
document: {{resources: [{{identifier_glob: db, capacity: 1e6,
  algorithm: {{kind: FAIR_SHARE, lease_length: 20, refresh_interval: 4}}}}]}}
clients: [{{count: 1, resource: db, demand: {{{demand}}}}}]"
        ));
        let run = run_scenario(&scenario, 3).unwrap();
        let wants = run.samples.iter().skip(10).map(|it| it.resources[0].wants);
        wants.collect::<Vec<f64>>()
    };
    let bounds = |wants: &[f64]| {
        let most = wants.iter().copied().fold(0.0, f64::max);
        (wants.iter().copied().fold(f64::MAX, f64::min), most)
    };
    let mean = |wants: &[f64]| wants.iter().sum::<f64>() / wants.len() as f64;

    assert_eq!(bounds(&wants("constant: {wants: 7}")), (7.0, 7.0));
    let sine = wants("sine: {mean: 50, amplitude: 30, period: 40}");
    let (least, most) = bounds(&sine);
    assert!(
        (least - 20.0).abs() < 0.5 && (most - 80.0).abs() < 0.5,
        "{sine:?}"
    );
    let spikes = wants("spikes: {base: 5, peak: 90, every: 20, for: 4}");
    assert!(
        spikes.iter().all(|it| *it == 5.0 || *it == 90.0),
        "{spikes:?}"
    );
    assert!((6.0..50.0).contains(&mean(&spikes)), "{spikes:?}");
    let poisson = wants("poisson: {mean: 40, every: 1}");
    assert!((38.0..42.0).contains(&mean(&poisson)), "{poisson:?}");
    let walk = wants("random_walk: {start: 100, step: 0.1, every: 10}");
    let steps = walk.windows(2).filter(|it| it[0] != it[1]);
    assert!(steps.clone().count() > 15, "{walk:?}");
    assert!(
        steps
            .into_iter()
            .all(|it| (it[1] / it[0] - 1.0).abs() <= 0.1)
    );
}

#[test]
fn higher_priorities_are_served_first() {
    let scenario = parse(
        "
seconds: 60
document: {resources: [{identifier_glob: db, capacity: 100,
  algorithm: {kind: PRIORITY_SHARE, lease_length: 20, refresh_interval: 4}}]}
clients:
  - {count: 1, resource: db, priority: 1, demand: {constant: {wants: 80}}}
  - {count: 1, resource: db, demand: {constant: {wants: 80}}}",
    );
    let run = run_scenario(&scenario, 1).unwrap();
    let held = run.samples[59].holders.iter().map(|it| it.held);
    let held: Vec<f64> = held.collect();
    assert!(
        (held[0] - 80.0).abs() < 1e-6 && (held[1] - 20.0).abs() < 1e-6,
        "{held:?}"
    );
}

/// A resource with a capacity of 100, and these clients.
fn with_clients(kind: &str, clients: &str) -> Scenario {
    parse(&format!(
        "
seconds: 60
document: {{resources: [{{identifier_glob: '*', capacity: 100,
  algorithm: {{kind: {kind}, lease_length: 20, refresh_interval: 2}}}}]}}
clients:
{clients}"
    ))
}

/// The leases of each client and resource at a second.
fn held_at(run: &Run, second: usize) -> Vec<f64> {
    let holders = run.samples.get(second).map(|it| &it.holders);
    holders.into_iter().flatten().map(|it| it.held).collect()
}

#[track_caller]
fn assert_close(found: &[f64], expected: &[f64]) {
    let are_close = |(found, expected): (&f64, &f64)| (found - expected).abs() < 1e-6;
    let is_close = found.len() == expected.len() && found.iter().zip(expected).all(are_close);
    assert!(is_close, "{found:?}, not {expected:?}");
}

#[test]
fn client_uses_several_resources() {
    let scenario = with_clients(
        "FAIR_SHARE",
        "
  - count: 1
    uses:
      - {resource: db, demand: {constant: {wants: 200}}}
      - {resource: api, demand: {constant: {wants: 200}}}
  - {count: 1, resource: api, demand: {constant: {wants: 200}}}",
    );
    let run = run_scenario(&scenario, 1).unwrap();
    assert_close(&held_at(&run, 40), &[100.0, 50.0, 50.0]);
}

#[test]
fn demands_of_one_client_have_priorities() {
    let scenario = with_clients(
        "PRIORITY_SHARE",
        "
  - count: 1
    uses:
      - {resource: db, priority: 2, demand: {constant: {wants: 30}}}
      - {resource: db, priority: 0, demand: {constant: {wants: 90}}}
  - {count: 1, resource: db, priority: 1, demand: {constant: {wants: 60}}}",
    );
    let run = run_scenario(&scenario, 1).unwrap();
    assert_close(&held_at(&run, 40), &[40.0, 60.0]);
}

#[test]
fn load_is_spread_over_running_clients() {
    let scenario = with_clients(
        "FAIR_SHARE",
        "
  - {count: 1, resource: db, load: front, start: {at: 0}}
  - {count: 3, resource: db, load: front, start: {at: 10}, stop: {at: 30}}
loads: [{name: front, demand: {constant: {wants: 120}}}]
faults: [{kind: pause_clients, at: 40, for: 5, clients: 1}]",
    );
    let run = run_scenario(&scenario, 1).unwrap();
    let wants = |second: usize| {
        let wants = run.samples[second].holders.iter().map(|it| it.wants);
        wants.collect::<Vec<f64>>()
    };
    assert_close(&wants(5), &[120.0, 0.0, 0.0, 0.0]);
    assert_close(&wants(20), &[30.0; 4]);
    assert_close(&wants(35), &[120.0, 0.0, 0.0, 0.0]);
    // Leases are released.
    assert_close(&held_at(&run, 35), &[100.0, 0.0, 0.0, 0.0]);
}

#[test]
fn changed_capacity_applies_from_its_second_on() {
    let scenario = with_clients(
        "FAIR_SHARE",
        "
  - {count: 4, resource: db, demand: {constant: {wants: 200}}}
changes:
  - {at: 20, template: '*', capacity: 40}
  - {at: 40, template: '*', capacity: 300}",
    );
    let run = run_scenario(&scenario, 1).unwrap();
    let at = |second: usize| {
        let sample = &run.samples[second];
        (sample.capacities[0], sample.resources[0].held.round())
    };
    assert_eq!(
        (at(19), at(30), at(50)),
        ((100.0, 100.0), (40.0, 40.0), (300.0, 300.0))
    );
    assert_eq!(run.report.overshoot_episodes, 0);
}

#[test]
fn each_scheme_limits_requests_in_its_way() {
    let admitted = |kind: &str| {
        let clients = "
  - {count: 1, resource: db, demand: {constant: {wants: 50}}, requests: even}
  - {count: 1, resource: db, demand: {constant: {wants: 150}}, requests: even}";
        let run = run_scenario(&with_clients(kind, clients), 1).unwrap();
        assert_eq!(run.report.overshoot_episodes, 0);
        let sum = |client: usize| {
            let samples = run.samples[30..60].iter();
            samples.map(|it| it.holders[client].used).sum::<f64>() / 30.0
        };
        (sum(0), sum(1))
    };
    #[track_caller]
    fn assert_near((small, large): (f64, f64), expected: (f64, f64), tolerance: f64) {
        let is_near =
            (small - expected.0).abs() < tolerance && (large - expected.1).abs() < tolerance;
        assert!(is_near, "{small} and {large}, not {expected:?}");
    }
    assert_near(admitted("FAIR_SHARE"), (50.0, 50.0), 2.0);
    assert_near(admitted("PROPORTIONAL_SHARE"), (50.0, 50.0), 2.0);
    assert_near(admitted("SUPPRESSION"), (25.0, 75.0), 5.0);
    assert_near(admitted("STATIC"), (50.0, 100.0), 2.0);
    assert_near(admitted("NO_ALGORITHM"), (50.0, 150.0), 2.0);
    let (small, large) = admitted("SHARED_BUCKET");
    assert!((90.0..=105.0).contains(&(small + large)), "{small} {large}");
}

/// Resources that are not divided beside one that is, each with its own limit.
#[test]
fn schemes_of_all_kinds_keep_their_limits_together() {
    let scenario = parse(
        "
seconds: 300
servers: {count: 3, election_lease: 3}
network: {delay: 0.01, jitter: 0.1, loss: 0.02, duplication: 0.02}
document:
  resources:
    - {identifier_glob: divided, capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 2}}
    - {identifier_glob: bucket, capacity: 100, algorithm: {kind: SHARED_BUCKET, lease_length: 20, refresh_interval: 2}}
    - {identifier_glob: suppressed, capacity: 100, algorithm: {kind: SUPPRESSION, lease_length: 20, refresh_interval: 2}}
    - {identifier_glob: static, capacity: 30, algorithm: {kind: STATIC, lease_length: 20, refresh_interval: 2}}
clients:
  - count: 4
    requests: random
    uses:
      - {resource: divided, demand: {constant: {wants: 40}}}
      - {resource: bucket, demand: {constant: {wants: 40}}}
      - {resource: suppressed, demand: {constant: {wants: 40}}}
      - {resource: static, demand: {constant: {wants: 40}}}
random_faults:
  kinds: [elect_master, crash_server, stop_server, pause_server, partition_server]
  every: 30
  for: 10",
    );
    for seed in 0..10 {
        let run = run_scenario(&scenario, seed).unwrap();
        assert_eq!(run.report.overshoot_episodes, 0, "seed {seed}");
        let steady = &run.samples[60..];
        let used = |resource: usize| {
            let used = steady.iter().map(|it| it.resources[resource].used);
            used.sum::<f64>() / steady.len() as f64
        };
        // Each holder may spend its copy of the bucket once more whenever the master changes.
        let buckets = 4.0 * 100.0 * run.report.masterships as f64 / steady.len() as f64;
        for (resource, most) in [(0, 101.0), (1, 101.0 + buckets), (2, 110.0)] {
            let used = used(resource);
            assert!(used <= most, "seed {seed}, resource {resource}: {used}");
        }
        let held = steady
            .iter()
            .flat_map(|it| it.holders.iter().skip(3).step_by(4));
        let most = held.map(|it| it.held).fold(0.0, f64::max);
        assert!(most <= 30.0 && most > 0.0, "seed {seed}: {most}");
    }
}

/// Learning mode is a safety rule, and a document can disable it.
#[test]
fn overshoots_are_found_without_learning_mode() {
    let text = "
seconds: 60
servers: {count: 2, election_lease: 2}
hints: false
document: {resources: [{identifier_glob: db, capacity: 100, algorithm: {kind: FAIR_SHARE,
  lease_length: 30, refresh_interval: 10, learning_mode_duration: 0}}]}
clients: [{count: 8, resource: db,
  demand: {random_walk: {start: 40, step: 1, every: 4}}}]
faults: [{kind: lose_master, at: 30, for: 3}]";
    let summary = run_seeds(&parse(text), 10);
    assert!(summary.overshoot_episodes > 0, "{summary:?}");
    assert!(summary.peak_share > 1.0, "{summary:?}");
    let failed = summary.first_failed.unwrap();
    let overshoot = failed.first_overshoot.unwrap();
    assert!(
        overshoot.second > 30.0 && overshoot.held > 100.0,
        "{overshoot:?}"
    );
}
