//! Simulated time, and the clocks of the machines.
//!
//! In this folder `time` is simulated time, which no process can read. `now` and `local` are times
//! of one machine's clock.

use doorman_openapi::Moment;
use fastrand::Rng;

/// The largest difference between two clock rates, in parts per million.
const MAX_DRIFT: u64 = 50_000;
const MILLION: u64 = 1_000_000;

/// A machine's clock with its own origin and rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    origin: u64,
    /// Parts per million by which the clock is faster than simulated time.
    drift: u64,
}

impl Clock {
    /// A random clock. Half of the clocks have an extreme rate, because rules break there.
    pub(super) fn random(rng: &mut Rng) -> Self {
        let drift = match rng.u8(..4) {
            0 => 0,
            1 => MAX_DRIFT,
            _ => rng.u64(..=MAX_DRIFT),
        };
        let mut clock = Self { origin: 0, drift };
        clock.restart(rng);
        clock
    }

    /// A clock with a random rate up to so many parts faster than simulated time.
    pub(super) fn with_drift(drift: f64, rng: &mut Rng) -> Self {
        let drift = (MILLION as f64 * drift * rng.f64()) as u64;
        let mut clock = Self { origin: 0, drift };
        clock.restart(rng);
        clock
    }

    /// Begins anew.
    pub(super) fn restart(&mut self, rng: &mut Rng) {
        self.origin = rng.u64(1..1_000_000) * 1_000_000_000;
    }

    /// The reading at a simulated time.
    pub(super) fn local(self, time: Moment) -> Moment {
        let nanos = u128::from(time.as_nanos()) * u128::from(MILLION + self.drift);
        let local = u64::try_from(nanos / u128::from(MILLION)).unwrap_or(u64::MAX);
        Moment::from_nanos(self.origin.saturating_add(local))
    }

    /// The first simulated time with this reading.
    pub(super) fn time(self, local: Moment) -> Moment {
        if local == Moment::NEVER {
            return local;
        }
        let nanos = u128::from(local.as_nanos().saturating_sub(self.origin)) * u128::from(MILLION);
        let time = nanos.div_ceil(u128::from(MILLION + self.drift));
        Moment::from_nanos(u64::try_from(time).unwrap_or(u64::MAX))
    }
}

/// A capacity that expires.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ExpiringCapacity {
    pub(super) amount: f64,
    pub(super) expires: Moment,
}

impl ExpiringCapacity {
    /// The capacity at a time of the clock by which it expires.
    pub(super) fn at(&self, now: Moment) -> f64 {
        if now < self.expires { self.amount } else { 0.0 }
    }
}
