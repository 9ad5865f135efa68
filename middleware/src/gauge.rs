//! Gauges for direct use, without a layer: of one resource, or of one for each key.

use std::sync::Arc;

use doorman_openapi::Unit;

use crate::{
    cost::Cost,
    direct::{DirectSettings, DirectUse, Keyed, One, WaitedFor},
    limiter::Registry,
    permit::Permit,
    refusal::Refusal,
};

/// A limit on what is in flight at once, for code that asks before it acts: made by
/// [`Doorman::gauge`](crate::Doorman::gauge). Cheap to clone. Limits and gauges on one resource
/// share its units, with the fallback and wants of the first.
///
/// ```
/// use tower_doorman::Doorman;
///
/// # async fn run() -> Result<(), tower_doorman::Refusal> {
/// let transactions = Doorman::fixed([("tx", 10.0)]).gauge("tx");
/// let permit = transactions.acquire().await?;
/// // At most ten at once come to here.
/// drop(permit);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Gauge(One);

/// The gauges of many keys, each a resource of its own: `tenant/acme` for the key `acme`. Made by
/// [`Doorman::keyed_gauge`](crate::Doorman::keyed_gauge). Cheap to clone. Keys of which nothing is
/// in use are forgotten, and keys beyond [`Builder::max_keys`](crate::Builder::max_keys) share one
/// gauge.
#[derive(Debug, Clone)]
pub struct KeyedGauge(Keyed);

/// Settings of a [`Gauge`].
pub type GaugeSettings = DirectSettings<Gauge>;

impl DirectUse for Gauge {
    const UNIT: Unit = Unit::Gauge;
}

impl WaitedFor for Gauge {}

impl Gauge {
    pub(crate) fn new(registry: Arc<Registry>, settings: impl Into<GaugeSettings>) -> Self {
        Self(One::new(registry, settings.into()))
    }

    /// Waits for one unit, which is given back when the permit is dropped. It waits at most for
    /// [`max_wait`](GaugeSettings::max_wait); without a lease, until one comes or the fallback
    /// admits. Waiting callers are served in order.
    ///
    /// # Errors
    /// [`Refusal`] after that time, when no lease can come because the worker has ended, or when
    /// the resource is blocked for good, as one that [`Doorman::fixed`](crate::Doorman::fixed) does
    /// not name. Nothing is in use then.
    ///
    /// # Panics
    /// When it has to wait and there is no tokio runtime with a timer.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves the queue and gives the unit back.
    pub async fn acquire(&self) -> Result<Permit, Refusal> {
        Ok(self.0.wait(Cost::ONE).await?.permit)
    }

    /// Waits for so many units at once, as [`acquire`](Self::acquire); 0 is 1. A request for more
    /// than the lease waits for a larger one, outside of the queue, and for ever if the limit is
    /// smaller.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire). Panics and cancel safety are the same.
    pub async fn acquire_many(&self, units: u32) -> Result<Permit, Refusal> {
        Ok(self.0.wait(cost(units)).await?.permit)
    }

    /// Takes one unit if it is available now.
    ///
    /// # Errors
    /// [`Refusal`] when it is not. Nothing is in use then.
    pub fn try_acquire(&self) -> Result<Permit, Refusal> {
        Ok(self.0.try_acquire(Cost::ONE)?.permit)
    }

    /// Takes so many units if they are available now; 0 is 1.
    ///
    /// # Errors
    /// [`Refusal`] when they are not. Nothing is in use then.
    pub fn try_acquire_many(&self, units: u32) -> Result<Permit, Refusal> {
        Ok(self.0.try_acquire(cost(units))?.permit)
    }
}

/// Errors, panics and cancel safety are those of the methods of [`Gauge`]. An empty key is
/// `(missing)`.
#[expect(
    clippy::missing_errors_doc,
    reason = "the methods of `Gauge` state them"
)]
impl KeyedGauge {
    pub(crate) fn new(registry: Arc<Registry>, settings: impl Into<GaugeSettings>) -> Self {
        Self(Keyed::new(registry, settings.into()))
    }

    /// Waits for a unit of a key, as [`Gauge::acquire`].
    pub async fn acquire(&self, key: &str) -> Result<Permit, Refusal> {
        self.acquire_many(key, 1).await
    }

    /// Waits for so many units of a key, as [`Gauge::acquire_many`].
    pub async fn acquire_many(&self, key: &str, units: u32) -> Result<Permit, Refusal> {
        Ok(self.0.wait(key, cost(units)).await?.permit)
    }

    /// Takes a unit of a key if it is available now, as [`Gauge::try_acquire`].
    pub fn try_acquire(&self, key: &str) -> Result<Permit, Refusal> {
        self.try_acquire_many(key, 1)
    }

    /// Takes so many units of a key if they are available now, as [`Gauge::try_acquire_many`].
    pub fn try_acquire_many(&self, key: &str, units: u32) -> Result<Permit, Refusal> {
        Ok(self.0.try_acquire(key, cost(units))?.permit)
    }
}

fn cost(units: u32) -> Cost {
    Cost::new(units.into()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
