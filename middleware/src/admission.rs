//! The decision on a request: every limit of a layer, all or nothing.

mod armed;
mod following;
#[cfg(test)]
mod tests;
mod turns;

use std::{cell::OnceCell, future::Future, iter::zip, pin::Pin, ptr, sync::Arc};

use doorman_openapi::Moment;
use smallvec::SmallVec;

pub(crate) use self::{armed::Armed, following::Following};
use self::{
    armed::{Asked, Question},
    turns::Turns,
};
use crate::{
    Callers, Limit, Refusal, RequestHead, clock,
    headers::Fields,
    limiter::{Found, Patience, Registry, Taken},
    meter::Outcome,
};

/// The limits of a layer, ready to decide. Every clone of the layer and every connection decides by the same.
#[derive(Debug)]
pub(crate) struct Admission {
    registry: Arc<Registry>,
    callers: Callers,
    limits: Box<[Arc<Armed>]>,
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

/// One entry a limit, `None` where it does not apply.
type Finds<'r> = SmallVec<[OnceCell<Found<'r>>; 2]>;
type Questions<'f> = SmallVec<[Option<Question<'f>>; 2]>;
type AllTaken = SmallVec<[Option<Taken>; 2]>;
type AskedOfAll = SmallVec<[Option<Asked>; 2]>;

/// Those limits that apply and have been taken of.
fn taken_of<'a, 'f>(
    questions: &'a Questions<'f>,
    all: &'a AllTaken,
) -> impl Iterator<Item = (&'a Question<'f>, &'a Taken)> {
    zip(questions, all).filter_map(|(question, taken)| question.as_ref().zip(taken.as_ref()))
}

/// Who is asked is held from now on, for it may take a while.
fn at_leisure(questions: Questions<'_>) -> AskedOfAll {
    let questions = questions.into_iter();
    questions
        .map(|question| question.map(Asked::from))
        .collect()
}

impl Admission {
    pub(crate) fn new(
        registry: Arc<Registry>,
        callers: Callers,
        limits: impl IntoIterator<Item = Limit>,
    ) -> Self {
        let limits = limits
            .into_iter()
            .map(|limit| Arc::new(Armed::new(&registry, limit)))
            .collect();
        Self {
            registry,
            callers,
            limits,
        }
    }

    /// These limits, and behind them others.
    fn with(&self, others: &[Arc<Armed>]) -> Self {
        Self {
            registry: Arc::clone(&self.registry),
            callers: self.callers.clone(),
            limits: self.limits.iter().chain(others).cloned().collect(),
        }
    }

    /// Decides on a request. A refusal leaves nothing spent.
    pub(crate) fn decide(self: &Arc<Self>, head: &RequestHead<'_>) -> Verdict {
        let found = self.places_to_find();
        let questions = match self.ask(&found, head) {
            Ok(questions) => questions,
            Err(refusal) => return Verdict::Refused(Box::new(refusal.into())),
        };
        let recent = clock::recent();
        if self.goes_at_once(&questions, recent) {
            return Verdict::Admitted(self.fields(&questions, recent));
        }
        let mut asked = at_leisure(questions);
        let now = clock::now();
        let mut pairs = zip(&self.limits, &asked);
        if pairs.any(|(armed, one)| one.as_ref().is_some_and(|one| armed.awaits_lease(one, now))) {
            return Verdict::Waits(Box::pin(Arc::clone(self).after_leases(asked)));
        }
        if let Err(denial) = self.take(&mut asked, now) {
            return Verdict::Refused(denial);
        }
        if asked.iter().flatten().any(|asked| asked.place.is_queued()) {
            return Verdict::Waits(Box::pin(Turns::new(Arc::clone(self), asked).come()));
        }
        Verdict::Admitted(self.keep(asked, now))
    }

    /// Decides on a request that cannot wait. A refusal leaves nothing spent.
    pub(crate) fn decide_now(&self, head: &RequestHead<'_>) -> Result<(), Refusal> {
        let found = self.places_to_find();
        let questions = self.ask(&found, head)?;
        if self.goes_at_once(&questions, clock::recent()) {
            return Ok(());
        }
        let mut asked = at_leisure(questions);
        let now = clock::now();
        for (armed, entry) in zip(&self.limits, &mut asked) {
            let Some(one) = entry else { continue };
            let taken = one.place.take(Patience::Never, now);
            let more = taken.is_err() || one.place.runs_low();
            let registry = armed.registry(&self.registry);
            registry.tried(one.place.limiter(), more, now);
            match taken {
                Ok(()) => {}
                Err(_) if armed.is_shadow() => {
                    armed.meter.count(Outcome::Shadow);
                    *entry = None;
                }
                Err(refused) => {
                    let refusal = armed.refusal(one, refused, now);
                    armed.meter.count(Outcome::Refused(refusal.reason()));
                    return Err(refusal);
                }
            }
        }
        for (armed, one) in zip(&self.limits, &mut asked) {
            if let Some(one) = one {
                armed.keep(one, now);
            }
        }
        Ok(())
    }

