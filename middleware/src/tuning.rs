//! Constants of the layer's lease worker that were chosen by simulation.
//!
//! `docs/TUNING.md` has the tables. The runs behind them are in `lease/worker/tests/tuning`, which
//! varies these constants; a program always uses [`Tuning::DEFAULT`].

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
    /// Those of the state machine.
    pub(crate) holder: doorman_holder::Tuning,
}

impl Tuning {
    pub(crate) const DEFAULT: Self = Self {
        window: 2.0,
        max_window: 10.0,
        rise_deviations: 2.2,
        first_fast_sample: 0.016,
        growth_while_denied: 2.0,
        holder: doorman_holder::Tuning::DEFAULT,
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
