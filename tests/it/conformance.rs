//! Conformance of the API to its OpenAPI document, checked by schemathesis.
//!
//! It generates valid and invalid requests, single and in sequence, and checks every response
//! against the document that the server serves. `tests/api` has its settings, and the validation
//! rules that no schema can express. Every run sends the same requests, unless these variables set
//! the number of examples per operation and the seed:
//!
//! ```sh
//! DOORMAN_SCHEMATHESIS_EXAMPLES=1000 DOORMAN_SCHEMATHESIS_SEED=7 \
//!     cargo test -p doorman-tests --test it conformance -- --nocapture
//! ```

use std::{
    env, fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Process, curl, doorman, repository, tool};

/// Random requests per operation, besides those that the document implies.
const EXAMPLES: &str = "5";
const SEED: &str = "1";

/// The least requests of a run that understood the document.
const MIN_REQUESTS: u64 = 1_000;

const SECRET: &str = "a secret of more than thirty-two bytes, for tests";

/// A control plane with a new store.
struct Server {
    process: Process,
    address: String,
    home: TempDir,
}

impl Server {
    fn start(more: &[&str]) -> Self {
        let home = TempDir::new().expect("a temporary directory");
        fs::write(home.path().join("secret"), SECRET).expect("the directory is new");
        let limits =
            "resources: [{identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE}}]";
        fs::write(home.path().join("limits.yaml"), limits).expect("the directory is new");
        let data = home.path().join("data").display().to_string();
        let mut args = vec!["--listen", "127.0.0.1:0", "--data-dir", &data];
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

    /// Starts a server that requires tokens.
    fn with_auth() -> Self {
        Self::start(&["--auth-secret-file", "{home}/secret"])
    }

    /// A header with a token of all scopes, with these restrictions.
    fn token(&self, restrictions: &[&str]) -> String {
        let output = Command::new(doorman())
            .args(["token", "--sub", "schemathesis", "--secret-file"])
            .arg(self.home.path().join("secret"))
            .args([
                "--scope",
                "capacity,server,templates:read,templates:write,status:read",
            ])
            .args(restrictions)
            .output()
            .expect("it runs");
        let token = String::from_utf8(output.stdout).expect("text");
        format!("Authorization: Bearer {}", token.trim())
    }

    /// Runs schemathesis; it must find nothing, and the server must stay healthy.
    #[expect(clippy::print_stdout, reason = "shown with --nocapture")]
    fn assert_conforms(mut self, more: &[&str]) {
        let reports = self.home.path().join("reports");
        let output = schemathesis(&self.address, &reports, more);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{stdout}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let report = report(&reports);
        let (cases, phases) = (&report["test_cases"], &report["phases"]);
        println!("{cases}");
        let generated = cases["generated"].as_u64().expect("a number");
        assert!(generated >= MIN_REQUESTS, "{report:#}");
        for phase in ["examples", "coverage", "fuzzing", "stateful"] {
            assert_eq!(phases[phase]["status"], "success", "{phase}: {phases}");
        }
        assert_eq!(
            report["operations"]["tested"],
            report["operations"]["total"]
        );

        assert_eq!(curl(&[&format!("{}/readyz", self.address)]).status, 200);
        let is_error = |line: &&String| line.contains("ERROR") || line.contains("panicked");
        let errors: Vec<_> = self.process.output().iter().filter(is_error).collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }
}

/// Runs all phases with all checks.
fn schemathesis(address: &str, reports: &Path, more: &[&str]) -> Output {
    let variable =
        |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let output = Command::new(tool("python").join("bin/schemathesis"))
        .current_dir(repository().join("tests/api"))
        .args(["run", &format!("{address}/openapi.json"), "--checks", "all"])
        .args(["--phases", "examples,coverage,fuzzing,stateful"])
        .args([
            "--max-examples",
            &variable("DOORMAN_SCHEMATHESIS_EXAMPLES", EXAMPLES),
        ])
        .args(["--seed", &variable("DOORMAN_SCHEMATHESIS_SEED", SEED)])
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
fn server_without_authentication_conforms() {
    Server::start(&[]).assert_conforms(&[]);
}

#[test]
fn server_conforms_for_unrestricted_token() {
    let server = Server::with_auth();
    let token = server.token(&[]);
    server.assert_conforms(&["--header", &token]);
}

#[test]
fn server_conforms_for_restricted_token() {
    let server = Server::with_auth();
    let restrictions = [
        ["--client-id", "shop*,eu*"],
        ["--resources", "db,shop/*"],
        ["--services", "orders*"],
        ["--max-priority", "5"],
    ];
    let token = server.token(&restrictions.concat());
    server.assert_conforms(&["--header", &token]);
}

#[test]
fn server_conforms_without_token() {
    Server::with_auth().assert_conforms(&[]);
}

#[test]
fn server_with_document_file_conforms() {
    Server::start(&["--config", "file:{home}/limits.yaml"]).assert_conforms(&[]);
}
