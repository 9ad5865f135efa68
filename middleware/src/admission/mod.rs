//! The decision on a request: every limit of a layer, all or nothing.

mod check;
mod compiled;
mod dynamic;
mod headers;
mod pending;
mod scope;
#[cfg(test)]
mod tests;
mod turns;

use std::{future::Future, iter::zip, pin::Pin, sync::Arc};

use doorman_openapi::Moment;
use smallvec::SmallVec;

use self::{
    check::{Look, Question, Questions, demands},
    pending::{Asked, AskedOfAll, at_leisure, keep, take},
    turns::Turns,
};
pub(crate) use self::{
    compiled::CompiledLimit,
    dynamic::DynamicAdmission,
    headers::{Fields, Telling},
    scope::{RequestPattern, RequestScope},
};
use crate::{
    Callers, Limit, Refusal, RequestHead, clock,
    limiter::{Patience, Registry, Taken},
};

/// The limits of a layer, ready to decide. Every clone of the layer and every connection decides by the same.
#[derive(Debug)]
pub(crate) struct Admission {
    registry: Arc<Registry>,
    callers: Callers,
    limits: Box<[Arc<CompiledLimit>]>,
    /// Whether any of them is this process's alone.
    has_local: bool,
}

/// What becomes of a request.
pub(crate) enum Verdict {
    /// It goes, and its response says this, unless it is to say nothing.
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

/// Where the limiters of a request are looked up: most limits share one registry.
struct Looks<'r> {
    common: Look<'r>,
    /// One for each local limit.
    own: SmallVec<[Look<'r>; 1]>,
}

type AllTaken = SmallVec<[Taken; 2]>;

impl Admission {
    pub(crate) fn new(
        registry: Arc<Registry>,
        callers: Callers,
        limits: impl IntoIterator<Item = Limit>,
    ) -> Self {
        let limits = limits
            .into_iter()
            .map(|limit| Arc::new(CompiledLimit::new(&registry, limit)))
            .collect();
        Self::of(registry, callers, limits)
    }

    fn of(registry: Arc<Registry>, callers: Callers, limits: Box<[Arc<CompiledLimit>]>) -> Self {
        Self {
            has_local: limits.iter().any(|armed| armed.is_local()),
            registry,
            callers,
            limits,
        }
    }

    /// These limits, and behind them others.
    fn with(&self, others: &[Arc<CompiledLimit>]) -> Self {
        let limits = self.limits.iter().chain(others).cloned().collect();
        Self::of(Arc::clone(&self.registry), self.callers.clone(), limits)
    }

    /// Decides on a request. A refusal leaves nothing spent.
    pub(crate) fn decide(self: &Arc<Self>, head: &RequestHead<'_>, telling: Telling) -> Verdict {
        let looks = self.looks();
        let mut questions = Questions::new();
        if let Err(refusal) = self.ask(&looks, head, &mut questions) {
            return Verdict::Refused(Box::new((*refusal).into()));
        }
        let recent = clock::recent();
        if self.goes_at_once(&questions, recent) {
            return Verdict::Admitted(match telling {
                Telling::Limits => fields(&questions, recent),
                Telling::Nothing => Fields::default(),
            });
        }
        self.decide_at_leisure(&questions)
    }

    #[inline(never)]
    fn decide_at_leisure(self: &Arc<Self>, questions: &Questions<'_>) -> Verdict {
        let mut asked = at_leisure(questions);
        let now = clock::now();
        if asked.iter().any(|one| one.awaits_lease(now)) {
            return Verdict::Waits(Box::pin(Arc::clone(self).after_leases(asked)));
        }
        if let Err(denial) = self.take(&mut asked, now) {
            return Verdict::Refused(denial);
        }
        if asked.iter().any(Asked::is_queued) {
            return Verdict::Waits(Box::pin(Turns::of(asked).come()));
        }
        Verdict::Admitted(keep(asked, now))
    }

