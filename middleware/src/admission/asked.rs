//! What a request asks of the limits that apply to it, when that takes longer than a moment: who is asked is held meanwhile.

use std::{future::pending, sync::Arc};

use doorman_openapi::Moment;
use smallvec::SmallVec;

use super::{
    Armed, Denial,
    question::{Demand, Question, Questions, Room},
};
use crate::{
    Refusal,
    headers::Fields,
    limiter::{Limiter, Patience, Place, Refused, Registry},
    meter::Outcome,
};

/// One entry for each limit that has a say.
pub(super) type AskedOfAll = SmallVec<[Asked; 2]>;

/// What is asked of one limit.
#[derive(Debug)]
pub(super) struct Asked {
    armed: Arc<Armed>,
    room: Room,
    place: Place,
    demand: Demand,
}

impl From<Question<'_>> for Asked {
    fn from(question: Question<'_>) -> Self {
        let Question {
            armed,
            limiter,
            room,
            demand,
        } = question;
        Self {
            armed: Arc::clone(armed),
            room,
            place: Place::new(Arc::clone(limiter), demand.cost),
            demand,
        }
    }
}

impl Asked {
    fn limiter(&self) -> &Arc<Limiter> {
        self.place.limiter()
    }

    /// Whether the request waits for the first lease of the resource before anything is decided.
    pub(super) fn awaits_lease(&self, now: Moment) -> bool {
        let at_most = self.demand.wait_for_lease;
        !at_most.is_zero()
            && self
                .place
                .lease_deadline(at_most)
                .is_some_and(|deadline| now < deadline)
    }

    /// Waits for the first lease, if the limit says so.
    pub(super) async fn lease(&self) {
        let at_most = self.demand.wait_for_lease;
        if !at_most.is_zero() {
            self.place.first_lease(at_most, self.demand.queue).await;
        }
    }

    /// Waits for its turn. A delay ends at its deadline: no other end is needed.
    pub(super) async fn turn(&self) -> Result<(), Refused> {
        self.place.turn(pending()).await
    }

    pub(super) fn is_queued(&self) -> bool {
        self.place.is_queued()
    }

    /// The caller has gone away; if it waited, that is counted.
    pub(super) fn leaves(&self) {
        if self.is_queued() {
            self.armed.meter.count(Outcome::Gone);
        }
    }

    fn take(&mut self, common: &Registry, patience: Patience, now: Moment) -> Result<(), Refused> {
        let taken = self.place.take(patience, now);
        let more = taken.is_err() || self.place.runs_low();
        let registry = self.armed.registry(common);
        registry.tried(self.limiter(), more, now);
        taken
    }

    /// Refuses the request.
    pub(super) fn refuses(&self, refused: Refused, now: Moment) -> Refusing {
        let limiter = self.limiter();
        Refusing {
            limiter: Arc::clone(limiter),
            refusal: self.armed.refuses(limiter, self.room, refused, now),
        }
    }
}

/// Who refuses a request, and how.
pub(super) struct Refusing {
    limiter: Arc<Limiter>,
    refusal: Refusal,
}

pub(super) fn at_leisure(questions: Questions<'_>) -> AskedOfAll {
    questions.into_iter().map(Asked::from).collect()
}

/// Takes a place of every limit, or of none.
pub(super) fn take(
    asked: &mut AskedOfAll,
    common: &Registry,
    patience: impl Fn(&Demand) -> Patience,
    now: Moment,
) -> Result<(), Box<Denial>> {
    let mut refusing = None;
    asked.retain(|one| {
        if refusing.is_some() {
            return true;
        }
        let patience = patience(&one.demand);
        match one.take(common, patience, now) {
            Ok(()) => true,
            Err(_) if one.armed.is_shadow() => {
                // It has no more say.
                one.armed.meter.count(Outcome::Shadow);
                false
            }
            Err(refused) => {
                refusing = Some(one.refuses(refused, now));
                true
            }
        }
    });
    match refusing {
        Some(refusing) => Err(deny(asked, refusing, now)),
        None => Ok(()),
    }
}

/// The request goes: everything stays taken.
pub(super) fn keep(asked: AskedOfAll, now: Moment) -> Fields {
    let mut fields = Fields::default();
    for mut one in asked {
        let waited = one.is_queued();
        one.place.keep();
        let limiter = one.limiter();
        one.armed
            .meter
            .admitted(waited, || limiter.fallback_at(now));
        if !one.armed.is_shadow() {
            fields.add(&one.armed.field, &limiter.reading(now), now);
        }
    }
    fields
}

/// The request does not go: everything is given back. It may come back when every limit would let it pass, not only the one that
/// was the first to refuse.
pub(super) fn deny(asked: &mut AskedOfAll, refusing: Refusing, now: Moment) -> Box<Denial> {
    let Refusing {
        limiter,
        mut refusal,
    } = refusing;
    for one in asked.iter_mut() {
        one.place.give_back(now);
    }
    let own_wait = refusal.retry_after_seconds();
    let mut fields = Fields::default();
    for Asked { armed, place, .. } in asked.iter().filter(|one| !one.armed.is_shadow()) {
        let reading = place.limiter().reading(now);
        if Arc::ptr_eq(place.limiter(), &limiter) {
            fields.add_refusing(&armed.field, &reading, own_wait);
        } else {
            refusal.wait_until(place.possible_at(now), now);
            fields.add(&armed.field, &reading, now);
        }
    }
    Box::new(Denial { refusal, fields })
}
