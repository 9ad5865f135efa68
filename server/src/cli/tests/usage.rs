//! The command line as it is told of, by itself and elsewhere.

use super::*;

#[test]
fn what_makes_no_sense_is_wrong_usage() {
    for line in [
        "doorman --listen nowhere",
        "doorman --config limits.yaml",
        "doorman --config etcd:/doorman",
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
    ] {
        let error = Cli::try_parse_from(line.split_whitespace()).unwrap_err();
        let told = misuse::misuse(&error);
        assert_eq!(told.code(), 2, "{line}");
        let told = told.to_string();
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(told.starts_with("doorman: "), "{told}");
    }
}

#[test]
fn what_is_wrong_with_a_command_line_is_told_in_one_line() {
    for (line, told) in [
        (
            "doorman get",
            "doorman: the following required arguments were not provided: --wants <N> <RESOURCE>; --help says what there is",
        ),
        (
            "doorman --max-leases 0",
            "doorman: invalid value '0' for '--max-leases <N>': must be a whole number of at least 1; --help says what there is",
        ),
        (
            "doorman --unmached refuse",
            "doorman: unexpected argument '--unmached' found; tip: a similar argument exists: '--unmatched'; --help says what there is",
        ),
    ] {
        let error = Cli::try_parse_from(line.split_whitespace()).unwrap_err();
        assert_eq!(misuse::misuse(&error).to_string(), told);
    }
}

#[test]
fn no_password_is_told_of_an_address_that_makes_no_sense() {
    for address in [
        "http://user:hunter2@issuer.example/jwks",
        "ftp://hunter2@issuer.example",
        "http://user:hun@ter2/hunter2@issuer.example/",
    ] {
        let error = Cli::try_parse_from(["doorman", "--auth-jwks", address]).unwrap_err();
        let told = misuse::misuse(&error).to_string();
        assert!(!told.contains("hunter2"), "{told}");
        assert!(told.contains("://…@issuer.example"), "{told}");
    }
}

/// The program with all its commands.
fn commands() -> Vec<clap::Command> {
    let mut program = Cli::command();
    program.build();
    let commands = program
        .get_subcommands()
        .filter(|it| it.get_name() != "help");
    commands.chain([&program]).cloned().collect()
}

#[test]
fn every_flag_is_a_variable_and_every_help_has_examples() {
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

/// Texts that tell operators of flags and variables, by their place in the repository.
const TOLD: [&str; 20] = [
    "README.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "docs/ALGORITHMS.md",
    "docs/AUTHENTICATION.md",
    "docs/CONTROL_PLANE.md",
    "docs/KEYS.md",
    "docs/LAYER.md",
    "docs/OPERATIONS.md",
    "docs/RULES.md",
    "docs/LEASES.md",
    "deploy/container/Dockerfile",
    "deploy/kubernetes/kustomization.yaml",
    "deploy/kubernetes/service-accounts.yaml",
    "deploy/kubernetes/settings.yaml",
    "deploy/kubernetes/statefulset.yaml",
    "deploy/systemd/auth.conf",
    "deploy/systemd/doorman.env",
    "deploy/systemd/tls.conf",
];

#[test]
fn what_operators_are_told_to_set_can_be_set() {
    let commands = commands();
    let arguments = || commands.iter().flat_map(clap::Command::get_arguments);
    let flags: Vec<_> = arguments().filter_map(clap::Arg::get_long).collect();
    let variables: Vec<_> = arguments()
        .filter_map(|it| it.get_env()?.to_str())
        // The first is no flag, as others on the machine could read it; the second is of the tests.
        .chain(["DOORMAN_TOKEN", "DOORMAN_HOSTILE_SECONDS"])
        .collect();
    let mut found = 0;
    for path in TOLD {
        let text = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = std::fs::read_to_string(text.join(path)).unwrap();
        let is_of = |char: char| char.is_ascii_uppercase() || char == '_';
        for (at, _) in text.match_indices("DOORMAN_") {
            let name = &text[at..];
            let name = &name[..name.find(|it| !is_of(it)).unwrap_or(name.len())];
            let all = name == "DOORMAN_";
            assert!(all || variables.contains(&name), "{name} in {path}");
            found += 1;
        }
        // Those of other programs stand behind their names.
        for (at, _) in text.match_indices("`--") {
            let name = &text[at + 3..];
            let is_of = |char: char| char.is_ascii_lowercase() || char == '-';
            let name = &name[..name.find(|it| !is_of(it)).unwrap_or(name.len())];
            let several = name == "auth-" && text[at..].starts_with("`--auth-…");
            assert!(several || flags.contains(&name), "--{name} in {path}");
            found += 1;
        }
    }
    assert!(found > 100, "{found}");
}

#[tokio::test]
async fn who_is_master_is_told() {
    with_server(async |address| {
        let told = ask(&address, "master").await.unwrap();
        assert!(told.starts_with(&format!("{address}\tnode-")), "{told}");
        let told = ask(&address, "master --json").await.unwrap();
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["mastership"]["master_address"], *address);
        let given = ask(&address, "release --client c --json").await.unwrap();
        assert_eq!(given, "{}\n");
    })
    .await;
}

#[tokio::test]
async fn a_document_is_imported_into_no_other_file_by_a_slip() {
    let home = TempDir::new().unwrap();
    let (new, old) = (limits(&home, 20), limits(&home, 30));
    let before = std::fs::read_to_string(&old).unwrap();
    let refused = run(&format!("doorman import {new} --store {old}"))
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("is not a Doorman store"),
        "{refused}"
    );
    assert_eq!(std::fs::read_to_string(&old).unwrap(), before);
}
