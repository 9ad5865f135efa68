//! What a limiter is told once, when its first user creates it.

use std::time::Duration;

use doorman_openapi::Capacity;

/// What counts for a limit while there is no lease on its resource: none has come yet, or it has run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fallback {
    /// The safe capacity that the control plane last told for the resource or its template; as long as it is unknown, requests pass.
    #[default]
    Safe,
    /// Requests pass.
    Optimistic,
    /// Requests are refused, or wait for a lease.
    Pessimistic,
}

/// The settings of one limiter: those of the limit that first used its resource.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LimiterSettings {
    /// How much of the rate may be saved up.
    pub(crate) burst: Burst,
    /// What counts without a lease.
    pub(crate) fallback: Fallback,
    /// The demand as stated; `None` when it is measured.
    pub(crate) wants: Option<Capacity>,
}

/// The size of a bucket, in seconds of its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Burst(f64);

impl Burst {
    pub(crate) fn new(time: Duration) -> Self {
        Self(time.as_secs_f64())
    }

    /// The tokens that a bucket of this rate holds: at least one, so that a rate below one request a burst still admits.
    pub(crate) fn tokens(self, rate: f64) -> f64 {
        (rate * self.0).max(1.0)
    }
}

impl Default for Burst {
    /// One second.
    fn default() -> Self {
        Self(1.0)
    }
}
