//! How fast it is, each figure beside an alternative that is measured in the same run: `cargo bench -p doorman-bench`, or one benchmark
//! of it with `--bench NAME`; `-- --quick` after it looks briefly.
//!
//! Another machine, or the same one an hour later, gives other times, but hardly another ratio. So the sides of a comparison take turns
//! ([`take_turns`]), and what counts is the median of the ratios of single rounds, which is printed beside its target ([`Table`]). Nothing
//! is asserted: a benchmark does not fail.
//!
//! Criterion and divan measure one side after the other, and compare with what an earlier run left on the disk; tango-bench alternates,
//! but between two builds of the same function. None of them measures requests a second of a process or bytes.

mod effort;
mod figures;
mod rounds;
mod table;

pub use self::{
    effort::Effort,
    figures::Figures,
    rounds::{Turn, nanos_per, take_turns, take_turns_of},
    table::{Row, Table, Target},
};
