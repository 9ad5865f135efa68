//! One limit of a layer, ready to decide: whom it asks on behalf of a request, how long, and what it says when it refuses.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use doorman_openapi::{Moment, ResourceId};

use super::{
    RequestScope,
    check::{Demand, Look, Question, Room},
};
use crate::{
    Limit, MissingKey, OnLimit, Refusal, RefusalReason, RequestHead,
    admission::headers::FieldName,
    key::{Absent, Made},
    limiter::{Limiter, LimiterSettings, Refused, Registry},
    meter::{LimitMeter, Outcome},
};

/// A limit with its limiter, or what it takes to find it.
#[derive(Debug)]
pub(crate) struct CompiledLimit {
    limit: Limit,
    /// Where its limiters are, when they are this process's alone.
    own: Option<Arc<Registry>>,
    /// Which requests it is for; `None`: all.
    scope: Option<RequestScope>,
    /// Its name, as the response fields spell it.
    pub(super) field: FieldName,
    pub(super) meter: LimitMeter,
    /// Kept for the sake of its priority, where its limiters live by those of another limit.
    settings: Arc<LimiterSettings>,
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// The key is constant.
    Fixed(Arc<Limiter>),
    /// The key is made of the request.
    Keyed {
        /// The resource of the keys for which there is no room.
        overflow: ResourceId,
        /// Whether it has been said that the settings of an earlier limit count.
        warned: AtomicBool,
        /// Whether it has been said that nobody verifies the tokens that it is kept by.
        unverified: AtomicBool,
    },
}

