//! One limit of a layer, ready to decide: whom it asks on behalf of a request, how long, and what it says when it refuses.

use std::{
    cell::{Cell, OnceCell},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use doorman_openapi::{Moment, ResourceId};

use crate::{
    Cost, Limit, MissingKey, OnLimit, Refusal, RequestHead,
    headers::FieldName,
    key::Made,
    limiter::{
        FirstLease, Found, Limiter, LimiterSettings, Patience, Place, Refused, Registry, Taken, Why,
    },
    meter::{LimitMeter, Outcome},
    rules::Scope,
};

/// A limit with its limiter, or what it takes to find it.
#[derive(Debug)]
pub(crate) struct Armed {
    limit: Limit,
    /// Where its limiters are, when they are this process's alone.
    own: Option<Arc<Registry>>,
    /// Which requests it is for; `None`: all.
    scope: Option<Scope>,
    /// Its name, as the response fields spell it.
    pub(super) field: FieldName,
    pub(super) meter: LimitMeter,
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// The key is constant.
    Fixed(Arc<Limiter>),
    /// The key is made of the request.
    Keyed {
        settings: Arc<LimiterSettings>,
        /// The resource of the keys for which there is no room.
        overflow: ResourceId,
        /// Whether it has been said that the settings of an earlier limit count.
        warned: AtomicBool,
    },
}

/// What a request asks of one limit, and of whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'f> {
    pub(super) limiter: &'f Arc<Limiter>,
    pub(super) cost: Cost,
    room: Room,
}

impl From<Question<'_>> for Asked {
    fn from(question: Question<'_>) -> Self {
        let Question {
            limiter,
            cost,
            room,
        } = question;
        Self {
            place: Place::new(Arc::clone(limiter), cost),
            room,
        }
    }
}

/// The same, when it takes longer than a moment.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) place: Place,
    room: Room,
}

/// Whether there was room for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    Own,
    Overflow,
}

thread_local! {
    /// Where ids are written, so that a known key costs no allocation.
    static ID: Cell<String> = const { Cell::new(String::new()) };
}

impl Armed {
    pub(super) fn new(registry: &Registry, limit: Limit) -> Self {
        let settings = Arc::new(limit.settings.clone());
        let own = limit.quota.map(|quota| registry.local(quota));
        let home = own.as_deref().unwrap_or(registry);
        let staying = |resource: &_| home.fixed(resource, &settings);
        let armed = Self::with(registry, limit, &settings, None, staying);
        Self { own, ..armed }
    }

    /// The limit of a rule, by settings that outlive it where the next rules say the same.
    pub(crate) fn of_rule(
        registry: &Registry,
        limit: Limit,
        settings: &Arc<LimiterSettings>,
        scope: Scope,
    ) -> Self {
        let staying = |resource: &_| registry.held(resource, settings);
        Self::with(registry, limit, settings, Some(scope), staying)
    }

    fn with(
        registry: &Registry,
        limit: Limit,
        settings: &Arc<LimiterSettings>,
        scope: Option<Scope>,
        staying: impl FnOnce(&ResourceId) -> Arc<Limiter>,
    ) -> Self {
        let target = match limit.key.as_constant() {
            Some(resource) => {
                let limiter = staying(&resource);
                if !limiter.agrees(settings) {
                    warn_of_other_settings(&limit.name, &limiter);
                }
                Target::Fixed(limiter)
            }
            None => Target::Keyed {
                overflow: limit.key.overflow(),
                settings: Arc::clone(settings),
                warned: AtomicBool::new(false),
            },
        };
        Self {
            field: FieldName::new(&limit.name),
            meter: registry.meter(&limit.name),
            limit,
            own: None,
            scope,
            target,
        }
    }

    /// The name, when the key is made of a token's claims.
    pub(super) fn by_claims(&self) -> Option<&str> {
        self.limit.key.needs_claims().then_some(&*self.limit.name)
    }

    /// The limiter that stays, when the key is constant.
    pub(crate) fn fixed(&self) -> Option<&Arc<Limiter>> {
        match &self.target {
            Target::Fixed(limiter) => Some(limiter),
            Target::Keyed { .. } => None,
        }
    }

    /// Where its limiters are; `common` is where they are unless they are this process's alone.
    pub(super) fn registry<'a>(&'a self, common: &'a Registry) -> &'a Registry {
        self.own.as_deref().unwrap_or(common)
    }

