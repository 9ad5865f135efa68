//! Helpers that import nothing else of this crate.

pub(crate) mod clock;
pub(crate) mod follow;
pub(crate) mod guarded_body;
pub(crate) mod log_throttle;
pub(crate) mod peer;
pub(crate) mod small_file;
#[cfg(test)]
pub(crate) mod testing;
