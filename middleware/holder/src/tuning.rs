//! Constants of the holder that were chosen by simulation: `docs/TUNING.md` has the tables.

use std::time::Duration;

/// Constants of a [`Holder`](crate::Holder). Programs use [`DEFAULT`](Self::DEFAULT); simulations
/// vary them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tuning {
    /// Growth of a demand beyond the noise of a measured rate, as a factor.
    pub early_growth: f64,
    /// When a grown demand is reported again if the lease covers it without a surplus.
    pub confirm_rise_after: Duration,
    /// Less of the whole limit than this, given up for lack of demand, need not be reported before
    /// the next refresh.
    pub notable: f64,
    /// Refreshes come early by up to this part of the interval, so that a fleet is not in step.
    pub jitter: f64,
    /// The longest first pause after a failure while a lease is missing.
    pub first_pause: Duration,
    /// The longest pause while a lease is missing. A server that rate limits new leases may ask for
    /// more: retrying sooner would only prolong that.
    pub max_pause_without_lease: Duration,
    /// The longest pause while every lease lasts, in refresh intervals: no second of a fleet's
    /// return to a new master should bring twice its usual requests, which `tests/sim/herd` counts.
    pub calm_intervals: f64,
}

impl Tuning {
    /// The constants of every program.
    pub const DEFAULT: Self = Self {
        early_growth: 1.2,
        confirm_rise_after: Duration::from_secs(1),
        notable: 0.05,
        jitter: 0.05,
        first_pause: Duration::from_millis(100),
        max_pause_without_lease: Duration::from_secs(4),
        calm_intervals: 1.5,
    };
}
