//! The TypeScript example, with types generated from the committed OpenAPI document.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{ControlPlane, repository, tool};

const RESOURCE: &str = "tenant/ts";
const LEASES: &str = "/v1/resources/tenant%2Fts/leases";

/// Generates the types, and compiles the example in a new directory.
fn build() -> TempDir {
    let home = TempDir::new().expect("a temporary directory");
    let sources = repository().join("examples/typescript");
    for name in ["lease.ts", "tsconfig.json", "package.json"] {
        fs::copy(sources.join(name), home.path().join(name)).expect("the example exists");
    }
    let modules = tool("typescript").join("node_modules");
    symlink(&modules, home.path().join("node_modules")).expect("the directory is new");
    let document = repository().join("openapi/openapi.json");
    let generate = [
        document.to_str().expect("a path in UTF-8"),
        "--default-non-nullable=false",
        "--output",
        "built/doorman.d.ts",
    ];
    run(
        home.path(),
        &modules.join(".bin/openapi-typescript"),
        &generate,
    );
    run(home.path(), &modules.join(".bin/tsc"), &[]);
    home
}

fn run(directory: &Path, program: &Path, args: &[&str]) {
    let output = Command::new(program)
        .current_dir(directory)
        .args(args)
        .output();
    let output = output.expect("Node is installed");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{}: {text}", program.display());
}

/// Clients that hold the resource, and their capacities.
fn holders(server: &ControlPlane) -> Vec<(String, f64)> {
    let page = server.get(LEASES);
    let leases = page["leases"].as_array().expect("a page of leases");
    let leased = leases.iter().map(|lease| {
        let client = lease["client_id"].as_str().expect("a client");
        let has = lease["has"].as_f64().expect("an amount");
        (client.to_owned(), has)
    });
    leased.filter(|(_, has)| *has > 0.0).collect()
}

#[test]
fn typescript_client_leases_edits_and_releases() {
    let built = build();
    let home = TempDir::new().expect("a temporary directory");
    let store = home.path().join("doorman.db");
    let server = ControlPlane::start_on(home, &store);
    let mut client = Command::new("node")
        .current_dir(built.path())
        .args(["built/lease.js", server.address(), RESOURCE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Node is installed");
    let mut lines = BufReader::new(client.stdout.take().expect("it is piped")).lines();
    let mut step = |name: &str| -> Value {
        let line = lines.next().unwrap_or_else(|| panic!("no step `{name}`"));
        let line: Value = serde_json::from_str(&line.expect("text")).expect("JSON");
        assert_eq!(line["step"], name, "{line}");
        line
    };

    let leased = step("leased");
    assert_eq!(leased["capacity"], 30);
    assert_eq!(
        (&leased["reason"], &leased["limit"]),
        (&"granted".into(), &1000.into())
    );
    let changed = step("changed");
    assert_eq!(changed["type"], "/problems/precondition-failed");
    assert_eq!(changed["late"], "changed by someone else");
    let refreshed = step("refreshed");
    assert_eq!(
        (&refreshed["capacity"], &refreshed["of"]),
        (&10.into(), &10.into())
    );
    assert_eq!(refreshed["template"], RESOURCE);

    // It holds the lease until its input ends.
    let name = leased["client_id"].as_str().expect("a string");
    assert_eq!(holders(&server), [(name.to_owned(), 10.0)]);
    let template = server.get("/v1/templates/tenant%2Fts");
    assert_eq!(template["capacity"], 10.0);

    let mut input = client.stdin.take().expect("it is piped");
    input.flush().expect("the client reads");
    drop(input);
    assert_eq!(step("released")["early"], true);
    let mut errors = String::new();
    let read = client
        .stderr
        .take()
        .expect("it is piped")
        .read_to_string(&mut errors);
    read.expect("text");
    assert!(client.wait().expect("it ran").success(), "{errors}");
    assert_eq!(holders(&server), []);
}
