//! Counts of writes to durable storage.

/// Writes of a bound, or of terms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BoundWrites {
    /// Successful ones.
    pub written: u64,
    /// Failed ones.
    pub failed: u64,
}
