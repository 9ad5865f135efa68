//! Runs every target on what has been kept, and on what chance makes of it: so many inputs, the same at every run.
//!
//! `FUZZ_TIMES` makes it so many times as many, `FUZZ_SEED` others.

#![cfg(test)]

use std::{env, fs, panic, path::Path};

use doorman_tests::fuzz::{
    Mutator, answers, document, forwarded, globs, identifiers, keys, leases, replies, rules, traces,
};

/// What every target starts with, in the order of the names.
#[track_caller]
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Runs the target on one input, and leaves that in a file when it fails.
#[track_caller]
fn survives(target: &str, run: fn(&[u8]), input: &[u8]) {
    if let Err(cause) = panic::catch_unwind(|| run(input)) {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{target}.input"));
        fs::write(&file, input).unwrap();
        eprintln!(
            "{target} fails on {} (kept in {}; move it into the corpus)",
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
        survives(target, run, input);
    }
    let mut mutator = Mutator::new(number("FUZZ_SEED", 0));
    for _ in 0..inputs * number("FUZZ_TIMES", 1) {
        survives(target, run, &mutator.next(&corpus));
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

// As many as take some seconds all together, without optimisation.
targets! {
    answers: 5_000,
    document: 5_000,
    forwarded: 5_000,
    globs: 20_000,
    identifiers: 20_000,
    keys: 5_000,
    leases: 500,
    replies: 500,
    rules: 5_000,
    traces: 20_000,
}
