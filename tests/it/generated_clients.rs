//! Clients generated from the committed OpenAPI documents, in Python and TypeScript.
//!
//! Every operation must become a call. `tests/api` has the pinned generators, their settings, and
//! the programs that use the clients.

use std::{collections::BTreeSet, fs, os::unix::fs::symlink, path::Path, process::Command};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{ControlPlane, repository, tool};

/// By the name of its client, each document.
const DOCUMENTS: [(&str, &str); 2] = [("doorman", "openapi.json"), ("agent", "agent.json")];

/// A new directory with the documents and files of `tests/api`.
fn home(files: &[&str]) -> TempDir {
    let home = TempDir::new().expect("a temporary directory");
    let documents = DOCUMENTS.map(|(_, name)| ("openapi", name));
    let files = files.iter().map(|name| ("tests/api", *name));
    for (folder, name) in documents.into_iter().chain(files) {
        let source = repository().join(folder).join(name);
        fs::copy(source, home.path().join(name)).expect("the file exists");
    }
    home
}

/// Runs a program, and returns its standard output.
fn run(directory: &Path, program: impl AsRef<Path>, args: &[&str]) -> String {
    let program = program.as_ref();
    let output = Command::new(program)
        .current_dir(directory)
        .args(args)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let stdout = String::from_utf8(output.stdout).expect("text");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{} {args:?}: {stdout}\n{stderr}",
        program.display()
    );
    stdout
}

/// Starts a server for a client: its document has terms other than the defaults.
fn server() -> ControlPlane {
    let home = TempDir::new().expect("a temporary directory");
    let store = home.path().join("doorman.db");
    let server = ControlPlane::start_on(home, &store);
    let template = r#"{"capacity": 1000, "per": 2, "minimum_refresh_interval": 0.5,
        "safe_capacity": 3, "algorithm": {"kind": "FAIR_SHARE", "lease_length": 20}}"#;
    assert_eq!(server.put("/v1/templates/api", template).status, 201);
    let all = server.put("/v1/templates/*", &template.replace(r#""per": 2, "#, ""));
    assert_eq!(all.status, 200, "{}", all.body);
    server
}

/// Asserts that a client has a call for each operation, by its name in the client's language.
fn assert_complete(printed: &str, key: impl Fn(&str) -> String, name: impl Fn(&str) -> String) {
    let calls = printed.lines().next().unwrap_or_default();
    let calls: Value = serde_json::from_str(calls).expect("JSON");
    for (client, name_of_document) in DOCUMENTS {
        let document = fs::read(repository().join("openapi").join(name_of_document));
        let document = document.expect("it is committed");
        let document: Value = serde_json::from_slice(&document).expect("JSON");
        let items = document["paths"].as_object().expect("paths").values();
        let operations = items.flat_map(|it| it.as_object().expect("operations").values());
        let expected: BTreeSet<_> = operations
            .map(|it| name(it["operationId"].as_str().expect("a name")))
            .collect();
        let calls = calls[key(client)].as_array().expect("names");
        let calls: BTreeSet<_> = calls
            .iter()
            .map(|it| it.as_str().expect("a name").to_owned())
            .collect();
        assert_eq!(calls, expected, "{name_of_document}");
    }
}

fn camel_case(name: &str) -> String {
    let (first, rest) = name.split_once('_').expect("several words");
    let rest = rest.split('_').map(|word| {
        let (initial, rest) = word.split_at(1);
        initial.to_uppercase() + rest
    });
    first.to_owned() + &rest.collect::<String>()
}

#[test]
fn generated_python_client_has_all_calls() {
    let home = home(&["client.py", "openapi-python-client.yaml"]);
    let bin = tool("python").join("bin");
    for (client, document) in DOCUMENTS {
        let output = format!("{client}_client");
        let args = [
            ["generate", "--path", document],
            ["--meta", "none", "--fail-on-warning"],
            [
                "--output-path",
                &output,
                "--config=openapi-python-client.yaml",
            ],
        ];
        run(
            home.path(),
            bin.join("openapi-python-client"),
            &args.concat(),
        );
    }
    let server = server();
    let printed = run(
        home.path(),
        bin.join("python"),
        &["client.py", server.address()],
    );
    assert_complete(&printed, |it| format!("{it}_client.api"), str::to_owned);
}

#[test]
fn generated_typescript_client_has_all_calls() {
    let files = [
        "client.ts",
        "package.json",
        "tsconfig.json",
        "openapi-ts.config.mjs",
    ];
    let home = home(&files);
    let modules = tool("generator").join("node_modules");
    symlink(&modules, home.path().join("node_modules")).expect("the directory is new");
    let bin = modules.join(".bin");
    run(
        home.path(),
        bin.join("openapi-ts"),
        &["--silent", "--no-log-file"],
    );
    run(home.path(), bin.join("tsc"), &[]);
    let server = server();
    let printed = run(home.path(), "node", &["built/client.js", server.address()]);
    assert_complete(&printed, str::to_owned, camel_case);
}
