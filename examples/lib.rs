//! What the examples share: a load that drives services over real connections, and counts what they answer.

pub mod load;

/// The code of the README, compiled as it stands there.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct Readme;
