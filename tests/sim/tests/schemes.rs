//! Every scheme with growing and restarting fleets, and with a small limit.
//!
//! The tables of docs/ALGORITHMS.md:
//! `cargo test -p doorman-tests --test sim schemes -- --ignored --nocapture`

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use doorman_sim::{Amounts, Run, Scenario, run_scenario};

const SCHEMES: [&str; 7] = [
    "FAIR_SHARE",
    "PROPORTIONAL_SHARE",
    "PRIORITY_SHARE",
    "SHARED_BUCKET",
    "SUPPRESSION",
    "STATIC",
    "NO_ALGORITHM",
];

/// Runs a scenario of the examples with another algorithm.
fn run(name: &str, scheme: &str) -> Run {
    let path = format!(
        "{}/../examples/scenarios/{name}.yaml",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.replace("kind: FAIR_SHARE", &format!("kind: {scheme}"));
    run_scenario(&Scenario::parse(&text, None).unwrap(), 1).unwrap()
}

/// The part of the requests that is rejected from a second on, before another.
fn rejected(run: &Run, from: f64, until: f64) -> f64 {
    let samples = run.samples.iter();
    let samples = samples.filter(|it| from <= it.second && it.second < until);
    let mut sum = Amounts::default();
    for amounts in samples.flat_map(|it| &it.resources) {
        sum += *amounts;
    }
    sum.rejected / (sum.used + sum.rejected)
}

fn percent(share: f64) -> String {
    format!("{:.3} %", 100.0 * share)
}

fn most_leased(run: &Run) -> String {
    format!("{:.0} %", 100.0 * run.report.peak_share)
}

#[test]
fn rolling_restart_rejects_hardly_any_requests() {
    let run = run("rolling-restart", "FAIR_SHARE");
    assert!(rejected(&run, 15.0, 91.0) < 1e-3, "{:?}", run.report);
    assert!(run.report.peak_share <= 1.0 + 1e-9, "{:?}", run.report);
}

#[test]
#[ignore = "takes a minute, and prints tables for the guide"]
fn tables_of_the_guide() {
    println!("| scheme | first 3: start | 300 start | afterwards | most leased |");
    for scheme in SCHEMES {
        let run = run("scale-up", scheme);
        let [start, growth, afterwards] = [(0.0, 20.0), (20.0, 33.0), (33.0, 61.0)]
            .map(|(from, until)| percent(rejected(&run, from, until)));
        let most = most_leased(&run);
        println!("| `{scheme}` | {start} | {growth} | {afterwards} | {most} |");
    }
    println!("\n| scheme | 300 start | restart | most leased |");
    for scheme in SCHEMES {
        let run = run("rolling-restart", scheme);
        let [start, restart] =
            [(0.0, 20.0), (20.0, 91.0)].map(|(from, until)| percent(rejected(&run, from, until)));
        println!(
            "| `{scheme}` | {start} | {restart} | {} |",
            most_leased(&run)
        );
    }
    println!("\n| scheme | rejected | most leased | lease requests per second |");
    for scheme in SCHEMES {
        let run = run("small-limit", scheme);
        let rejected = percent(run.report.rejected_share);
        let seconds = run.samples.last().map_or(1.0, |it| it.second);
        let requests = run.report.requests as f64 / seconds;
        let most = most_leased(&run);
        println!("| `{scheme}` | {rejected} | {most} | {requests:.0} |");
    }
}
