//! Behavior of a limit without a lease.
//!
//! To add a fallback, extend [`Fallback`], the type of the wire in `openapi/src/rule.rs`, its name
//! in `config/src/parse/rule.rs`, and `ALL` in `limiter/settings.rs`. The compiler names the other
//! places. Describe it in `docs/LAYER.md` and `docs/RULES.md`.

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
