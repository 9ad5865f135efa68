//! Rates for direct use, without a layer: of one resource, or of one for each key.

use std::{sync::Arc, time::Duration};

use doorman_openapi::Unit;

use crate::{
    charge::Charge,
    cost::Cost,
    direct::{DirectSettings, DirectUse, Keyed, One, WaitedFor},
    limiter::{Burst, Registry},
    outcome::Outcome,
    refusal::Refusal,
};

/// The rate of one resource, for code that asks before it acts: made by
/// [`Doorman::rate`](crate::Doorman::rate). Cheap to clone. Limits and rates on one resource share
/// its tokens, with the burst, fallback and wants of the first.
#[derive(Debug, Clone)]
pub struct Rate(One);

/// The rates of many keys, each a resource of its own: `tenant/acme` for the key `acme`, as of the
/// template `tenant/{header:x-tenant}`. Made by
/// [`Doorman::keyed_rate`](crate::Doorman::keyed_rate). Cheap to clone. Idle keys are forgotten,
/// and keys beyond [`Builder::max_keys`](crate::Builder::max_keys) share one rate.
#[derive(Debug, Clone)]
pub struct KeyedRate(Keyed);

/// Settings of a [`Rate`].
pub type RateSettings = DirectSettings<Rate>;

impl DirectUse for Rate {
    const UNIT: Unit = Unit::Rate;
}

impl WaitedFor for Rate {}

impl RateSettings {
    /// The size of the token bucket, as [`Limit::burst`](crate::Limit::burst).
    pub fn burst(mut self, burst: Duration) -> Self {
        self.limiter.burst = Burst::new(burst).into();
        self
    }
}

impl Rate {
    pub(crate) fn new(registry: Arc<Registry>, settings: impl Into<RateSettings>) -> Self {
        Self(One::new(registry, settings.into()))
    }

    /// Waits until the tokens are available, at most for
    /// [`max_wait`](RateSettings::max_wait); without a lease, until one comes or the fallback
    /// admits. Waiting callers are served in order.
    ///
    /// # Errors
    /// [`Refusal`] after that time, when no lease can come because the worker has ended, or when
    /// the resource is blocked for good, as one that [`Doorman::fixed`](crate::Doorman::fixed) does
    /// not name. Nothing is spent then.
    ///
    /// # Panics
    /// When it has to wait and there is no tokio runtime with a timer.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves the queue and returns the tokens.
    pub async fn wait(&self, cost: Cost) -> Result<(), Refusal> {
        self.0.wait(cost).await.map(drop)
    }

    /// Takes the tokens if they are available now.
    ///
    /// # Errors
    /// [`Refusal`] when they are not. Nothing is spent then.
    pub fn try_acquire(&self, cost: Cost) -> Result<(), Refusal> {
        self.0.try_acquire(cost).map(drop)
    }

    /// Waits as [`wait`](Self::wait), for an operation of which the cost is known only afterwards:
    /// [`Charge::settle`] corrects it.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait). Panics and cancel safety are the same.
    pub async fn charge(&self, cost: Cost) -> Result<Charge, Refusal> {
        Ok(self.0.wait(cost).await?.charge(cost))
    }

    /// Takes the tokens if they are available now, for a cost that [`Charge::settle`] corrects.
    ///
    /// # Errors
    /// [`Refusal`] when they are not. Nothing is spent then.
    pub fn try_charge(&self, cost: Cost) -> Result<Charge, Refusal> {
        Ok(self.0.try_acquire(cost)?.charge(cost))
    }

    /// States the outcome of an operation that was admitted, for the control plane; once for each,
    /// if at all. For a [`Charge`] use [`Charge::outcome`].
    pub fn outcome(&self, outcome: Outcome) {
        self.0.outcome(outcome);
    }
}

/// Errors, panics and cancel safety are those of the methods of [`Rate`]. An empty key is
/// `(missing)`.
#[expect(
    clippy::missing_errors_doc,
    reason = "the methods of `Rate` state them"
)]
impl KeyedRate {
    pub(crate) fn new(registry: Arc<Registry>, settings: impl Into<RateSettings>) -> Self {
        Self(Keyed::new(registry, settings.into()))
    }

    /// Waits for the tokens of a key, as [`Rate::wait`].
    pub async fn wait(&self, key: &str, cost: Cost) -> Result<(), Refusal> {
        self.0.wait(key, cost).await.map(drop)
    }

    /// Takes the tokens of a key if they are available now, as [`Rate::try_acquire`].
    pub fn try_acquire(&self, key: &str, cost: Cost) -> Result<(), Refusal> {
        self.0.try_acquire(key, cost).map(drop)
    }

    /// Waits for the tokens of a key, as [`Rate::charge`].
    pub async fn charge(&self, key: &str, cost: Cost) -> Result<Charge, Refusal> {
        Ok(self.0.wait(key, cost).await?.charge(cost))
    }

    /// Takes the tokens of a key if they are available now, as [`Rate::try_charge`].
    pub fn try_charge(&self, key: &str, cost: Cost) -> Result<Charge, Refusal> {
        Ok(self.0.try_acquire(key, cost)?.charge(cost))
    }

    /// States the outcome of an operation of a key, as [`Rate::outcome`].
    pub fn outcome(&self, key: &str, outcome: Outcome) {
        self.0.outcome(key, outcome);
    }
}

#[cfg(test)]
mod tests;
