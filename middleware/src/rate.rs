//! Rates for direct use, without a layer: of one resource, or of one for each key.

use std::{sync::Arc, time::Duration};

use doorman_openapi::Capacity;

use crate::{
    charge::Charge,
    cost::Cost,
    direct::{DirectSettings, Keyed, One},
    fallback::Fallback,
    limiter::{Burst, Registry},
    refusal::Refusal,
};

/// Settings of a [`Rate`] or [`KeyedRate`]. A text is a resource with the default settings.
///
/// ```
/// use std::time::Duration;
/// use tower_doorman::{Cost, Doorman, Fallback, RateSettings};
///
/// let doorman = Doorman::fixed([("db", 10.0)]);
/// let settings = RateSettings::new("db")
///     .fallback(Fallback::Safe)
///     .burst(Duration::from_secs(2))
///     .max_wait(Duration::from_secs(5));
/// assert!(doorman.rate(settings).try_acquire(Cost::ONE).is_ok());
/// ```
#[derive(Debug, Clone)]
#[must_use = "settings do nothing without a rate"]
pub struct RateSettings(DirectSettings);

impl RateSettings {
    /// The resource, as of [`Key::constant`](crate::Key::constant), with the default settings.
    pub fn new(resource: impl Into<String>) -> Self {
        Self(DirectSettings::new(resource))
    }

    /// The size of the token bucket, as [`Limit::burst`](crate::Limit::burst).
    pub fn burst(mut self, burst: Duration) -> Self {
        self.0.limiter.burst = Burst::new(burst).into();
        self
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

    /// How long `wait` waits for its tokens or a lease before it fails, by default without end.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.0.max_wait = Some(max_wait);
        self
    }
}

impl<T: AsRef<str> + ?Sized> From<&T> for RateSettings {
    fn from(resource: &T) -> Self {
        Self::new(resource.as_ref())
    }
}

impl From<String> for RateSettings {
    fn from(resource: String) -> Self {
        Self::new(resource)
    }
}

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

impl Rate {
    pub(crate) fn new(registry: Arc<Registry>, settings: impl Into<RateSettings>) -> Self {
        Self(One::new(registry, settings.into().0))
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
    /// As for [`wait`](Self::wait).
    ///
    /// # Panics
    /// As for [`wait`](Self::wait).
    ///
    /// # Cancel safety
    /// As for [`wait`](Self::wait).
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
}

impl KeyedRate {
    pub(crate) fn new(registry: Arc<Registry>, settings: impl Into<RateSettings>) -> Self {
        Self(Keyed::new(registry, settings.into().0))
    }

    /// Waits for the tokens of a key, as [`Rate::wait`]. An empty key is `(missing)`.
    ///
    /// # Errors
    /// As for [`Rate::wait`].
    ///
    /// # Panics
    /// As for [`Rate::wait`].
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves the queue and returns the tokens.
    pub async fn wait(&self, key: &str, cost: Cost) -> Result<(), Refusal> {
        self.0.wait(key, cost).await.map(drop)
    }

    /// Takes the tokens of a key if they are available now.
    ///
    /// # Errors
    /// [`Refusal`] when they are not. Nothing is spent then.
    pub fn try_acquire(&self, key: &str, cost: Cost) -> Result<(), Refusal> {
        self.0.try_acquire(key, cost).map(drop)
    }

    /// Waits for the tokens of a key, as [`Rate::charge`].
    ///
    /// # Errors
    /// As for [`Rate::wait`].
    ///
    /// # Panics
    /// As for [`Rate::wait`].
    ///
    /// # Cancel safety
    /// As for [`Rate::wait`].
    pub async fn charge(&self, key: &str, cost: Cost) -> Result<Charge, Refusal> {
        Ok(self.0.wait(key, cost).await?.charge(cost))
    }

    /// Takes the tokens of a key if they are available now, as [`Rate::try_charge`].
    ///
    /// # Errors
    /// [`Refusal`] when they are not. Nothing is spent then.
    pub fn try_charge(&self, key: &str, cost: Cost) -> Result<Charge, Refusal> {
        Ok(self.0.try_acquire(key, cost)?.charge(cost))
    }
}

#[cfg(test)]
mod tests;