thread_local! {
    /// Where ids are written, so that a known key costs no allocation.
    static ID: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl CompiledLimit {
    pub(super) fn new(registry: &Registry, limit: Limit) -> Self {
        let settings = Arc::new(limit.settings.clone());
        let own = limit.quota.map(|quota| registry.local(quota));
        let home = own.as_deref().unwrap_or(registry);
        let staying = |resource: &_| home.permanent(resource, &settings);
        let armed = Self::with(registry, limit, &settings, None, staying);
        Self { own, ..armed }
    }

    /// The limit of a rule, by settings that outlive it where the next rules say the same.
    pub(crate) fn for_rule(
        registry: &Registry,
        limit: Limit,
        settings: &Arc<LimiterSettings>,
        scope: RequestScope,
    ) -> Self {
        let staying = |resource: &_| registry.pin_for_rule(resource, settings);
        Self::with(registry, limit, settings, Some(scope), staying)
    }

    fn with(
        registry: &Registry,
        limit: Limit,
        settings: &Arc<LimiterSettings>,
        scope: Option<RequestScope>,
        staying: impl FnOnce(&ResourceId) -> Arc<Limiter>,
    ) -> Self {
        let target = match limit.key.as_constant() {
            Some(resource) => {
                let limiter = staying(&resource);
                if limiter.attach(settings).is_err() {
                    warn_of_other_settings(&limit.name, &limiter);
                }
                Target::Fixed(limiter)
            }
            None => Target::Keyed {
                overflow: limit.key.overflow(),
                warned: AtomicBool::new(false),
                unverified: AtomicBool::new(false),
            },
        };
        Self {
            field: FieldName::new(&limit.name),
            meter: registry.meter(&limit.name),
            limit,
            own: None,
            scope,
            settings: Arc::clone(settings),
            target,
        }
    }

    /// The name, when the key is made of a token's claims.
    pub(super) fn by_claims(&self) -> Option<&str> {
        self.limit.key.needs_claims().then_some(&*self.limit.name)
    }

    /// The limiter that stays, when the key is constant.
    pub(crate) fn constant_limiter(&self) -> Option<&Arc<Limiter>> {
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
    #[inline]
    pub(super) fn ask<'r: 'f, 'f>(
        self: &'r Arc<Self>,
        look: &'f Look<'r>,
        head: &RequestHead<'_>,
    ) -> Result<Option<Question<'f>>, Box<Refusal>> {
        if self
            .scope
            .as_ref()
            .is_some_and(|scope| !scope.contains(head))
        {
            return Ok(None);
        }
        if self.limit.skip.applies(head) {
            self.meter.count(Outcome::Skipped);
            return Ok(None);
        }
        let (limiter, room) = match &self.target {
            Target::Fixed(limiter) => (limiter, Room::Own),
            Target::Keyed {
                overflow,
                warned,
                unverified,
            } => {
                // Taken out and put back, for a closure of a key may itself come through here.
                let settings = &self.settings;
                let mut id = ID.take();
                let made = self.limit.key.write(head, &mut id);
                // Of rules it is said when they come.
                if made == Made::Missing(Absent::Token)
                    && self.scope.is_none()
                    && !head.verifies_tokens()
                    && !unverified.swap(true, Ordering::Relaxed)
                {
                    warn_of_unverified_tokens(&self.limit.name);
                }
                let target = match (made, self.limit.on_missing_key) {
                    (Made::Whole, _) | (Made::Missing(_), MissingKey::Shared) => {
                        Ok(Some(match look.keyed(&id, settings) {
                            Some(limiter) => (limiter, Room::Own),
                            None => (look.overflow(overflow, settings), Room::Overflow),
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
                        let refusal = Refusal::without_key(&self.limit.name, absence(absent));
                        self.meter.count(Outcome::Refused(refusal.reason()));
                        Err(Box::new(refusal))
                    }
                };
                ID.set(id);
                let Some((limiter, room)) = target? else {
                    return Ok(None);
                };
                if limiter.attach(settings).is_err() && !warned.swap(true, Ordering::Relaxed) {
                    warn_of_other_settings(&self.limit.name, limiter);
                }
                (limiter, room)
            }
        };
        Ok(Some(Question {
            armed: self,
            limiter,
            room,
            demand: Some(self.demand(head)),
        }))
    }

    /// What the limit asks for on behalf of a request.
    fn demand(&self, head: &RequestHead<'_>) -> Demand {
        let limit = &self.limit;
        Demand {
            cost: limit.cost.of(head),
            wait_for_lease: match limit.on_limit {
                OnLimit::Reject | OnLimit::Delay { .. } => limit.wait_for_lease,
                OnLimit::Shadow => Duration::ZERO,
            },
            at_most: match limit.on_limit {
                OnLimit::Reject | OnLimit::Shadow => None,
                OnLimit::Delay { at_most } => Some(at_most),
            },
            queue: limit.queue,
        }
    }

    /// Whether its limiters are this process's alone.
    pub(super) fn is_local(&self) -> bool {
        self.own.is_some()
    }

    /// Whether it only counts what it would refuse.
    pub(super) fn is_shadow(&self) -> bool {
        matches!(self.limit.on_limit, OnLimit::Shadow)
    }

    /// What it says to a request that one of its limiters refuses. It is counted.
    pub(super) fn refuses(
        &self,
        limiter: &Limiter,
        room: Room,
        refused: Refused,
        now: Moment,
    ) -> Refusal {
        let refused = match room {
            Room::Own => refused,
            Room::Overflow => refused.because(RefusalReason::Overflow),
        };
        let refusal = Refusal::new(
            &self.limit.name,
            limiter.resource(),
            refused.reason,
            refused.until,
            now,
        );
        self.meter.count(Outcome::Refused(refusal.reason()));
        refusal
    }
}

fn absence(absent: Absent) -> RefusalReason {
    match absent {
        Absent::Value => RefusalReason::MissingKey,
        Absent::Token => RefusalReason::MissingToken,
        Absent::GoodToken => RefusalReason::InvalidToken,
    }
}

/// Says that nobody tells callers apart: all would share what is meant for each.
fn warn_of_unverified_tokens(limit: &str) {
    tracing::warn!(
        limit,
        "a limit is by claims of tokens, and meets a request of which none are known: give `Callers` a `JwtVerifier`, or put `VerifiedClaims` \
         into each request's extensions"
    );
}

fn warn_of_other_settings(limit: &str, limiter: &Limiter) {
    tracing::warn!(
        limit,
        resource = %limiter.resource(),
        "another limit on this resource came first: its burst, fallback and wants count"
    );
}
