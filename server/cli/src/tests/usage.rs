//! Errors of the command line, its help, and its documentation.

use std::path::PathBuf;

use super::*;

#[test]
fn invalid_arguments_are_wrong_usage() {
    for line in [
        "doorman --listen nowhere",
        "doorman --config limits.yaml",
        "doorman --config etcd:doorman/",
        "doorman --advertise 10.0.0.5:7300",
        "doorman --max-leases -1",
        "doorman --unmatched sometimes",
        "doorman --listen 127.0.0.1:0 show",
        "doorman get db",
        "doorman get db --wants -1",
        "doorman get db --wants NaN",
        "doorman show --server 127.0.0.1:7300",
        "doorman steal db",
        "doorman --max-leases 0",
        "doorman --max-connections 0",
        "doorman --unmached refuse",
        "doorman --etcd-endpoints 127.0.0.1:2379",
        "doorman --election-ttl 1",
        "doorman --election-ttl 61",
        "doorman --election-prefix doorman/",
    ] {
        let error = Cli::read(line.split_whitespace()).unwrap_err();
        let failure = Failure::from_usage(&error);
        assert_eq!(failure.exit_code(), 2, "{line}");
        let message = failure.to_string();
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.starts_with("doorman: "), "{message}");
    }
}

#[test]
fn usage_errors_are_one_line() {
    for (line, message) in [
        (
            "doorman get",
            "doorman: the following required arguments were not provided: --wants <N> <RESOURCE>; see --help",
        ),
        (
            "doorman --max-leases 0",
            "doorman: invalid value '0' for '--max-leases <N>': must be a whole number of at least 1; see --help",
        ),
        (
            "doorman show --limit 0",
            "doorman: invalid value '0' for '--limit <N>': must be a whole number of at least 1; see --help",
        ),
        (
            "doorman history --limit 0",
            "doorman: invalid value '0' for '--limit <N>': must be a whole number of at least 1; see --help",
        ),
        (
            "doorman export --revision x",
            "doorman: invalid value 'x' for '--revision <N>': must be a revision, such as 7; doorman history lists them; see --help",
        ),
        (
            "doorman rollback -1",
            "doorman: unexpected argument '-1' found; tip: to pass '-1' as a value, use '-- -1'; see --help",
        ),
        (
            "doorman rollback x",
            "doorman: invalid value 'x' for '<REVISION>': must be a revision, such as 7; doorman history lists them; see --help",
        ),
        (
            "doorman --unmached refuse",
            "doorman: unexpected argument '--unmached' found; tip: a similar argument exists: '--unmatched'; see --help",
        ),
    ] {
        let error = Cli::read(line.split_whitespace()).unwrap_err();
        assert_eq!(Failure::from_usage(&error).to_string(), message);
    }
    let error = Cli::read(["doorman", "set", "", "capacity=5"]).unwrap_err();
    let text = Failure::from_usage(&error).to_string();
    assert!(text.contains("<NAME>"), "{text}");
    assert!(text.contains("must be the glob of a template"), "{text}");
}

#[test]
fn usage_errors_redact_passwords() {
    for address in [
        "http://user:hunter2@issuer.example/jwks",
        "ftp://hunter2@issuer.example",
        "http://user:hun@ter2/hunter2@issuer.example/",
    ] {
        let error = Cli::read(["doorman", "--auth-jwks", address]).unwrap_err();
        let message = Failure::from_usage(&error).to_string();
        assert!(!message.contains("hunter2"), "{message}");
        assert!(message.contains("://…@issuer.example"), "{message}");
    }
}

/// The program and all its commands.
fn commands() -> Vec<clap::Command> {
    let mut program = with_variables(Cli::command());
    program.build();
    let commands = program
        .get_subcommands()
        .filter(|it| it.get_name() != "help");
    commands.chain([&program]).cloned().collect()
}

#[test]
fn every_flag_has_a_variable_and_every_help_examples() {
    for command in commands() {
        let name = command.get_name();
        let flags = command.get_arguments().filter_map(clap::Arg::get_long);
        for flag in flags.filter(|it| !["help", "version"].contains(it)) {
            let argument = command
                .get_arguments()
                .find(|it| it.get_long() == Some(flag));
            let variable = argument.and_then(clap::Arg::get_env);
            let variable = variable.unwrap_or_else(|| panic!("{name} --{flag}"));
            assert!(variable.to_string_lossy().starts_with("DOORMAN_"));
        }
        let examples = command.get_after_help().map(ToString::to_string);
        assert!(
            examples.is_some_and(|it| it.contains("Example") && it.contains("doorman")),
            "{name} --help"
        );
    }
}

/// Documents that name flags and variables, besides the files of `deploy`.
const DOCUMENTS: [&str; 15] = [
    "README.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "docs/AGENT.md",
    "docs/ALGORITHMS.md",
    "docs/AUTHENTICATION.md",
    "docs/CONTROL_PLANE.md",
    "docs/KEYS.md",
    "docs/LAYER.md",
    "docs/OPERATIONS.md",
    "docs/RULES.md",
    "docs/LEASES.md",
    "docs/SIMULATION.md",
    "docs/TREE.md",
];

