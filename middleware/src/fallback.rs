//! Behavior of a limit without a lease.

/// How a limit decides while it has no lease on its resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fallback {
    /// Apply the safe capacity last sent for the resource or its template; admit all while unknown.
    #[default]
    Safe,
    /// Admit every request.
    Optimistic,
    /// Reject requests, or let them wait for a lease.
    Pessimistic,
}
