//! A model checker that runs the machines of Doorman.
//!
//! [`machine`] has the processes: the product's own [`Ledger`](doorman_core::ledger::Ledger),
//! [`Upstream`](doorman_core::upstream::Upstream) and
//! [`Holder`](doorman_holder::Holder). [`model`] has the states of a root, a node and their
//! clients, and all steps between them: requests that arrive late, twice or never, new masters, and
//! time. [`search`] tries all of them, breadth first, up to a depth.
//!
//! [`value`] decides which states of a process are the same, and [`tables`] computes each step of a
//! process once. [`rules`] lists the safety rules, and how the model finds that one is missing.

#![expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "indices are chosen from the processes that exist, and numbers are small"
)]

pub mod machine;
pub mod model;
pub mod rules;
pub mod search;
pub mod tables;
pub mod value;
