//! Runs every fuzz target on its corpus, and on a fixed number of seeded mutations.
//!
//! `FUZZ_TIMES` multiplies the number, `FUZZ_SEED` changes the mutations.

#![cfg(test)]

use std::{env, fs, panic, path::Path};

use doorman_tests::fuzz::{
    Mutator, document, forwarded, globs, http_responses, identifiers, keys, lease_responses,
    leases, rules, traces,
};

/// The corpus of a target, sorted by file name.
#[track_caller]
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Runs the target on one input, and writes it to a file when it fails.
#[track_caller]
fn run_input(target: &str, run: fn(&[u8]), input: &[u8]) {
    if let Err(cause) = panic::catch_unwind(|| run(input)) {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{target}.input"));
        fs::write(&file, input).unwrap();
        eprintln!(
            "{target} fails on {} (saved as {}; move it into the corpus)",
            input.escape_ascii(),
            file.display()
        );
        panic::resume_unwind(cause);
    }
}

#[track_caller]
fn fuzz(target: &str, run: fn(&[u8]), inputs: u64) {
    let corpus = corpus(target);
    assert!(!corpus.is_empty());
    for input in &corpus {
        run_input(target, run, input);
    }
    let mut mutator = Mutator::new(number("FUZZ_SEED", 0));
    for _ in 0..inputs * number("FUZZ_TIMES", 1) {
        run_input(target, run, &mutator.next(&corpus));
    }
}

macro_rules! targets {
    ($($target:ident: $inputs:literal,)*) => {
        $(
            #[test]
            fn $target() {
                fuzz(stringify!($target), $target::run, $inputs);
            }
        )*
    };
}

// These take some seconds in all without optimisation.
targets! {
    document: 5_000,
    forwarded: 5_000,
    globs: 20_000,
    http_responses: 500,
    identifiers: 20_000,
    keys: 5_000,
    lease_responses: 5_000,
    leases: 500,
    rules: 5_000,
    traces: 20_000,
}
