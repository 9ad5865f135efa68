//! Dependencies of the two crates that services build, as cargo resolves them.

use std::{collections::HashMap, process::Command};

use serde_json::Value;

/// The minimum supported Rust version of the two crates.
const MSRV: (u32, u32) = (1, 88);

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .arg("--locked")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("cargo writes text")
}

/// Name and version of every package in the dependency tree.
fn tree(package: &str, features: &[&str]) -> Vec<(String, String)> {
    let common = ["tree", "-e", "normal", "--prefix", "none", "-f", "{p}"];
    let arguments = [&common[..], &["-p", package], features].concat();
    cargo(&arguments)
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let name = words.next()?;
            let version = words.next()?.strip_prefix('v')?;
            Some((name.to_owned(), version.to_owned()))
        })
        .collect()
}

fn names(features: &[&str]) -> Vec<String> {
    let tree = tree("tower-doorman", features).into_iter();
    tree.map(|(name, _)| name).collect()
}

#[test]
fn optional_dependencies_need_their_features() {
    let optional = ["axum", "metrics", "reqwest", "jsonwebtoken"];
    let bare = names(&["--no-default-features"]);
    assert!(bare.contains(&"http".to_owned()), "{bare:?}");
    for name in optional {
        assert!(!bare.contains(&name.to_owned()), "{name}");
    }
    assert!(!names(&[]).contains(&"jsonwebtoken".to_owned()));
    for (feature, package) in [
        ("axum", "axum"),
        ("jwt", "jsonwebtoken"),
        ("metrics", "metrics"),
        ("reqwest", "reqwest"),
    ] {
        let alone = names(&["--no-default-features", "--features", feature]);
        for name in optional {
            let expected = name == package;
            assert_eq!(
                alone.contains(&name.to_owned()),
                expected,
                "{feature}: {name}"
            );
        }
    }
}

#[test]
fn machines_without_io_depend_on_no_layer_and_no_client() {
    for package in ["doorman-holder", "doorman-core"] {
        let tree = tree(package, &[]);
        for name in ["hyper", "reqwest", "tower-doorman"] {
            assert!(tree.iter().all(|(it, _)| it != name), "{package}: {name}");
        }
    }
    let of_holder = tree("doorman-holder", &[]);
    assert!(of_holder.iter().all(|(name, _)| name != "tokio"));
}

#[test]
fn no_dependency_needs_a_newer_rust_version() {
    // Packages for other platforms may not be downloaded.
    let version = cargo(&["--version", "--verbose"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let platform = ["--filter-platform", host.unwrap()];
    let metadata = cargo(&[&["metadata", "--format-version", "1"], &platform[..]].concat());
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let rust_versions: HashMap<_, _> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|package| {
            let text = |field: &str| package[field].as_str().map(str::to_owned);
            Some(((text("name")?, text("version")?), text("rust_version")?))
        })
        .collect();
    for package in ["tower-doorman", "doorman-openapi"] {
        let tree = tree(package, &["--all-features"]);
        assert!(
            rust_versions.contains_key(&tree[0]),
            "{package} must state its rust-version"
        );
        for package in tree {
            let Some(version) = rust_versions.get(&package) else {
                continue;
            };
            let mut numbers = version.split('.').map(|number| number.parse().unwrap());
            let version = (numbers.next().unwrap(), numbers.next().unwrap_or(0));
            assert!(version <= MSRV, "{package:?} needs Rust {version:?}");
        }
    }
}