/// The root of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files of `deploy`.
fn deployed() -> Vec<PathBuf> {
    let mut folders = vec![repository().join("deploy")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files
}

/// Variables that only tests read.
const TEST_VARIABLES: [&str; 7] = [
    "DOORMAN_HANDOVER_LEASES",
    "DOORMAN_HOSTILE_SECONDS",
    "DOORMAN_SCHEMATHESIS_EXAMPLES",
    "DOORMAN_SKIP_DISK_TESTS",
    "DOORMAN_FAILOVER_ROUNDS",
    "DOORMAN_STOP_ROUNDS",
    "DOORMAN_UPDATE",
];

#[test]
fn documented_flags_and_variables_exist() {
    let commands = commands();
    let arguments = || commands.iter().flat_map(clap::Command::get_arguments);
    let flags: Vec<_> = arguments().filter_map(clap::Arg::get_long).collect();
    let variables: Vec<_> = arguments()
        .filter_map(|it| it.get_env()?.to_str())
        // Has no flag.
        .chain(["DOORMAN_TOKEN"])
        .chain(TEST_VARIABLES)
        .collect();
    let mut found = 0;
    let documents = DOCUMENTS.map(|it| repository().join(it));
    for path in documents.into_iter().chain(deployed()) {
        let text = std::fs::read_to_string(&path).unwrap();
        let path = path.display();
        let in_name = |char: char| char.is_ascii_uppercase() || char == '_';
        for (at, _) in text.match_indices("DOORMAN_") {
            let name = &text[at..];
            let name = &name[..name.find(|it| !in_name(it)).unwrap_or(name.len())];
            let prefix = name == "DOORMAN_";
            assert!(prefix || variables.contains(&name), "{name} in {path}");
            found += 1;
        }
        // A flag of another program is written after its name.
        for (at, _) in text.match_indices("`--") {
            let name = &text[at + 3..];
            let in_name = |char: char| char.is_ascii_lowercase() || char == '-';
            let name = &name[..name.find(|it| !in_name(it)).unwrap_or(name.len())];
            let several = name == "auth-" && text[at..].starts_with("`--auth-…");
            assert!(several || flags.contains(&name), "--{name} in {path}");
            found += 1;
        }
    }
    assert!(found > 100, "{found}");
}

#[test]
fn deployed_settings_are_valid() {
    let mut found = 0;
    for path in deployed() {
        let text = std::fs::read_to_string(&path).unwrap();
        for (at, _) in text.match_indices("DOORMAN_") {
            let setting = text[at..].lines().next().unwrap();
            let in_name = |char: char| char.is_ascii_uppercase() || char == '_';
            let (name, rest) = setting.split_at(setting.find(|it| !in_name(it)).unwrap_or(0));
            // `NAME=VALUE` or, in YAML, `NAME: VALUE`.
            let value = rest.strip_prefix('=').or(rest.strip_prefix(": "));
            let value = value.and_then(|it| it.split_whitespace().next());
            let Some(value) = value.filter(|it| *it != "null") else {
                continue;
            };
            let flag = name.trim_start_matches("DOORMAN_").replace('_', "-");
            let flag = format!("--{}", flag.to_lowercase());
            let result = Cli::read(["doorman", "serve", &flag, value]);
            // Other flags that this one needs are elsewhere.
            let error = result
                .err()
                .filter(|error| error.kind() != clap::error::ErrorKind::MissingRequiredArgument);
            assert!(error.is_none(), "{}: {setting}: {error:?}", path.display());
            found += 1;
        }
    }
    assert!(found > 30, "{found}");
}

#[tokio::test]
async fn master_is_printed() {
    with_server(async |address| {
        let output = call(&address, "master").await.unwrap();
        assert!(
            rows(&output).starts_with(&format!("{address}\tnode-")),
            "{output}"
        );
        let output = call(&address, "master --json").await.unwrap();
        let output: serde_json::Value = serde_json::from_str(&output).unwrap();
        assert_eq!(output["mastership"]["master_address"], *address);
        let output = call(&address, "release --client c --json").await.unwrap();
        assert_eq!(output, "{\n  \"released\": 0\n}\n");
    })
    .await;
}

#[tokio::test]
async fn import_rejects_files_that_are_not_stores() {
    let home = TempDir::new().unwrap();
    let (new, old) = (limits(&home, 20), limits(&home, 30));
    let before = std::fs::read_to_string(&old).unwrap();
    let rejected = run(&format!("doorman import {new} --store {old}"))
        .await
        .unwrap_err();
    assert!(
        rejected.to_string().contains("is not a Doorman store"),
        "{rejected}"
    );
    assert_eq!(std::fs::read_to_string(&old).unwrap(), before);
}

#[test]
fn mistyped_variables_are_named() {
    let set = [
        "DOORMAN_DATADIR",
        "DOORMAN_DATA_DIR",
        "DOORMAN_SET_RULE",
        "DOORMAN_XYZ",
        "DOORMAN_PORT",
        "DOORMAN_PORT_7300_TCP_ADDR",
        "DOORMAN_AGENT_SERVICE_PORT_HTTP",
        "DOORMAN_SERVICE_HOST",
        "DOORMANS",
    ];
    let warnings = unknown_variables(
        &Cli::command(),
        set.map(|name| (name.into(), OsString::new())),
    );
    assert_eq!(
        warnings,
        [
            "no flag has the variable DOORMAN_DATADIR; did you mean DOORMAN_DATA_DIR?",
            "no flag has the variable DOORMAN_XYZ",
        ]
    );
}
