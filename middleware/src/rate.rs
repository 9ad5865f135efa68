//! A limit used without a layer.

use std::{sync::Arc, time::Duration};

use crate::{
    Cost, Fallback, Refusal, RefusalReason, clock,
    key::to_resource_id,
    limiter::{Limiter, LimiterSettings, Registry, Rejected, Reservation, WaitPolicy},
    meter::{LimitMeter, UseGuard},
};

/// The shortest pause between two tries under suppression: the resolution of timers.
const MIN_PAUSE: Duration = Duration::from_millis(1);

/// The rate of one resource, for code that asks before it acts: made by
/// [`Doorman::rate`](crate::Doorman::rate). Cheap to clone. Without a lease it admits nothing
/// ([`Fallback::Pessimistic`]), unless an earlier limit on the same resource has another fallback.
#[derive(Debug, Clone)]
pub struct Rate {
    registry: Arc<Registry>,
    limiter: Arc<Limiter>,
    name: Arc<str>,
    meter: LimitMeter,
}

impl Rate {
    pub(crate) fn new(registry: Arc<Registry>, resource: &str) -> Self {
        let settings = Arc::new(LimiterSettings {
            fallback: Fallback::Pessimistic.into(),
            ..LimiterSettings::default()
        });
        let limiter = registry.permanent(&to_resource_id(resource), &settings);
        let name = resource.into();
        Self {
            meter: registry.meter(&name),
            registry,
            limiter,
            name,
        }
    }

    /// Waits until the tokens are available, without a timeout; without a lease, until one comes.
    /// Waiting callers are served in order.
    ///
    /// # Errors
    /// [`Refusal`] when no lease can come because the worker has ended, or when the resource is
    /// blocked for good, as one that [`Doorman::fixed`](crate::Doorman::fixed) does not name.
    ///
    /// # Panics
    /// When it has to wait and there is no tokio runtime with a timer.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves the queue and returns the tokens.
    pub async fn wait(&self, cost: Cost) -> Result<(), Refusal> {
        let mut guard = UseGuard::new(&self.meter);
        let mut reservation = loop {
            match self.reserve(cost, WaitPolicy::Forever) {
                Ok(reservation) => break reservation,
                // The next try may be admitted by chance.
                Err(refusal) if refusal.reason() == RefusalReason::Suppressed => {
                    guard.mark_waiting();
                    tokio::time::sleep(refusal.retry_after().max(MIN_PAUSE)).await;
                }
                Err(refusal) => return Err(guard.refused(refusal)),
            }
        };
        if reservation.is_delayed() {
            guard.mark_waiting();
        }
        let turn = reservation.wait_turn(self.registry.no_lease_can_come());
        if let Err(rejected) = turn.await {
            return Err(guard.refused(self.refusal(rejected)));
        }
        self.commit(&mut reservation, guard);
        Ok(())
    }

    /// Takes the tokens if they are available now.
    ///
    /// # Errors
    /// [`Refusal`] when they are not. Nothing is spent then.
    pub fn try_acquire(&self, cost: Cost) -> Result<(), Refusal> {
        let guard = UseGuard::new(&self.meter);
        match self.reserve(cost, WaitPolicy::Never) {
            Ok(mut reservation) => {
                self.commit(&mut reservation, guard);
                Ok(())
            }
            Err(refusal) => Err(guard.refused(refusal)),
        }
    }

    fn reserve(&self, cost: Cost, policy: WaitPolicy) -> Result<Reservation, Refusal> {
        let mut reservation = Reservation::new(Arc::clone(&self.limiter), cost);
        let now = clock::now();
        let reserved = reservation.reserve(policy, now);
        self.registry
            .record_attempt(reservation.limiter(), reservation.shortage(), now);
        reserved.map_err(|rejected| self.refusal(rejected))?;
        Ok(reservation)
    }

    fn commit(&self, reservation: &mut Reservation, guard: UseGuard<'_>) {
        reservation.commit();
        guard.admitted(|| self.limiter.fallback_at(clock::now()));
    }

    fn refusal(&self, rejected: Rejected) -> Refusal {
        let Rejected { reason, retry_at } = rejected;
        let resource = self.limiter.resource();
        Refusal::new(&self.name, resource, reason, retry_at, clock::now())
    }
}

#[cfg(test)]
mod tests;