    /// Decides on a request that cannot wait. A refusal leaves nothing spent.
    pub(crate) fn decide_now(&self, head: &RequestHead<'_>) -> Result<(), Refusal> {
        let looks = self.looks();
        let mut questions = Questions::new();
        self.ask(&looks, head, &mut questions)
            .map_err(|refusal| *refusal)?;
        if self.goes_at_once(&questions, clock::recent()) {
            return Ok(());
        }
        let mut asked = at_leisure(&questions);
        let now = clock::now();
        take(&mut asked, &self.registry, |_| Patience::Never, now)
            .map_err(|denial| denial.refusal)?;
        keep(asked, now);
        Ok(())
    }

    fn looks(&self) -> Looks<'_> {
        let mut looks = Looks {
            common: Look::into(&self.registry),
            own: SmallVec::new(),
        };
        if self.has_local {
            let local = self.limits.iter().filter(|armed| armed.is_local());
            looks
                .own
                .extend(local.map(|armed| Look::into(armed.registry(&self.registry))));
        }
        looks
    }

    /// What a request asks of the limits that apply to it. (Written where it is to be: a decision is so short that moving it would show.)
    fn ask<'r: 'f, 'f>(
        &'r self,
        looks: &'f Looks<'r>,
        head: &RequestHead<'_>,
        questions: &mut Questions<'f>,
    ) -> Result<(), Box<Refusal>> {
        let head = head.seen_by(&self.callers);
        let mut own = looks.own.iter();
        for armed in &self.limits {
            let look = if armed.is_local() { own.next() } else { None };
            if let Some(question) = armed.ask(look.unwrap_or(&looks.common), &head)? {
                check::ask(questions, question);
            }
        }
        Ok(())
    }

    /// Takes what is asked of every limit, and counts the request as admitted, if it may go at once; else takes nothing.
    fn goes_at_once(&self, questions: &Questions<'_>, recent: Moment) -> bool {
        if let [question] = questions.as_slice()
            && let Some(demand) = &question.demand
        {
            // One limit, as most layers have it, has nobody to give anything back for.
            let limiter = question.limiter;
            let Some(taken) = limiter.take_at_once(demand.cost, demand.first_lease(), recent)
            else {
                return false;
            };
            self.goes(question, &taken, recent);
            return true;
        }
        let mut all = AllTaken::new();
        for (Question { limiter, .. }, demand) in demands(questions) {
            let Some(taken) = limiter.take_at_once(demand.cost, demand.first_lease(), recent)
            else {
                for ((question, _), taken) in zip(demands(questions), &all) {
                    question.limiter.undo(taken, recent);
                }
                return false;
            };
            all.push(taken);
        }
        for ((question, _), taken) in zip(demands(questions), &all) {
            self.goes(question, taken, recent);
        }
        for question in questions.iter().filter(|it| it.demand.is_none()) {
            question.counts_as_admitted(recent);
        }
        true
    }

    /// What one limit gave stays taken: the request goes.
    fn goes(&self, question: &Question<'_>, taken: &Taken, recent: Moment) {
        question.limiter.keep(taken);
        let registry = question.armed.registry(&self.registry);
        registry.record_attempt(question.limiter, taken.need(), recent);
        question.counts_as_admitted(recent);
    }

    /// Takes a place of every limit, or of none.
    fn take(&self, asked: &mut AskedOfAll, now: Moment) -> Result<(), Box<Denial>> {
        take(asked, &self.registry, |demand| demand.patience(now), now)
    }

    async fn after_leases(self: Arc<Self>, mut asked: AskedOfAll) -> Result<Fields, Box<Denial>> {
        asked.iter_mut().for_each(Asked::is_undecided);
        for one in &asked {
            one.lease().await;
        }
        self.take(&mut asked, clock::now())?;
        Turns::of(asked).come().await
    }
}

/// What the response to a request that goes at once says.
fn fields(questions: &Questions<'_>, recent: Moment) -> Fields {
    let mut fields = Fields::default();
    for Question { armed, limiter, .. } in questions {
        if !armed.is_shadow() {
            fields.add(&armed.field, &limiter.reading(recent), recent);
        }
    }
    fields
}

impl From<Refusal> for Denial {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            fields: Fields::default(),
        }
    }
}