    /// What a request asks of this limit; `None` when the limit does not apply to it.
    pub(super) fn ask<'r: 'f, 'f>(
        &'r self,
        registry: &'r Registry,
        found: &'f OnceCell<Found<'r>>,
        head: &RequestHead<'_>,
    ) -> Result<Option<Question<'f>>, Refusal> {
        if self.scope.as_ref().is_some_and(|scope| !scope.covers(head)) {
            return Ok(None);
        }
        if self.limit.skip.applies(head) {
            self.meter.count(Outcome::Skipped);
            return Ok(None);
        }
        let registry = self.registry(registry);
        let (limiter, room) = match &self.target {
            Target::Fixed(limiter) => (limiter, Room::Own),
            Target::Keyed {
                settings,
                overflow,
                warned,
            } => {
                // Taken out and put back, for a closure of a key may itself come through here.
                let mut id = ID.take();
                let made = self.limit.key.write(head, &mut id);
                let target = match (made, self.limit.on_missing_key) {
                    (Made::Whole, _) | (Made::Missing(_), MissingKey::Shared) => {
                        let found = found.get_or_init(|| registry.found());
                        Ok(Some(match registry.keyed(found, &id, settings) {
                            Some(limiter) => (limiter, Room::Own),
                            None => (registry.overflow(found, overflow, settings), Room::Overflow),
                        }))
                    }
                    (Made::Missing(_), MissingKey::Skip) => {
                        self.meter.count(Outcome::Skipped);
                        Ok(None)
                    }
                    (Made::Missing(_), MissingKey::Reject) if self.is_shadow() => {
                        self.meter.count(Outcome::Shadow);
                        Ok(None)
                    }
                    (Made::Missing(absent), MissingKey::Reject) => {
                        let refusal = Refusal::of_missing_key(&self.limit.name, absent);
                        self.meter.count(Outcome::Refused(refusal.reason()));
                        Err(refusal)
                    }
                };
                ID.set(id);
                let Some((limiter, room)) = target? else {
                    return Ok(None);
                };
                if !limiter.agrees(settings) && !warned.swap(true, Ordering::Relaxed) {
                    warn_of_other_settings(&self.limit.name, limiter);
                }
                (limiter, room)
            }
        };
        Ok(Some(Question {
            limiter,
            cost: self.limit.cost.of(head),
            room,
        }))
    }

    /// Takes what is asked, if the request may go at once.
    pub(super) fn take_at_once(&self, asked: &Question<'_>, recent: Moment) -> Option<Taken> {
        let first_lease = if self.limit.wait_for_lease.is_zero() {
            FirstLease::NotNeeded
        } else {
            FirstLease::Awaited
        };
        asked.limiter.take_at_once(asked.cost, first_lease, recent)
    }

    /// Whether it only counts what it would refuse.
    pub(super) fn is_shadow(&self) -> bool {
        matches!(self.limit.on_limit, OnLimit::Shadow)
    }

    /// Whether a request waits for the first lease of its resource before anything is decided.
    pub(super) fn awaits_lease(&self, asked: &Asked, now: Moment) -> bool {
        let at_most = self.limit.wait_for_lease;
        !at_most.is_zero()
            && !self.is_shadow()
            && asked
                .place
                .lease_deadline(at_most)
                .is_some_and(|deadline| now < deadline)
    }

    /// Waits for the first lease, if the limit says so.
    pub(super) async fn lease(&self, asked: &Asked) {
        let at_most = self.limit.wait_for_lease;
        if !at_most.is_zero() && !self.is_shadow() {
            asked.place.first_lease(at_most, self.limit.queue).await;
        }
    }

    pub(super) fn patience(&self, now: Moment) -> Patience {
        match self.limit.on_limit {
            OnLimit::Reject | OnLimit::Shadow => Patience::Never,
            OnLimit::Delay { at_most } => Patience::Until {
                deadline: now.after(at_most),
                queue: self.limit.queue,
            },
        }
    }

    /// The request goes: what it took stays taken.
    pub(super) fn keep(&self, asked: &mut Asked, now: Moment) {
        let waited = asked.place.is_queued();
        asked.place.keep();
        let limiter = asked.place.limiter();
        self.meter.admitted(waited, || limiter.fallback_at(now));
    }

    pub(super) fn refusal(&self, asked: &Asked, refused: Refused, now: Moment) -> Refusal {
        let refused = match asked.room {
            Room::Own => refused,
            Room::Overflow => refused.because(Why::Overflow),
        };
        Refusal::new(
            &self.limit.name,
            asked.place.limiter().resource(),
            refused,
            now,
        )
    }
}

fn warn_of_other_settings(limit: &str, limiter: &Limiter) {
    tracing::warn!(
        limit,
        resource = %limiter.resource(),
        "another limit on this resource came first: its burst, fallback and wants count"
    );
}
