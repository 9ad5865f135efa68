//! Clocks: the world's own, which nobody in it can read, and one a machine.

use doorman_openapi::Moment;
use fastrand::Rng;

/// A machine's clock, with an origin and a rate of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    origin: u64,
    /// By how many parts in a million it runs faster than the world's.
    fast: u64,
}

/// No two clocks run at rates further apart than 1.05.
const FASTEST: u64 = 50_000;
const MILLION: u64 = 1_000_000;

impl Clock {
    /// Any clock; half of them are as slow or as fast as can be, because that is where rules break.
    pub(super) fn any(chance: &mut Rng) -> Self {
        let fast = match chance.u8(..4) {
            0 => 0,
            1 => FASTEST,
            _ => chance.u64(..=FASTEST),
        };
        Self {
            origin: chance.u64(1..1_000_000) * 1_000_000_000,
            fast,
        }
    }

    /// What it shows at a moment of the world.
    pub(super) fn at(self, world: Moment) -> Moment {
        let nanos = u128::from(world.as_nanos()) * u128::from(MILLION + self.fast);
        let local = u64::try_from(nanos / u128::from(MILLION)).unwrap_or(u64::MAX);
        Moment::from_nanos(self.origin.saturating_add(local))
    }

    /// The first moment of the world at which it shows this.
    pub(super) fn world(self, local: Moment) -> Moment {
        if local == Moment::NEVER {
            return local;
        }
        let nanos = u128::from(local.as_nanos().saturating_sub(self.origin)) * u128::from(MILLION);
        let world = nanos.div_ceil(u128::from(MILLION + self.fast));
        Moment::from_nanos(u64::try_from(world).unwrap_or(u64::MAX))
    }
}
