//! The API does what its OpenAPI document says, whatever is sent: schemathesis makes requests of the document that a running server gives of
//! itself, good ones and bad ones, alone and in sequence, and holds every answer to it. `tests/api` has its settings, and the few refusals
//! that no schema can announce.
//!
//! What it sends is the same in every run. `DOORMAN_SCHEMATHESIS_EXAMPLES=1000` makes it send so many requests an operation, and
//! `DOORMAN_SCHEMATHESIS_SEED=7` others:
//!
//! ```sh
//! DOORMAN_SCHEMATHESIS_EXAMPLES=1000 DOORMAN_SCHEMATHESIS_SEED=7 cargo test -p doorman-tests --test it conformance -- --nocapture
//! ```

use std::{
    env, fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Process, curl, doorman, repository, tool};

/// How many requests an operation are made up at random, beside those that the document calls for.
const EXAMPLES: &str = "5";
const SEED: &str = "1";

/// The fewest that a run may have sent: one that sends less has not understood the document.
const FEWEST: u64 = 1_000;

const SECRET: &str = "a secret of more than thirty-two bytes, for tests";

/// A control plane with a fresh store, and a folder for its files.
struct Server {
    process: Process,
    address: String,
    home: TempDir,
}

impl Server {
    fn start(more: &[&str]) -> Self {
        let home = TempDir::new().expect("a folder for temporary files");
        fs::write(home.path().join("secret"), SECRET).expect("the folder is new");
        let limits =
            "resources: [{identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE}}]";
        fs::write(home.path().join("limits.yaml"), limits).expect("the folder is new");
        let data = home.path().join("data").display().to_string();
        let mut args = vec!["--listen", "127.0.0.1:0", "--data-dir", &data];
        // What is beside the point is out of the way: that callers are slowed down is tested elsewhere.
        args.extend(["--caller-rate", "off"]);
        let files = more
            .iter()
            .map(|it| it.replace("{home}", &home.path().display().to_string()));
        let files: Vec<_> = files.collect();
        args.extend(files.iter().map(String::as_str));
        let mut process = Process::start(&doorman(), &args);
        let address = process.wait_for_address();
        Self {
            process,
            address,
            home,
        }
    }

    /// One that asks for tokens.
    fn guarded() -> Self {
        Self::start(&["--auth-secret-file", "{home}/secret"])
    }

    /// A token of all scopes, bound as these arguments say.
    fn token(&self, bounds: &[&str]) -> String {
        let output = Command::new(doorman())
            .args(["token", "--sub", "schemathesis", "--secret-file"])
            .arg(self.home.path().join("secret"))
            .args([
                "--scope",
                "capacity,server,templates:read,templates:write,status:read",
            ])
            .args(bounds)
            .output()
            .expect("it runs");
        let token = String::from_utf8(output.stdout).expect("text");
        format!("Authorization: Bearer {}", token.trim())
    }

    /// Has schemathesis try it out with these further arguments: nothing it finds, and the server is sound after it.
    #[expect(clippy::print_stdout, reason = "how much was tried is worth knowing")]
    fn try_out(mut self, more: &[&str]) {
        let reports = self.home.path().join("reports");
        let output = schemathesis(&self.address, &reports, more);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{said}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let report = report(&reports);
        let (cases, phases) = (&report["test_cases"], &report["phases"]);
        println!("{cases}");
        let generated = cases["generated"].as_u64().expect("a number");
        assert!(generated >= FEWEST, "{report:#}");
        for phase in ["examples", "coverage", "fuzzing", "stateful"] {
            assert_eq!(phases[phase]["status"], "success", "{phase}: {phases}");
        }
        assert_eq!(
            report["operations"]["tested"],
            report["operations"]["total"]
        );

        assert_eq!(curl(&[&format!("{}/readyz", self.address)]).status, 200);
        let alarming = |line: &&String| line.contains("ERROR") || line.contains("panicked");
        let alarms: Vec<_> = self.process.output().iter().filter(alarming).collect();
        assert!(alarms.is_empty(), "{alarms:#?}");
    }
}

/// Runs all phases with all checks.
fn schemathesis(address: &str, reports: &Path, more: &[&str]) -> Output {
    let set = |name: &str, usually: &str| env::var(name).unwrap_or_else(|_| usually.to_owned());
    let output = Command::new(tool("schemathesis").join("bin/schemathesis"))
        .current_dir(repository().join("tests/api"))
        .args(["run", &format!("{address}/openapi.json"), "--checks", "all"])
        .args(["--phases", "examples,coverage,fuzzing,stateful"])
        .args([
            "--max-examples",
            &set("DOORMAN_SCHEMATHESIS_EXAMPLES", EXAMPLES),
        ])
        .args(["--seed", &set("DOORMAN_SCHEMATHESIS_SEED", SEED)])
        .args([
            "--generation-database",
            "none",
            "--continue-on-failure",
            "--no-color",
        ])
        .args(["--report", "json", "--report-json-path"])
        .arg(reports)
        .args(more)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output();
    output.expect("it is installed")
}

fn report(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("it was written");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_server_that_asks_nobody_who_they_are_is_as_its_document_says() {
    Server::start(&[]).try_out(&[]);
}

#[test]
fn a_server_is_as_its_document_says_to_a_token_that_may_do_everything() {
    let server = Server::guarded();
    let token = server.token(&[]);
    server.try_out(&["--header", &token]);
}

#[test]
fn a_server_is_as_its_document_says_to_the_token_of_a_tenant() {
    let server = Server::guarded();
    let bounds = [
        ["--client-id", "shop*,eu*"],
        ["--resources", "db,shop/*"],
        ["--services", "orders*"],
        ["--max-priority", "5"],
    ];
    let token = server.token(&bounds.concat());
    server.try_out(&["--header", &token]);
}

#[test]
fn a_server_is_as_its_document_says_to_whoever_has_no_token() {
    Server::guarded().try_out(&[]);
}

#[test]
fn a_server_that_follows_a_file_is_as_its_document_says() {
    Server::start(&["--config", "file:{home}/limits.yaml"]).try_out(&[]);
}
