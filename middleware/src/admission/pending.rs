//! What a request asks of the limits that apply to it, when that takes longer than a moment: who is asked is held meanwhile.

use std::{future::pending, sync::Arc};

use doorman_openapi::Moment;
use smallvec::SmallVec;

use super::{
    CompiledLimit, Denial, Fields,
    check::{Demand, Question, Questions, Room},
};
use crate::{
    Refusal,
    limiter::{Limiter, Patience, Refused, Registry, Reservation},
    meter::Outcome,
};

/// One entry for each limit that has a say.
pub(super) type AskedOfAll = SmallVec<[Asked; 2]>;

/// What is asked of one limit.
#[derive(Debug)]
pub(super) struct Asked {
    armed: Arc<CompiledLimit>,
    room: Room,
    part: Part,
}

/// The part that a limit has in what is taken of its limiter.
#[derive(Debug)]
enum Part {
    /// It takes for itself, and for those that ride.
    Takes { place: Reservation, demand: Demand },
    /// It goes as another limit of the request goes, which takes of the same limiter.
    Rides(Arc<Limiter>),
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
            part: match demand {
                Some(demand) => Part::Takes {
                    place: Reservation::new(Arc::clone(limiter), demand.cost),
                    demand,
                },
                None => Part::Rides(Arc::clone(limiter)),
            },
        }
    }
}

impl Asked {
    fn limiter(&self) -> &Arc<Limiter> {
        match &self.part {
            Part::Takes { place, .. } => place.limiter(),
            Part::Rides(limiter) => limiter,
        }
    }

    /// Whether the request waits for the first lease of the resource before anything is decided.
    pub(super) fn awaits_lease(&self, now: Moment) -> bool {
        let Part::Takes { place, demand } = &self.part else {
            return false;
        };
        let at_most = demand.wait_for_lease;
        !at_most.is_zero()
            && place
                .lease_deadline(at_most)
                .is_some_and(|deadline| now < deadline)
    }

    /// Begins to wait for the first lease, if the limit says so.
    pub(super) fn is_undecided(&mut self) {
        if let Part::Takes { place, demand } = &mut self.part
            && !demand.wait_for_lease.is_zero()
        {
            place.is_undecided();
        }
    }

    /// Waits for the first lease, if the limit says so.
    pub(super) async fn lease(&self) {
        if let Part::Takes { place, demand } = &self.part
            && !demand.wait_for_lease.is_zero()
        {
            place.first_lease(demand.wait_for_lease, demand.queue).await;
        }
    }

    /// Waits for its turn. A delay ends at its deadline: no other end is needed.
    pub(super) async fn turn(&mut self) -> Result<(), Refused> {
        match &mut self.part {
            Part::Takes { place, .. } => place.turn(pending()).await,
            Part::Rides(_) => Ok(()),
        }
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(&self.part, Part::Takes { place, .. } if place.is_queued())
    }

    fn take(
        &mut self,
        common: &Registry,
        patience: impl Fn(&Demand) -> Patience,
        now: Moment,
    ) -> Result<(), Refused> {
        let Part::Takes { place, demand } = &mut self.part else {
            return Ok(());
        };
        let taken = place.take(patience(demand), now);
        let registry = self.armed.registry(common);
        registry.record_attempt(place.limiter(), place.need(), now);
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

pub(super) fn at_leisure(questions: &Questions<'_>) -> AskedOfAll {
    questions.iter().copied().map(Asked::from).collect()
}

/// Takes a place of every limit, or of none.
pub(super) fn take(
    asked: &mut AskedOfAll,
    common: &Registry,
    patience: impl Fn(&Demand) -> Patience,
    now: Moment,
) -> Result<(), Box<Denial>> {
    let mut refusing = None;
    // Whom shadows have asked in vain.
    let mut in_vain: SmallVec<[Arc<Limiter>; 1]> = SmallVec::new();
    asked.retain(|one| {
        if refusing.is_some() {
            return true;
        }
        match one.take(common, &patience, now) {
            Ok(()) if !in_vain.iter().any(|it| Arc::ptr_eq(it, one.limiter())) => true,
            Err(_) if one.armed.is_shadow() => {
                // It has no more say.
                one.armed.meter.count(Outcome::Shadow);
                in_vain.push(Arc::clone(one.limiter()));
                false
            }
            // A shadow that rides on one of them. Nothing in earnest does: it takes for the shadows.
            Ok(()) => {
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

/// Whether the request waits for its turn at a limiter.
fn waits(asked: &[Asked], limiter: &Arc<Limiter>) -> bool {
    let mut there = asked
        .iter()
        .filter(|one| Arc::ptr_eq(one.limiter(), limiter));
    there.any(Asked::is_queued)
}

/// The caller has gone away. Where it waited, that is counted.
pub(super) fn leave(asked: &[Asked]) {
    for one in asked {
        if waits(asked, one.limiter()) {
            one.armed.meter.count(Outcome::Gone);
        }
    }
}

/// The request goes: everything stays taken.
pub(super) fn keep(mut asked: AskedOfAll, now: Moment) -> Fields {
    for one in &asked {
        let limiter = one.limiter();
        let waited = waits(&asked, limiter);
        one.armed
            .meter
            .admitted(waited, || limiter.fallback_at(now));
    }
    let mut fields = Fields::default();
    for one in &mut asked {
        if let Part::Takes { place, .. } = &mut one.part {
            place.keep();
        }
        let limiter = one.limiter();
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
        if let Part::Takes { place, .. } = &mut one.part {
            place.give_back(now);
        }
    }
    let own_wait = refusal.retry_after_seconds();
    let mut fields = Fields::default();
    for one in asked.iter().filter(|one| !one.armed.is_shadow()) {
        let field = &one.armed.field;
        let reading = one.limiter().reading(now);
        if Arc::ptr_eq(one.limiter(), &limiter) {
            fields.add_refusing(field, &reading, own_wait);
            continue;
        }
        if let Part::Takes { place, .. } = &one.part {
            refusal.wait_until(place.possible_at(now), now);
        }
        fields.add(field, &reading, now);
    }
    Box::new(Denial { refusal, fields })
}