    /// Where each limit keeps hold of what it finds, while a request is decided.
    fn places_to_find<'r>(&self) -> Finds<'r> {
        self.limits.iter().map(|_| OnceCell::new()).collect()
    }

    /// What a request asks of every limit.
    fn ask<'r: 'f, 'f>(
        &'r self,
        found: &'f Finds<'r>,
        head: &RequestHead<'_>,
    ) -> Result<Questions<'f>, Refusal> {
        let head = head.seen_by(&self.callers);
        let mut questions = Questions::new();
        for (armed, found) in zip(&self.limits, found) {
            questions.push(armed.ask(&self.registry, found, &head)?);
        }
        Ok(questions)
    }

    /// Takes what is asked of every limit, and counts the request as admitted, if it may go at once; else takes nothing.
    fn goes_at_once(&self, questions: &Questions<'_>, recent: Moment) -> bool {
        let mut all = AllTaken::new();
        for (armed, question) in zip(&self.limits, questions) {
            let taken = question
                .as_ref()
                .map(|asked| armed.take_at_once(asked, recent));
            if matches!(taken, Some(None)) {
                for (question, taken) in taken_of(questions, &all) {
                    question.limiter.undo(taken, recent);
                }
                return false;
            }
            all.push(taken.flatten());
        }
        for (armed, (question, taken)) in zip(&self.limits, zip(questions, &all)) {
            if let (Some(question), Some(taken)) = (question, taken) {
                let limiter = question.limiter;
                limiter.keep(taken);
                armed.meter.admitted(false, || limiter.fallback_at(recent));
                let registry = armed.registry(&self.registry);
                registry.tried(limiter, taken.runs_low, recent);
            }
        }
        true
    }

    /// What the response to a request that goes at once says.
    fn fields(&self, questions: &Questions<'_>, recent: Moment) -> Fields {
        let mut fields = Fields::default();
        for (armed, question) in zip(&self.limits, questions) {
            if let Some(question) = question
                && !armed.is_shadow()
            {
                fields.add(&armed.field, &question.limiter.reading(recent), recent);
            }
        }
        fields
    }

    /// Takes a place of every limit, or of none.
    fn take(&self, asked: &mut AskedOfAll, now: Moment) -> Result<(), Box<Denial>> {
        for (armed, entry) in zip(&self.limits, &mut *asked) {
            let Some(one) = entry else { continue };
            let taken = one.place.take(armed.patience(now), now);
            let more = taken.is_err() || one.place.runs_low();
            let registry = armed.registry(&self.registry);
            registry.tried(one.place.limiter(), more, now);
            match taken {
                Ok(()) => {}
                Err(_) if armed.is_shadow() => {
                    // It has no more say.
                    armed.meter.count(Outcome::Shadow);
                    *entry = None;
                }
                Err(refused) => {
                    let refusal = armed.refusal(one, refused, now);
                    return Err(self.deny(asked, armed, refusal, now));
                }
            }
        }
        Ok(())
    }

    async fn after_leases(self: Arc<Self>, mut asked: AskedOfAll) -> Result<Fields, Box<Denial>> {
        for (armed, one) in zip(&self.limits, &asked) {
            if let Some(one) = one {
                armed.lease(one).await;
            }
        }
        self.take(&mut asked, clock::now())?;
        Turns::new(self, asked).come().await
    }

    /// The request goes: everything stays taken.
    fn keep(&self, asked: AskedOfAll, now: Moment) -> Fields {
        let mut fields = Fields::default();
        for (armed, asked) in zip(&self.limits, asked) {
            let Some(mut asked) = asked else {
                continue;
            };
            armed.keep(&mut asked, now);
            if !armed.is_shadow() {
                fields.add(&armed.field, &asked.place.limiter().reading(now), now);
            }
        }
        fields
    }

    /// The request does not go: everything is given back. It may come back when every limit would let it pass, not only the one that
    /// was the first to refuse.
    fn deny(
        &self,
        asked: &mut AskedOfAll,
        refusing: &Armed,
        mut refusal: Refusal,
        now: Moment,
    ) -> Box<Denial> {
        for one in asked.iter_mut().flatten() {
            one.place.give_back(now);
        }
        refusing.meter.count(Outcome::Refused(refusal.reason()));
        let own_wait = refusal.retry_after_seconds();
        let mut fields = Fields::default();
        for (armed, asked) in zip(&self.limits, asked) {
            let Some(Asked { place, .. }) = asked else {
                continue;
            };
            let reading = place.limiter().reading(now);
            if ptr::eq(&**armed, refusing) {
                fields.add_refusing(&armed.field, &reading, own_wait);
            } else if !armed.is_shadow() {
                refusal.wait_until(place.possible_at(now), now);
                fields.add(&armed.field, &reading, now);
            }
        }
        Box::new(Denial { refusal, fields })
    }
}

impl From<Refusal> for Denial {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            fields: Fields::default(),
        }
    }
}
