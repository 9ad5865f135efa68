//! The leased capacity of a resource, for code without requests.

use std::{pin::pin, sync::Arc, time::Duration};

use doorman_openapi::{Capacity, Moment, Unit};
use tokio::time::sleep;

use crate::{
    direct::{DirectSettings, DirectUse, One},
    limiter::Registry,
};

/// The longest sleep: timers stand still while the machine is suspended, but leases end.
const MAX_SLEEP: Duration = Duration::from_secs(5);

/// A part of a resource for code without requests, such as a pool of workers or a batch job, that
/// keeps to the leased capacity by itself. Made by [`Doorman::lease`](crate::Doorman::lease). Cheap
/// to clone.
///
/// The capacity is that of this process. Limits on the same resource spend it, too, and the wants
/// and fallback of the first of them apply.
///
/// ```
/// use tower_doorman::{Capacity, Doorman};
///
/// # async fn run(doorman: Doorman) -> Result<(), Box<dyn std::error::Error>> {
/// let lease = doorman.lease("db");
/// lease.set_wants(Capacity::new(50.0)?);
/// let mut watch = lease.watch();
/// loop {
///     let leased = watch.changed().await;
///     println!("{} a second", leased.per_second());
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "the lease is released when this is dropped"]
pub struct Lease(One);

/// The capacity that a process may use of a resource.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LeasedCapacity {
    /// The amount, in the resource's own unit: in so many [seconds](Self::per), or at once for a
    /// gauge. Infinite if it is unlimited.
    pub amount: f64,
    /// The seconds that the amount refers to; 1 for a gauge, and before the resource is known.
    pub per: f64,
    /// Whether there is a lease. Otherwise the amount is that of the
    /// [fallback](LeaseSettings::fallback).
    pub is_leased: bool,
}

impl LeasedCapacity {
    /// The amount in a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.amount / self.per
    }
}

/// Changes of the capacity of a [`Lease`], which it keeps.
#[derive(Debug)]
pub struct LeaseWatch {
    lease: Lease,
    seen: Option<LeasedCapacity>,
}

/// Settings of a [`Lease`].
pub type LeaseSettings = DirectSettings<Lease>;

impl DirectUse for Lease {
    const UNIT: Unit = Unit::Rate;
}

impl LeaseSettings {
    /// The unit of the resource, by default [`Unit::Rate`]. If it has the other one, the fallback
    /// applies.
    pub fn unit(mut self, unit: Unit) -> Self {
        self.limiter.unit = unit;
        self
    }
}

impl Lease {
    pub(crate) fn new(registry: Arc<Registry>, settings: impl Into<LeaseSettings>) -> Self {
        Self(One::new(registry, settings.into()))
    }

    /// Changes the demand, in the resource's own unit, and reports it to the control plane soon. 0
    /// leases nothing. Until it is stated, the demand is that of the limits on the resource.
    pub fn set_wants(&self, wants: Capacity) {
        self.0.set_wants(wants);
    }

    /// The capacity now. It lasts until the next refresh, at most until the lease ends.
    #[must_use]
    pub fn capacity(&self) -> LeasedCapacity {
        self.read().0
    }

    /// Follows the capacity.
    #[must_use]
    pub fn watch(&self) -> LeaseWatch {
        LeaseWatch {
            lease: self.clone(),
            seen: None,
        }
    }

    /// The capacity, and when its lease ends.
    fn read(&self) -> (LeasedCapacity, Moment) {
        let limiter = self.0.limiter();
        let allowance = limiter.allowance(limiter.now());
        let per = allowance.policy.map_or(1.0, |policy| policy.per);
        let capacity = LeasedCapacity {
            amount: allowance.amount * per,
            per,
            is_leased: allowance.is_leased,
        };
        (capacity, allowance.ends)
    }
}

impl LeaseWatch {
    /// Waits for another capacity than the last one; the first call returns the capacity at once.
    /// A lease that ends without a renewal is noticed at its end, without any message.
    ///
    /// # Panics
    /// When it has to wait and there is no tokio runtime with a timer.
    ///
    /// # Cancel safety
    /// Safe: no change is lost.
    pub async fn changed(&mut self) -> LeasedCapacity {
        let limiter = self.lease.0.limiter();
        let changes = limiter.changes();
        loop {
            let mut changed = pin!(changes.notified());
            // No publication after this is missed.
            changed.as_mut().enable();
            let (capacity, ends) = self.lease.read();
            if self.seen.replace(capacity) != Some(capacity) {
                return capacity;
            }
            tokio::select! {
                () = changed => {}
                () = sleep(ends.since(limiter.now()).min(MAX_SLEEP)) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
