//! Gauges for direct use, without a layer: of one resource, or of one for each key.

use std::{sync::Arc, time::Duration};

use doorman_openapi::{Capacity, Unit};

use crate::{
    cost::Cost,
    direct::{DirectSettings, Keyed, One},
    fallback::Fallback,
    limiter::Registry,
    permit::Permit,
    refusal::Refusal,
};

/// Settings of a [`Gauge`] or [`KeyedGauge`]. A text is a resource with the default settings.
///
/// ```
/// use std::time::Duration;
/// use tower_doorman::{Doorman, GaugeSettings};
///
/// let doorman = Doorman::fixed([("tx", 10.0)]);
/// let transactions = doorman.gauge(GaugeSettings::new("tx").max_wait(Duration::from_secs(5)));
/// let permit = transactions.try_acquire();
/// assert!(permit.is_ok());
/// ```
#[derive(Debug, Clone)]
#[must_use = "settings do nothing without a gauge"]
pub struct GaugeSettings(DirectSettings);

impl GaugeSettings {
    /// The resource, as of [`Key::constant`](crate::Key::constant), with the default settings.
    pub fn new(resource: impl Into<String>) -> Self {
        let mut settings = DirectSettings::new(resource);
        settings.limiter.unit = Unit::Gauge;
        Self(settings)
    }

    /// The decision without a lease, by default [`Fallback::Pessimistic`]: nothing is admitted.
    pub fn fallback(mut self, fallback: Fallback) -> Self {
        self.0.limiter.fallback = fallback.into();
        self
    }

    /// The priority of the demand, as [`Limit::priority`](crate::Limit::priority).
    pub fn priority(mut self, priority: i32) -> Self {
        self.0.limiter.priority = priority.into();
        self
    }

    /// A fixed demand instead of the measured one, as [`Limit::wants`](crate::Limit::wants).
    pub fn wants(mut self, wants: Capacity) -> Self {
        self.0.limiter.wants = Some(wants).into();
        self
    }

    /// How long `acquire` waits for its units or a lease before it fails, by default without end.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.0.max_wait = Some(max_wait);
        self
    }
}

impl<T: AsRef<str> + ?Sized> From<&T> for GaugeSettings {
    fn from(resource: &T) -> Self {
        Self::new(resource.as_ref())
    }
}

impl From<String> for GaugeSettings {
    fn from(resource: String) -> Self {
        Self::new(resource)
    }
}

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

impl Gauge {
    pub(crate) fn new(registry: Arc<Registry>, settings: impl Into<GaugeSettings>) -> Self {
        Self(One::new(registry, settings.into().0))
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
    /// than the lease waits for a larger one, and for ever if the limit is smaller.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
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

impl KeyedGauge {
    pub(crate) fn new(registry: Arc<Registry>, settings: impl Into<GaugeSettings>) -> Self {
        Self(Keyed::new(registry, settings.into().0))
    }

    /// Waits for a unit of a key, as [`Gauge::acquire`]. An empty key is `(missing)`.
    ///
    /// # Errors
    /// As for [`Gauge::acquire`].
    ///
    /// # Panics
    /// As for [`Gauge::acquire`].
    ///
    /// # Cancel safety
    /// As for [`Gauge::acquire`].
    pub async fn acquire(&self, key: &str) -> Result<Permit, Refusal> {
        Ok(self.0.wait(key, Cost::ONE).await?.permit)
    }

    /// Waits for so many units of a key, as [`Gauge::acquire_many`].
    ///
    /// # Errors
    /// As for [`Gauge::acquire`].
    ///
    /// # Panics
    /// As for [`Gauge::acquire`].
    ///
    /// # Cancel safety
    /// As for [`Gauge::acquire`].
    pub async fn acquire_many(&self, key: &str, units: u32) -> Result<Permit, Refusal> {
        Ok(self.0.wait(key, cost(units)).await?.permit)
    }

    /// Takes a unit of a key if it is available now.
    ///
    /// # Errors
    /// [`Refusal`] when it is not. Nothing is in use then.
    pub fn try_acquire(&self, key: &str) -> Result<Permit, Refusal> {
        Ok(self.0.try_acquire(key, Cost::ONE)?.permit)
    }

    /// Takes so many units of a key if they are available now; 0 is 1.
    ///
    /// # Errors
    /// [`Refusal`] when they are not. Nothing is in use then.
    pub fn try_acquire_many(&self, key: &str, units: u32) -> Result<Permit, Refusal> {
        Ok(self.0.try_acquire(key, cost(units))?.permit)
    }
}

fn cost(units: u32) -> Cost {
    Cost::new(units.into()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
