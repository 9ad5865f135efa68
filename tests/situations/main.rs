//! Measures the situations in which no request may be rejected while capacity is free.

use std::{
    env,
    io::{self, Write},
    path::Path,
    process::{Command, ExitCode},
};

use clap::{Parser, Subcommand};
use doorman_tests::situations::{Error, Outcome, Programs, SITUATIONS, Situation, Table, serve};

/// Measure situations with real processes, and compare the results with their targets.
///
/// The exit code is 0 when all targets are met.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the situations, each with the test that guards it in CI.
    List,
    /// Measure all situations; takes about twenty minutes.
    All,
    /// Run a service with the layer; its plan comes from the standard input.
    #[command(hide = true)]
    Service,
    /// Measure the situations of these names.
    #[command(external_subcommand)]
    Named(Vec<String>),
}

#[expect(clippy::print_stderr, reason = "a program reports its errors")]
fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("situations: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Action) -> Result<bool, Error> {
    let situations: Vec<_> = match command {
        Action::List => {
            let mut out = io::stdout().lock();
            for Situation {
                name, about, test, ..
            } in SITUATIONS
            {
                writeln!(out, "{name:<22} {about}\n{:<22} {}: {}", "", test.0, test.1)?;
            }
            return Ok(true);
        }
        Action::Service => return serve().map(|()| true),
        Action::All => SITUATIONS.iter().collect(),
        Action::Named(names) => names
            .iter()
            .map(|name| find(name))
            .collect::<Result<_, _>>()?,
    };
    measure(&situations)
}

fn find(name: &str) -> Result<&'static Situation, Error> {
    let named = SITUATIONS.iter().find(|situation| situation.name == name);
    named.ok_or_else(|| format!("no situation {name:?}; `list` shows all").into())
}

/// Measures, and prints the table. Returns whether all targets are met.
fn measure(situations: &[&Situation]) -> Result<bool, Error> {
    let programs = programs()?;
    let mut table = Table::default();
    let mut all_met = true;
    for situation in situations {
        progress(situation.name)?;
        for outcome in situation.measure(&programs)? {
            let Outcome {
                case,
                measured,
                met,
                ..
            } = &outcome;
            progress(&format!("  {case}: {measured}"))?;
            all_met &= *met;
            table.add(situation.name, &outcome);
        }
    }
    writeln!(io::stdout(), "{table}")?;
    Ok(all_met)
}

fn progress(line: &str) -> io::Result<()> {
    writeln!(io::stderr(), "{line}")
}

/// This program, and the control plane of the same profile beside it, built as the sources are.
fn programs() -> Result<Programs, Error> {
    let service = env::current_exe()?;
    let directory = service.parent().unwrap_or(Path::new("."));
    let mut cargo = Command::new("cargo");
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.args(["build", "--quiet", "--locked"]);
    // Together with this program, so that both use one build of their dependencies.
    cargo.args(["-p", "doorman", "-p", "doorman-tests"]);
    cargo.args(["--bin", "doorman", "--bin", "situations"]);
    if directory.ends_with("release") {
        cargo.arg("--release");
    }
    if let Some(target) = directory.parent() {
        cargo.env("CARGO_TARGET_DIR", target);
    }
    if !cargo.status()?.success() {
        return Err("the control plane does not build".into());
    }
    Ok(Programs {
        doorman: directory.join("doorman"),
        service,
    })
}
