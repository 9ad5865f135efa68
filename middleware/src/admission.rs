//! The decision on a request: every limit of a layer, all or nothing.

use std::{
    cell::Cell,
    future::Future,
    iter::zip,
    pin::Pin,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use doorman_openapi::{Moment, ResourceId};
use smallvec::SmallVec;

use crate::{
    Limit, MissingKey, OnLimit, Refusal, RequestHead, clock,
    headers::{FieldName, Fields},
    key::Made,
    limiter::{Limiter, LimiterSettings, Patience, Place, Refused, Registry, Why},
};

/// The limits of a layer, ready to decide. Every clone of the layer and every connection decides by the same.
#[derive(Debug)]
pub(crate) struct Admission {
    registry: Arc<Registry>,
    limits: Box<[Armed]>,
}

/// What becomes of a request.
pub(crate) enum Verdict {
    Admitted(Fields),
    Refused(Box<Denial>),
    /// It waits; dropping it gives back what it has taken.
    Waits(Waiting),
}

pub(crate) type Waiting = Pin<Box<dyn Future<Output = Result<Fields, Box<Denial>>> + Send>>;

/// A refusal, and what the response says of all limits of the request.
#[derive(Debug)]
pub(crate) struct Denial {
    pub(crate) refusal: Refusal,
    pub(crate) fields: Fields,
}

/// A limit with its limiter, or what it takes to find it.
#[derive(Debug)]
struct Armed {
    limit: Limit,
    field: FieldName,
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

/// What a request asks of one limit.
#[derive(Debug)]
struct Asked {
    place: Place,
    room: Room,
}

/// Whether there was room for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    Own,
    Overflow,
}

/// One entry a limit, `None` where it does not apply.
type AskedOfAll = SmallVec<[Option<Asked>; 2]>;

impl Admission {
    pub(crate) fn new(registry: Arc<Registry>, limits: impl IntoIterator<Item = Limit>) -> Self {
        let limits = limits
            .into_iter()
            .map(|limit| Armed::new(&registry, limit))
            .collect();
        Self { registry, limits }
    }

    /// Decides on a request. A refusal leaves nothing spent.
    pub(crate) fn decide(self: &Arc<Self>, head: &RequestHead<'_>) -> Verdict {
        let now = clock::now();
        let mut asked = match self.ask(head) {
            Ok(asked) => asked,
            Err(refusal) => return Verdict::Refused(Box::new(refusal.into())),
        };
        if self.awaits_lease(&asked, now) {
            return Verdict::Waits(Box::pin(Arc::clone(self).after_leases(asked)));
        }
        if let Err(denial) = self.take(&mut asked, now) {
            return Verdict::Refused(denial);
        }
        if asked.iter().flatten().any(|asked| asked.place.is_queued()) {
            return Verdict::Waits(Box::pin(Arc::clone(self).after_turns(asked)));
        }
        Verdict::Admitted(self.keep(asked, now))
    }

    fn ask(&self, head: &RequestHead<'_>) -> Result<AskedOfAll, Refusal> {
        self.limits
            .iter()
            .map(|armed| armed.ask(&self.registry, head))
            .collect()
    }

    /// Takes a place of every limit, or of none.
    fn take(&self, asked: &mut AskedOfAll, now: Moment) -> Result<(), Box<Denial>> {
        for (armed, one) in zip(&self.limits, &mut *asked) {
            let Some(one) = one else { continue };
            let taken = one.place.take(armed.patience(now), now);
            if taken.is_err() || one.place.runs_low() {
                self.registry.hungry(one.place.limiter());
            }
            if let Err(refused) = taken {
                let refusal = armed.refusal(one, refused, now);
                return Err(self.deny(asked, armed, refusal, now));
            }
        }
        Ok(())
    }

    /// Whether a limit waits for the first lease of its resource.
    fn awaits_lease(&self, asked: &AskedOfAll, now: Moment) -> bool {
        zip(&self.limits, asked).any(|(armed, asked)| {
            let at_most = armed.limit.wait_for_lease;
            !at_most.is_zero()
                && asked
                    .as_ref()
                    .and_then(|asked| asked.place.lease_deadline(at_most))
                    .is_some_and(|deadline| now < deadline)
        })
    }

    async fn after_leases(self: Arc<Self>, mut asked: AskedOfAll) -> Result<Fields, Box<Denial>> {
        for (armed, asked) in zip(&self.limits, &asked) {
            let Limit {
                wait_for_lease,
                queue,
                ..
            } = armed.limit;
            if let Some(asked) = asked
                && !wait_for_lease.is_zero()
            {
                asked.place.first_lease(wait_for_lease, queue).await;
            }
        }
        self.take(&mut asked, clock::now())?;
        self.after_turns(asked).await
    }

    async fn after_turns(self: Arc<Self>, mut asked: AskedOfAll) -> Result<Fields, Box<Denial>> {
        let mut refused = None;
        for (armed, one) in zip(&self.limits, &asked) {
            if let Some(one) = one
                // A delay ends at its deadline: no other end is needed.
                && let Err(why) = one.place.turn(std::future::pending()).await
            {
                refused = Some((armed, armed.refusal(one, why, clock::now())));
                break;
            }
        }
        match refused {
            Some((armed, refusal)) => Err(self.deny(&mut asked, armed, refusal, clock::now())),
            None => Ok(self.keep(asked, clock::now())),
        }
    }

    /// The request goes: everything stays taken.
    fn keep(&self, asked: AskedOfAll, now: Moment) -> Fields {
        let mut fields = Fields::default();
        for (armed, asked) in zip(&self.limits, asked) {
            let Some(Asked { mut place, .. }) = asked else {
                continue;
            };
            place.keep();
            fields.add(&armed.field, &place.limiter().reading(now), now);
        }
        fields
    }

    /// The request does not go: everything is given back.
    fn deny(
        &self,
        asked: &mut AskedOfAll,
        refusing: &Armed,
        refusal: Refusal,
        now: Moment,
    ) -> Box<Denial> {
        let mut fields = Fields::default();
        for (armed, asked) in zip(&self.limits, asked) {
            let Some(Asked { place, .. }) = asked else {
                continue;
            };
            place.give_back(now);
            let reading = place.limiter().reading(now);
            if ptr::eq(armed, refusing) {
                fields.add_refusing(&armed.field, &reading, refusal.retry_after_seconds());
            } else {
                fields.add(&armed.field, &reading, now);
            }
        }
        Box::new(Denial { refusal, fields })
    }
}

thread_local! {
    /// Where ids are written, so that a known key costs no allocation.
    static ID: Cell<String> = const { Cell::new(String::new()) };
}

impl Armed {
    fn new(registry: &Registry, limit: Limit) -> Self {
        let settings = Arc::new(limit.settings.clone());
        let target = match limit.key.as_constant() {
            Some(resource) => {
                let limiter = registry.fixed(&resource, &settings);
                if !limiter.agrees(&settings) {
                    warn_of_other_settings(&limit.name, &limiter);
                }
                Target::Fixed(limiter)
            }
            None => Target::Keyed {
                overflow: limit.key.overflow(),
                settings,
                warned: AtomicBool::new(false),
            },
        };
        Self {
            field: FieldName::new(&limit.name),
            limit,
            target,
        }
    }

    /// What a request asks of this limit; `None` when the limit does not apply to it.
    fn ask(&self, registry: &Registry, head: &RequestHead<'_>) -> Result<Option<Asked>, Refusal> {
        let (limiter, room) = match &self.target {
            Target::Fixed(limiter) => (Arc::clone(limiter), Room::Own),
            Target::Keyed {
                settings,
                overflow,
                warned,
            } => {
                // Taken out and put back, for a closure of a key may itself come through here.
                let mut id = ID.take();
                let made = self.limit.key.write(head, &mut id);
                let found = match (made, self.limit.on_missing_key) {
                    (Made::Whole, _) | (Made::Missing, MissingKey::Shared) => {
                        Ok(Some(match registry.keyed(&id, settings) {
                            Some(limiter) => (limiter, Room::Own),
                            None => (registry.overflow(overflow, settings), Room::Overflow),
                        }))
                    }
                    (Made::Missing, MissingKey::Skip) => Ok(None),
                    (Made::Missing, MissingKey::Reject) => {
                        Err(Refusal::of_missing_key(&self.limit.name))
                    }
                };
                ID.set(id);
                let Some(found) = found? else {
                    return Ok(None);
                };
                if !found.0.agrees(settings) && !warned.swap(true, Ordering::Relaxed) {
                    warn_of_other_settings(&self.limit.name, &found.0);
                }
                found
            }
        };
        let place = Place::new(limiter, self.limit.cost.of(head));
        Ok(Some(Asked { place, room }))
    }

    fn patience(&self, now: Moment) -> Patience {
        match self.limit.on_limit {
            OnLimit::Reject => Patience::Never,
            OnLimit::Delay { at_most } => Patience::Until {
                deadline: now.after(at_most),
                queue: self.limit.queue,
            },
        }
    }

    fn refusal(&self, asked: &Asked, refused: Refused, now: Moment) -> Refusal {
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

impl From<Refusal> for Denial {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            fields: Fields::default(),
        }
    }
}

#[cfg(test)]
mod tests;
