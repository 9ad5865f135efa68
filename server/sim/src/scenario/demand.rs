//! Patterns of demand over time.

use serde::Deserialize;

use super::{InvalidScenario, check, check_seconds};

/// The largest demand.
pub(crate) const MAX_WANTS: f64 = 1e15;
/// The most arrivals that a Poisson demand counts at once.
const MAX_ARRIVALS: f64 = 1e5;

/// A demand over time. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum DemandPattern {
    Constant {
        wants: f64,
    },
    /// Changes every so often by up to a part of itself.
    RandomWalk {
        start: f64,
        step: f64,
        every: f64,
    },
    Sine {
        mean: f64,
        amplitude: f64,
        period: f64,
    },
    /// A base demand with peaks at random moments, so many seconds apart on average.
    Spikes {
        base: f64,
        peak: f64,
        every: f64,
        #[serde(rename = "for")]
        length: f64,
    },
    /// The rate of random arrivals, counted over such a time.
    Poisson {
        mean: f64,
        every: f64,
    },
}

impl DemandPattern {
    /// The largest demand, as far as it is known; that at the beginning for a random walk.
    pub(super) fn most(self) -> f64 {
        match self {
            Self::Constant { wants } => wants,
            Self::RandomWalk { start, .. } => start,
            Self::Sine {
                mean, amplitude, ..
            } => mean + amplitude,
            Self::Spikes { base, peak, .. } => base.max(peak),
            Self::Poisson { mean, .. } => mean,
        }
    }

    /// Whether it is constant or a random walk.
    pub(crate) fn is_steady(self) -> bool {
        matches!(self, Self::Constant { .. } | Self::RandomWalk { .. })
    }

    pub(super) fn check(&self, field: &str) -> Result<(), InvalidScenario> {
        let wants = |name: &str, value| check(&format!("{field}.{name}"), value, 0.0..=MAX_WANTS);
        let seconds = |name: &str, value| check_seconds(&format!("{field}.{name}"), value);
        match *self {
            Self::Constant { wants: value } => wants("constant.wants", value),
            Self::RandomWalk { start, step, every } => {
                wants("random_walk.start", start)?;
                check(&format!("{field}.random_walk.step"), step, 0.0..=1.0)?;
                seconds("random_walk.every", every)
            }
            Self::Sine {
                mean,
                amplitude,
                period,
            } => {
                wants("sine.mean", mean)?;
                check(&format!("{field}.sine.amplitude"), amplitude, 0.0..=mean)?;
                seconds("sine.period", period)
            }
            Self::Spikes {
                base,
                peak,
                every,
                length,
            } => {
                wants("spikes.base", base)?;
                wants("spikes.peak", peak)?;
                seconds("spikes.every", every)?;
                seconds("spikes.for", length)
            }
            Self::Poisson { mean, every } => {
                seconds("poisson.every", every)?;
                let most = MAX_ARRIVALS / every;
                check(&format!("{field}.poisson.mean"), mean, 0.0..=most)
            }
        }
    }
}
