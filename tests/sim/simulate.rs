//! Runs the simulation over many seeds, for as long as one likes.

use std::{
    io::Write as _,
    num::NonZero,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use clap::Parser;
use doorman_tests::sim::{Plan, Rule, Tally, Violation, play};
use indicatif::{ProgressBar, ProgressStyle};

/// Runs the books of the control plane and the leasing side of the layer in virtual time, with everything that can go wrong, and
/// checks at every instant that what the holders believe they may use is within the capacity.
#[derive(Debug, Parser)]
struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run this one alone, and tell what happened before a violation.
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Simulated hours a seed.
    #[arg(long, conflicts_with = "minutes")]
    hours: Option<f64>,
    /// Simulated minutes a seed [default: 10].
    #[arg(long)]
    minutes: Option<f64>,
    /// Do without a rule: the simulation must then fail.
    #[arg(long)]
    without: Option<Rule>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let minutes = args.minutes.unwrap_or(10.0);
    let plan = Plan {
        seconds: args.hours.map_or(60.0 * minutes, |hours| 3600.0 * hours),
        without: args.without,
        traced: args.seed.is_some(),
    };
    let result = match args.seed {
        Some(seed) => play(seed, &plan).map_err(|violation| vec![*violation]),
        None => play_all(args.first, args.seeds, &plan),
    };
    let mut out = std::io::stdout().lock();
    let (code, written) = match result {
        Ok(tally) => (ExitCode::SUCCESS, writeln!(out, "The limit held: {tally}.")),
        Err(violations) => {
            let written = violations
                .iter()
                .try_for_each(|violation| writeln!(out, "{violation}"));
            (ExitCode::FAILURE, written)
        }
    };
    // Whoever reads may have gone away.
    written.map_or(ExitCode::FAILURE, |()| code)
}

/// Runs the seeds on all processors.
fn play_all(first: u64, seeds: u64, plan: &Plan) -> Result<Tally, Vec<Violation>> {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} seeds, {per_sec}, {eta} left");
    // It draws nothing where there is no terminal.
    let bar = ProgressBar::new(seeds).with_style(style.unwrap_or(ProgressStyle::default_bar()));
    let next = AtomicU64::new(first);
    let results = Mutex::new((Tally::default(), Vec::new()));
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first.saturating_add(seeds) {
                        return;
                    }
                    let result = play(seed, plan);
                    if let Ok(mut results) = results.lock() {
                        match result {
                            Ok(tally) => results.0 += tally,
                            Err(violation) => results.1.push(*violation),
                        }
                    }
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    match results.into_inner() {
        Ok((tally, violations)) if violations.is_empty() => Ok(tally),
        Ok((_, violations)) => Err(violations),
        Err(poisoned) => Err(poisoned.into_inner().1),
    }
}
