//! Checks the invariants of the simulation for many seeds.
//!
//! `cargo run --release -p doorman-tests --bin invariants -- --seeds 10000 --hours 1` takes about a
//! quarter of an hour on two cores.

use std::{
    io::{self, Write as _},
    num::NonZero,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use clap::Parser;
use doorman_server::simulation::{Plan, Rule, Stats, Violation, simulate};
use doorman_tests::sim::describe;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

/// Simulate the server's ledger and the layer's leases in virtual time, with random faults.
///
/// After each event the simulation checks that all holders together may use no more than the
/// capacity.
#[derive(Debug, Parser)]
struct Args {
    /// Number of seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run only this seed, and print the events before a violation.
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Simulated hours per seed.
    #[arg(long, conflicts_with = "minutes")]
    hours: Option<f64>,
    /// Simulated minutes per seed [default: 10].
    #[arg(long)]
    minutes: Option<f64>,
    /// Disable a safety rule: the simulation must then fail.
    #[arg(long)]
    without: Option<Rule>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let minutes = args.minutes.unwrap_or(10.0);
    let plan = Plan {
        seconds: args.hours.map_or(60.0 * minutes, |hours| 3600.0 * hours),
        without: args.without,
        trace: args.seed.is_some(),
    };
    let result = match args.seed {
        Some(seed) => simulate(seed, &plan).map_err(|violation| vec![*violation]),
        None => simulate_all(args.first, args.seeds, &plan),
    };
    let mut out = io::stdout().lock();
    let (code, written) = match result {
        Ok(stats) => (
            ExitCode::SUCCESS,
            writeln!(out, "All invariants held: {stats}."),
        ),
        Err(violations) => {
            let written = violations
                .iter()
                .try_for_each(|violation| writeln!(out, "{}", describe(violation)));
            (ExitCode::FAILURE, written)
        }
    };
    // A closed pipe is a failure, not a panic.
    written.map_or(ExitCode::FAILURE, |()| code)
}

/// Runs the seeds on all cores.
fn simulate_all(first: u64, seeds: u64, plan: &Plan) -> Result<Stats, Vec<Violation>> {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} seeds, {per_sec}, {eta} left");
    // Without a terminal the bar stays hidden, and a line a minute takes its place.
    let bar = ProgressBar::new(seeds).with_style(style.unwrap_or(ProgressStyle::default_bar()));
    let minutes = AtomicU64::new(0);
    let next = AtomicU64::new(first);
    let results = Mutex::new((Stats::default(), Vec::new()));
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first.saturating_add(seeds) {
                        return;
                    }
                    let result = simulate(seed, plan);
                    let violation = result.as_ref().err().map(|it| describe(it));
                    if let Ok(mut results) = results.lock() {
                        match result {
                            Ok(stats) => results.0 += stats,
                            Err(violation) => results.1.push(*violation),
                        }
                    }
                    bar.inc(1);
                    if let Some(violation) = violation {
                        bar.suspend(|| print_progress(&violation));
                    }
                    let minute = bar.elapsed().as_secs() / 60;
                    if minutes.fetch_max(minute, Ordering::Relaxed) < minute && bar.is_hidden() {
                        print_progress(&format!(
                            "{} of {seeds} seeds, {} left",
                            bar.position(),
                            HumanDuration(bar.eta())
                        ));
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    match results.into_inner() {
        Ok((stats, violations)) if violations.is_empty() => Ok(stats),
        Ok((_, violations)) => Err(violations),
        Err(poisoned) => Err(poisoned.into_inner().1),
    }
}

/// A closed pipe ends the progress, not the run.
fn print_progress(line: &str) {
    writeln!(io::stderr(), "{line}").ok();
}
