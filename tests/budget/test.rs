//! Compares what a request, a key and a lease cost with the committed figures.

#[path = "../bench/server/leases.rs"]
mod leases;

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Of the program.
const CASES: [&str; 5] = ["constant", "keyed", "silent", "fields", "refused"];

const REQUESTS: u32 = 1_000;

const MARGIN: f64 = 0.05;

/// Between two doublings of the tables.
const KEYS: u32 = 98_304;

const CLIENTS: usize = 1_000;

/// Each client has a lease on each.
const RESOURCES: usize = 100;

const BYTES_MARGIN: f64 = 0.01;

const FIGURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/budget.json");

/// Files of the tests of this workspace, in the target directory.
const FILES: &str = env!("CARGO_TARGET_TMPDIR");

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figures {
    /// Another compiler may need other instructions.
    cargo: String,
    requests: BTreeMap<String, Cost>,
    /// Memory of a leased key in the layer, and of a lease in the control plane, in bytes.
    bytes: BTreeMap<String, u64>,
}

/// Of one request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cost {
    instructions: u64,
    allocations: f64,
}

impl Figures {
    fn measure() -> Self {
        let version = cargo(&["--version"]);
        let (program, memory) = (build_program("budget"), build_program("memory"));
        let requests = CASES.map(|case| (case.to_owned(), Cost::measure(&program, case)));
        Self {
            cargo: version.trim().to_owned(),
            requests: requests.into(),
            bytes: [
                ("key".to_owned(), bytes_per_key(&memory)),
                ("lease".to_owned(), bytes_per_lease()),
            ]
            .into(),
        }
    }

    /// A table of both figures of each case, and whether all are within the margin.
    fn compare(&self, committed: &Self) -> (String, bool) {
        let mut lines = vec![format!(
            "{:12}{:>12}{:>11}{:>10}{:>13}{:>11}",
            "request", "instructions", "committed", "change", "allocations", "committed"
        )];
        let mut within = true;
        for (case, measured) in &self.requests {
            let Some(committed) = committed.requests.get(case) else {
                lines.push(format!("{case:12}has no committed figures"));
                within = false;
                continue;
            };
            let change = measured.instructions as f64 / committed.instructions as f64 - 1.0;
            let note = if change > MARGIN {
                "  too many instructions"
            } else if change < -MARGIN {
                "  fewer instructions: update the file"
            } else if measured.allocations != committed.allocations {
                "  allocations differ"
            } else {
                ""
            };
            within &= note.is_empty();
            lines.push(format!(
                "{case:12}{:>12}{:>11}{:>+8.1} %{:>13}{:>11}{note}",
                measured.instructions,
                committed.instructions,
                change * 100.0,
                measured.allocations,
                committed.allocations,
            ));
        }
        lines.push(format!(
            "\n{:12}{:>12}{:>11}{:>10}",
            "one", "bytes", "committed", "change"
        ));
        for (what, measured) in &self.bytes {
            let committed = committed.bytes.get(what).copied().unwrap_or_default();
            let change = *measured as f64 / committed as f64 - 1.0;
            let note = if change > BYTES_MARGIN {
                "  too many bytes"
            } else if change < -BYTES_MARGIN {
                "  fewer bytes: update the file"
            } else {
                ""
            };
            within &= note.is_empty();
            let percent = change * 100.0;
            lines.push(format!(
                "{what:12}{measured:>12}{committed:>11}{percent:>+8.1} %{note}"
            ));
        }
        (lines.join("\n"), within)
    }
}

fn bytes_per_key(program: &Path) -> u64 {
    let output = Command::new(program)
        .arg(KEYS.to_string())
        .output()
        .expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let bytes: f64 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .expect("the program prints a number");
    bytes.round() as u64
}

/// After all clients have joined, and refreshed twice.
fn bytes_per_lease() -> u64 {
    let mut ledger = None;
    let used = allocation_counter::measure(|| {
        let ledger = ledger.insert(leases::ledger(CLIENTS).expect("a valid document"));
        let mut now = leases::START;
        for _ in 0..3 {
            for client in 0..CLIENTS {
                let request = leases::request(client, RESOURCES).expect("valid ids");
                drop(ledger.refresh(&request.into(), now));
            }
            now = now.after(leases::REFRESH_INTERVAL);
        }
    });
    used.bytes_current.unsigned_abs() / (CLIENTS * RESOURCES) as u64
}

impl Cost {
    fn measure(program: &Path, case: &str) -> Self {
        let profile = format!("{FILES}/{case}.callgrind");
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--toggle-collect=*measured*"])
            .arg(format!("--callgrind-out-file={profile}"))
            .arg(program)
            .args([case, &REQUESTS.to_string()])
            .output();
        let output = output.expect("valgrind runs; it is in the Debian package `valgrind`");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{case}: {errors}");
        let allocations = String::from_utf8_lossy(&output.stdout).trim().parse();
        let profile = fs::read_to_string(profile).expect("callgrind writes its profile");
        let instructions = profile
            .lines()
            .find_map(|line| line.strip_prefix("totals: ")?.parse::<u64>().ok());
        let instructions = instructions.expect("the profile has a sum") / u64::from(REQUESTS);
        assert!(instructions > 0, "{case}: callgrind found no `measured`");
        Self {
            instructions,
            allocations: allocations.expect("the program prints a number"),
        }
    }
}

/// Builds a program alone and with optimisation, so that neither other packages nor their
/// features change its instructions.
fn build_program(name: &str) -> PathBuf {
    let target = Path::new(FILES).parent().expect("it is in the target");
    let messages = cargo(&[
        "build",
        "--release",
        "--frozen",
        "--quiet",
        "--package=doorman-budget",
        "--bin",
        name,
        "--message-format=json-render-diagnostics",
        "--target-dir",
        target.to_str().expect("a path in UTF-8"),
    ]);
    let executable = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).expect("cargo writes JSON");
        Some(message.get("executable")?.as_str()?.into())
    });
    executable.expect("cargo names the program")
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).expect("cargo writes text")
}

#[test]
#[cfg_attr(
    not(target_arch = "x86_64"),
    ignore = "the committed figures are those of x86_64"
)]
fn costs_are_what_the_committed_figures_say() {
    let measured = Figures::measure();
    if env::var_os("DOORMAN_UPDATE").is_some() {
        let text = serde_json::to_string_pretty(&measured).unwrap();
        fs::write(FIGURES, text + "\n").unwrap();
    }
    let committed = fs::read_to_string(FIGURES).expect("the figures are committed");
    let committed: Figures = serde_json::from_str(&committed).unwrap();
    let (report, within) = measured.compare(&committed);
    let (percent, bytes_percent) = (MARGIN * 100.0, BYTES_MARGIN * 100.0);
    assert!(
        within,
        "costs differ from tests/budget/budget.json by more than {percent} % of the instructions or \
         {bytes_percent} % of the bytes:\n\n{report}\n\n\
         If that is meant, `DOORMAN_UPDATE=1 cargo test -p doorman-budget` rewrites the file. Do \
         that when they are lower, too, or a later rise hides in the difference.\n\
         `callgrind_annotate {FILES}/CASE.callgrind` shows where the instructions are.\n\
         The figures were committed with {}, and measured with {}.",
        committed.cargo, measured.cargo
    );
    // Not captured: the figures belong in the log of a passed run, too.
    writeln!(io::stderr(), "\n{report}").unwrap();
}
