//! Hostile input: what a stranger can send is read by the real code, and what must hold is asserted.
//!
//! Each target takes any bytes. The test `fuzz` runs all of them on the kept corpus, and on as many seeded mutations of it as take
//! some seconds; on a hundred times as many, and others, with
//!
//! ```sh
//! FUZZ_TIMES=100 FUZZ_SEED=1 cargo test -p doorman-tests --test fuzz
//! ```
//!
//! It leaves an input that fails in a file, and names it. The same targets run under libFuzzer, which follows the branches of the
//! code and so finds what chance does not (`cargo install cargo-fuzz`, and a nightly compiler):
//!
//! ```sh
//! cd tests
//! cargo +nightly fuzz run document    # what fails is left in fuzz/artifacts
//! cargo +nightly fuzz cmin document   # keeps those inputs that matter
//! ```
//!
//! An input that has failed once stays in the corpus, under a name that says what it showed.

#![expect(
    clippy::panic,
    reason = "a target that finds what must not be has failed"
)]

#[path = "targets/answers.rs"]
pub mod answers;
#[path = "targets/document.rs"]
pub mod document;
#[path = "targets/forwarded.rs"]
pub mod forwarded;
#[path = "targets/globs.rs"]
pub mod globs;
#[path = "targets/identifiers.rs"]
pub mod identifiers;
#[path = "targets/keys.rs"]
pub mod keys;
#[path = "targets/leases.rs"]
pub mod leases;
#[path = "targets/replies.rs"]
pub mod replies;
#[path = "targets/rules.rs"]
pub mod rules;
#[path = "targets/traces.rs"]
pub mod traces;

mod mutate;
mod plane;
mod refusal;

pub use mutate::Mutator;
