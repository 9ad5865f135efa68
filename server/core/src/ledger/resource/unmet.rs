//! Since when the demand for a resource is unmet.

use std::{collections::BTreeSet, time::Duration};

use doorman_openapi::{Moment, Seconds};

use crate::ledger::keys::ResourceKey;

/// Unmet demand is reported once it has lasted so many seconds.
const REPORTED_AFTER: f64 = 60.0;

/// Demand that is met for fewer seconds still counts as unmet.
const LONGEST_PAUSE: f64 = 30.0;

#[derive(Debug, Clone)]
pub(in crate::ledger) struct UnmetDemand {
    /// [`Moment::NEVER`] while the demand is met.
    since: Moment,
    /// [`Moment::NEVER`] outside a pause.
    paused_at: Moment,
    is_reported: bool,
}

/// A report.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::ledger) enum UnmetChange {
    /// The demand has been unmet for a while.
    Lasts,
    /// The demand that was reported is met again, after so long.
    Ended(Duration),
}

impl UnmetDemand {
    pub(in crate::ledger) const NONE: Self = Self {
        since: Moment::NEVER,
        paused_at: Moment::NEVER,
        is_reported: false,
    };

    pub(in crate::ledger) fn observe(
        &mut self,
        is_unmet: bool,
        now: Moment,
    ) -> Option<UnmetChange> {
        if is_unmet {
            self.since = self.since.min(now);
            self.paused_at = Moment::NEVER;
            let is_new = !self.is_reported && now.seconds_since(self.since) >= REPORTED_AFTER;
            self.is_reported |= is_new;
            return is_new.then_some(UnmetChange::Lasts);
        }
        if self.since == Moment::NEVER {
            return None;
        }
        self.paused_at = self.paused_at.min(now);
        if now.seconds_since(self.paused_at) >= LONGEST_PAUSE {
            self.end(now)
        } else {
            None
        }
    }

    /// Ends it at once. The resource has no holders any more.
    pub(in crate::ledger) fn end(&mut self, now: Moment) -> Option<UnmetChange> {
        let ended = std::mem::replace(self, Self::NONE);
        let lasted = ended.paused_at.min(now).since(ended.since);
        ended.is_reported.then_some(UnmetChange::Ended(lasted))
    }

    pub(in crate::ledger) fn lasts(&self, now: Moment) -> Seconds {
        now.since(self.since).into()
    }

    fn reported_since(&self) -> Option<Moment> {
        self.is_reported.then_some(self.since)
    }
}

/// The resources whose demand has been unmet for at least a minute.
#[derive(Debug, Clone, Default)]
pub struct UnmetResources(BTreeSet<(Moment, ResourceKey)>);

impl UnmetResources {
    /// Their number.
    #[must_use]
    pub fn resources(&self) -> usize {
        self.0.len()
    }

    /// Since when the demand for the first of them has been unmet.
    #[must_use]
    pub fn since(&self) -> Option<Moment> {
        self.0.first().map(|(since, _)| *since)
    }

    /// Takes over that of one resource, which was `before`.
    pub(in crate::ledger) fn update(
        &mut self,
        key: ResourceKey,
        before: &UnmetDemand,
        now: &UnmetDemand,
    ) {
        let (before, now) = (before.reported_since(), now.reported_since());
        if before == now {
            return;
        }
        if let Some(before) = before {
            self.0.remove(&(before, key));
        }
        if let Some(now) = now {
            self.0.insert((now, key));
        }
    }
}
