//! Constants of the layer's lease worker that were chosen by simulation.
//!
//! `docs/TUNING.md` has the tables. The runs behind them are in `lease/worker/tests/tuning`, which
//! varies these constants; a program always uses [`Tuning::DEFAULT`].

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tuning {
    /// The window of a measured demand in refresh intervals, so that the demand is neither stale
    /// nor jumpy.
    pub(crate) window: f64,
    /// The longest window in seconds.
    pub(crate) max_window: f64,
    /// The standard deviations by which a demand rises beyond noise, while requests run short.
    pub(crate) rise_deviations: f64,
    /// How soon a limiter that begins to run low is sampled again, in seconds. The time doubles
    /// while the shortage lasts, so that a permanent one costs no more samples than usual.
    pub(crate) first_fast_sample: f32,
    /// The least growth of the wants while requests are rejected and capacity is free.
    pub(crate) growth_while_denied: f64,
    /// Growth of a demand beyond the noise of a measured rate, as a factor.
    pub(crate) early_growth: f64,
    /// The pause between a regular request and an early one.
    pub(crate) min_early_pause: Duration,
    /// When a grown demand is reported again if the lease covers it without a surplus.
    pub(crate) confirm_rise_after: Duration,
    /// Less of the whole limit than this, given up for lack of demand, need not be reported before
    /// the next refresh.
    pub(crate) notable: f64,
    /// Refreshes come early by up to this part of the interval, so that a fleet is not in step.
    pub(crate) jitter: f64,
    /// The same for refreshes that a new master asks for sooner.
    pub(crate) new_master_jitter: f64,
    /// The longest first pause after a failure while a lease is missing.
    pub(crate) first_pause: Duration,
    /// The longest pause while a lease is missing. A server that rate limits new leases may ask for
    /// more: retrying sooner would only prolong that.
    pub(crate) max_pause_without_lease: Duration,
    /// The longest pause while every lease lasts, in refresh intervals.
    ///
    /// After an outage a fleet comes to one new master, which asks each holder to come again soon
    /// to confirm its claim. While nobody is in a hurry, no second of that should bring twice the
    /// requests of a calm one. Pauses between 0 and 1.5 intervals alone would bring 1.33 times as
    /// many; the holders that fail in the first interval of the outage add up to 0.6 at its end.
    /// The confirmations are spread by `new_master_jitter` for the same reason: `tests/sim/herd`
    /// counts both.
    pub(crate) calm_intervals: f64,
}

impl Tuning {
    pub(crate) const DEFAULT: Self = Self {
        window: 2.0,
        max_window: 10.0,
        rise_deviations: 2.2,
        first_fast_sample: 0.016,
        growth_while_denied: 2.0,
        early_growth: 1.2,
        min_early_pause: Duration::from_millis(20),
        confirm_rise_after: Duration::from_secs(1),
        notable: 0.05,
        jitter: 0.05,
        new_master_jitter: 0.5,
        first_pause: Duration::from_millis(100),
        max_pause_without_lease: Duration::from_secs(4),
        calm_intervals: 1.5,
    };
}

#[cfg(not(test))]
pub(crate) const fn tuning() -> Tuning {
    Tuning::DEFAULT
}

#[cfg(test)]
thread_local! {
    static VARIED: std::cell::Cell<Tuning> = const { std::cell::Cell::new(Tuning::DEFAULT) };
}

#[cfg(test)]
pub(crate) fn tuning() -> Tuning {
    VARIED.get()
}

/// Changes the constants of this thread.
#[cfg(test)]
pub(crate) fn vary(tuning: Tuning) {
    VARIED.set(tuning);
}
