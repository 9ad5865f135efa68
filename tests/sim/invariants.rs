//! Checks the invariants of the simulation for many seeds.
//!
//! `cargo run --release -p doorman-tests --bin invariants -- --seeds 10000 --hours 1` takes about a
//! quarter of an hour on two cores. With `--aimed` it runs few faults at the moments that matter.

use std::{
    convert::Infallible,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
};

use clap::Parser;
use doorman_sim::{
    Extras, Plan, Rule, Scenario, Stats, Violation, check_scenario, on_all_cores, simulate,
};
use doorman_tests::sim::{Replay, aimed_scenario, describe};
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
    /// Add kinds of faults and holders to the usual ones: `all`, or names with commas between them.
    #[arg(long)]
    extras: Option<Extras>,
    /// Disable a safety rule: the simulation must then fail.
    #[arg(long)]
    without: Option<Rule>,
    /// Run the scenario of this file. All its clients use the resource `db`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["hours", "minutes", "aimed"])]
    schedule: Option<PathBuf>,
    /// Run scenarios with few faults, aimed at the ends of leases and elections. The seeds are the
    /// numbers of the scenarios.
    #[arg(long, conflicts_with_all = ["hours", "minutes"])]
    aimed: bool,
    /// Runs of each aimed scenario.
    #[arg(long, value_name = "N", default_value_t = 20, requires = "aimed")]
    runs: u64,
    /// Write the aimed scenario of `--seed` to this file, for `doorman simulate`.
    #[arg(long, value_name = "FILE", requires_all = ["aimed", "seed"])]
    yaml: Option<PathBuf>,
}

/// The runs of each seed.
enum Runs {
    Random,
    Schedule(PathBuf, Box<Scenario>),
    Aimed { runs: u64 },
}

impl Runs {
    fn new(args: &Args) -> Result<Self, String> {
        let Some(path) = &args.schedule else {
            return Ok(if args.aimed {
                Self::Aimed { runs: args.runs }
            } else {
                Self::Random
            });
        };
        let text = fs::read_to_string(path).map_err(|it| format!("{}: {it}", path.display()))?;
        let scenario = Scenario::parse(&text, None);
        let scenario = scenario.map_err(|it| format!("{}: {it}", path.display()))?;
        Ok(Self::Schedule(path.clone(), Box::new(scenario)))
    }

    fn run(&self, seed: u64, plan: &Plan) -> Result<Stats, Box<Violation>> {
        match self {
            Self::Random => simulate(seed, plan),
            Self::Schedule(_, scenario) => check_scenario(scenario, seed, plan),
            Self::Aimed { runs } => {
                let scenario = aimed_scenario(seed);
                let mut total = Stats::default();
                for run in 0..*runs {
                    total += check_scenario(&scenario, run, plan)?;
                }
                Ok(total)
            }
        }
    }

    fn describe(&self, seed: u64, violation: &Violation) -> String {
        let replay = match self {
            Self::Random => Replay::Random,
            Self::Schedule(path, _) => Replay::Schedule(path),
            Self::Aimed { .. } => Replay::Aimed(seed),
        };
        describe(violation, replay)
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let (runs, written) = match Runs::new(&args) {
        Ok(runs) => (runs, write_yaml(args.seed, args.yaml.as_deref())),
        Err(error) => {
            print_progress(&error);
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = written {
        print_progress(&error);
        return ExitCode::FAILURE;
    }
    let minutes = args.minutes.unwrap_or(10.0);
    let plan = Plan {
        seconds: args.hours.map_or(60.0 * minutes, |hours| 3600.0 * hours),
        without: args.without,
        extras: args.extras.unwrap_or_default(),
        trace: args.seed.is_some(),
    };
    let result = match args.seed {
        Some(seed) => runs
            .run(seed, &plan)
            .map_err(|it| vec![runs.describe(seed, &it)]),
        None => run_all(&runs, args.first, args.seeds, &plan),
    };
    let mut out = io::stdout().lock();
    let (code, written) = match result {
        Ok(stats) => (
            ExitCode::SUCCESS,
            writeln!(out, "All invariants held: {stats}."),
        ),
        Err(violations) => {
            let written = violations.iter().try_for_each(|it| writeln!(out, "{it}"));
            (ExitCode::FAILURE, written)
        }
    };
    // A closed pipe is a failure, not a panic.
    written.map_or(ExitCode::FAILURE, |()| code)
}

fn write_yaml(seed: Option<u64>, path: Option<&Path>) -> Result<(), String> {
    let (Some(seed), Some(path)) = (seed, path) else {
        return Ok(());
    };
    let text = doorman_tests::sim::aimed_yaml(seed);
    fs::write(path, text).map_err(|it| format!("{}: {it}", path.display()))
}

/// Runs the seeds on all cores. Returns the violations, described.
fn run_all(runs: &Runs, first: u64, seeds: u64, plan: &Plan) -> Result<Stats, Vec<String>> {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} seeds, {per_sec}, {eta} left");
    // Without a terminal the bar stays hidden, and a line a minute takes its place.
    let bar = ProgressBar::new(seeds).with_style(style.unwrap_or(ProgressStyle::default_bar()));
    let minutes = AtomicU64::new(0);
    let run = |seed| {
        let result = runs.run(seed, plan);
        let result = result.map_err(|it| runs.describe(seed, &it));
        bar.inc(1);
        if let Err(violation) = &result {
            bar.suspend(|| print_progress(violation));
        }
        let minute = bar.elapsed().as_secs() / 60;
        if minutes.fetch_max(minute, Ordering::Relaxed) < minute && bar.is_hidden() {
            print_progress(&format!(
                "{} of {seeds} seeds from {first} on, {} left",
                bar.position(),
                HumanDuration(bar.eta())
            ));
        }
        Ok::<_, Infallible>(result)
    };
    let Ok(results) = on_all_cores(first..first.saturating_add(seeds), run);
    bar.finish_and_clear();
    let (mut total, mut violations) = (Stats::default(), Vec::new());
    for result in results {
        match result {
            Ok(stats) => total += stats,
            Err(violation) => violations.push(violation),
        }
    }
    if violations.is_empty() {
        Ok(total)
    } else {
        Err(violations)
    }
}

/// A closed pipe ends the progress, not the run.
fn print_progress(line: &str) {
    writeln!(io::stderr(), "{line}").ok();
}
