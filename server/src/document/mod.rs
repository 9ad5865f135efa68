//! The document in force, and how it changes: at start, by a changed file, over HTTP.

pub(crate) mod change;
pub(crate) mod opened;
pub(crate) mod reload;
