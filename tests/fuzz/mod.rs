//! Fuzz targets for all input that strangers can send.
//!
//! Each target takes any bytes. The test `fuzz` runs every target on its corpus and on seeded
//! mutations of it, for a few seconds. For a hundred times as many and other mutations:
//!
//! ```sh
//! FUZZ_TIMES=100 FUZZ_SEED=1 cargo test -p doorman-tests --test fuzz
//! ```
//!
//! It writes a failing input to a file. The same targets run under libFuzzer, which is guided by
//! coverage (`cargo install cargo-fuzz`, and a nightly compiler):
//!
//! ```sh
//! cd tests
//! cargo +nightly fuzz run document    # failing inputs are in fuzz/artifacts
//! cargo +nightly fuzz cmin document   # minimizes the corpus
//! ```
//!
//! An input that has failed stays in the corpus, under a name that describes the failure.

#![expect(clippy::panic, reason = "a panic fails the target")]

#[path = "targets/document.rs"]
pub mod document;
#[path = "targets/forwarded.rs"]
pub mod forwarded;
#[path = "targets/globs.rs"]
pub mod globs;
#[path = "targets/http_responses.rs"]
pub mod http_responses;
#[path = "targets/identifiers.rs"]
pub mod identifiers;
#[path = "targets/keys.rs"]
pub mod keys;
#[path = "targets/lease_responses.rs"]
pub mod lease_responses;
#[path = "targets/leases.rs"]
pub mod leases;
#[path = "targets/rules.rs"]
pub mod rules;
#[path = "targets/traces.rs"]
pub mod traces;

mod control_plane;
mod mutate;
mod refusal;

pub use mutate::Mutator;
