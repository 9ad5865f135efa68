//! A limit used directly, without a layer.

use std::{sync::Arc, time::Duration};

use crate::{
    Cost, Fallback, Refusal, RefusalReason, clock,
    key::constant,
    limiter::{Limiter, LimiterSettings, Patience, Refused, Registry, Reservation},
    meter::{LimitMeter, Visit},
};

/// Between tries that are left to chance: a timer is no finer.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// The rate of one resource, for code that asks before it acts: made by [`Doorman::rate`](crate::Doorman::rate). Cheap to clone.
///
/// Without a lease nothing is admitted ([`Fallback::Pessimistic`]), unless a limit on the same resource came first and says
/// otherwise.
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
        let limiter = registry.permanent(&constant(resource), &settings);
        let name = resource.into();
        Self {
            meter: registry.meter(&name),
            registry,
            limiter,
            name,
        }
    }

    /// Waits until so much may be used, as long as it takes; without a lease, until there is one. Those who wait go in the order in
    /// which they came.
    ///
    /// # Errors
    /// [`Refusal`] when there is no lease and none will come, because the worker is gone; or when the resource is blocked for good, as
    /// those are that [`Doorman::fixed`](crate::Doorman::fixed) does not name.
    ///
    /// # Panics
    /// When it has to wait, and there is no tokio runtime with a timer.
    ///
    /// # Cancel safety
    /// Safe: dropping the future gives its place back.
    pub async fn wait(&self, cost: Cost) -> Result<(), Refusal> {
        let mut visit = Visit::new(&self.meter);
        let mut place = loop {
            match self.take(cost, Patience::Forever) {
                Ok(place) => break place,
                // Chance may favour the next try.
                Err(refusal) if refusal.reason() == RefusalReason::Suppressed => {
                    visit.waits();
                    tokio::time::sleep(refusal.retry_after().max(SHORTEST_PAUSE)).await;
                }
                Err(refusal) => return Err(visit.refused(refusal)),
            }
        };
        if place.is_queued() {
            visit.waits();
        }
        if let Err(refused) = place.turn(self.registry.orphaned()).await {
            return Err(visit.refused(self.refusal(refused)));
        }
        self.keep(&mut place, visit);
        Ok(())
    }

    /// Uses so much if it may be used now.
    ///
    /// # Errors
    /// [`Refusal`] when it may not; nothing is used then.
    pub fn try_acquire(&self, cost: Cost) -> Result<(), Refusal> {
        let visit = Visit::new(&self.meter);
        match self.take(cost, Patience::Never) {
            Ok(mut place) => {
                self.keep(&mut place, visit);
                Ok(())
            }
            Err(refusal) => Err(visit.refused(refusal)),
        }
    }

    fn take(&self, cost: Cost, patience: Patience) -> Result<Reservation, Refusal> {
        let mut place = Reservation::new(Arc::clone(&self.limiter), cost);
        let now = clock::now();
        let taken = place.take(patience, now);
        self.registry
            .record_attempt(place.limiter(), place.need(), now);
        taken.map_err(|refused| self.refusal(refused))?;
        Ok(place)
    }

    fn keep(&self, place: &mut Reservation, visit: Visit<'_>) {
        place.keep();
        visit.admitted(|| self.limiter.fallback_at(clock::now()));
    }

    fn refusal(&self, refused: Refused) -> Refusal {
        Refusal::new(
            &self.name,
            self.limiter.resource(),
            refused.reason,
            refused.until,
            clock::now(),
        )
    }
}

#[cfg(test)]
mod tests;
