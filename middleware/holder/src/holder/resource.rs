//! One resource of a holder: its lease and when to request it again.

use std::{sync::Arc, time::Duration};

use doorman_openapi::{
    Bucket, Capacity, HeldLease, Moment, Reason, ResourceId, ResourceRequest, ResourceResponse,
    Seconds, Seq, Unit,
};

use super::FOLLOW_UP_INTERVAL;
use crate::{
    event::{
        ActiveLease, Demand, DemandBands, Feedback, FirstAnswer, GrownBucket, LeaseStatus,
        ResourceTerms, SharedBalance, Sharing,
    },
    tuning::Tuning,
};

/// A new resource waits this long for others, so that a burst of new keys shares one request.
pub(super) const GATHER_TIME: Duration = Duration::from_millis(3);
/// The shortest time between requests for one resource, whatever a server says.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest request timeout, unless the lease ends before.
const MIN_TIMEOUT: Duration = Duration::from_secs(2);
/// A resource that is due within this part of its interval joins a request that is sent now.
const JOIN_FRACTION: f64 = 0.1;
/// The pause between a regular request and an early one. Shorter ones make no difference.
const MIN_EARLY_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause before an early request, unless a quarter of the interval is shorter.
const MAX_EARLY_PAUSE: Duration = Duration::from_millis(1250);
/// The shortest time between a request and one that reports the first overload since then, and
/// between two requests that report overloads of different resources.
pub(super) const MIN_OVERLOAD_PAUSE: Duration = Duration::from_millis(100);
/// The time between requests that report overloads, until one has none to report. Driven by time
/// alone: an interval that ends with an overload overstates their share.
const OVERLOAD_INTERVAL: Duration = Duration::from_millis(500);
/// How much sooner a report of overloads joins another request: half of the interval, so that the
/// reports of all resources soon share their requests.
const OVERLOAD_JOIN: Duration = Duration::from_millis(250);
/// Early requests leave at common moments this far apart, which bounds their number.
const EARLY_REQUEST_GRID: Duration = Duration::from_millis(10);
/// How many times a jump of demand is reported again under SUPPRESSION.
const FOLLOW_UPS: u8 = 10;
/// Capacities that differ by less than this part are equal: the server's sums are not exact.
const TOLERANCE: f64 = 1e-9;

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each changes on its own")]
pub(super) struct Resource {
    wants: Capacity,
    outstanding: Capacity,
    used: Capacity,
    priority: i32,
    bands: Option<Arc<DemandBands>>,
    /// The demand in the newest request.
    requested: Capacity,
    /// The use reported in the newest request.
    reported: Capacity,
    /// When the lease ends; the origin if there is none.
    ends: Moment,
    /// Those of the lease.
    capacity: Capacity,
    reason: Reason,
    /// `None`, unless the lease is one of the rare ones that are not divided.
    sharing: Option<Box<Sharing>>,
    /// The resource's terms once it was answered, those of its template before.
    terms: Option<Arc<ResourceTerms>>,
    first_answer: FirstAnswer,
    interval: Seconds,
    /// The newest request, and when it was sent; 0 before the first.
    newest: Seq,
    sent: Moment,
    /// In flight once sent; waiting when this very request is answered or fails. Any other response
    /// is stale. A grown demand moves `due` forward.
    in_flight: bool,
    /// When to request next, unless a request is in flight.
    due: Moment,
    /// Whether the newest request claimed a lease.
    claimed: bool,
    /// Whether the newest request reports a smaller lease.
    reporting_shrink: bool,
    /// Whether the next or newest request is early, for a grown demand.
    early: bool,
    /// The pause before an early request: 0 after a regular one, 1 after an early one, and more
    /// after early ones that brought no larger lease.
    pause_step: u8,
    /// Whether the next request reports returned capacity, and whether the newest one did.
    returns: bool,
    returned: bool,
    /// The unit of its limiter, if that is another one, and whether the next request tells it.
    limited_as: Option<Unit>,
    tells_unit: bool,
    /// Whether the newest one did.
    told_unit: bool,
    /// `None` if all of it is absent, as for most resources.
    rare: Option<Box<Rare>>,
    /// How many reports of a jump of demand are left under SUPPRESSION.
    follow_ups: u8,
    /// A hint asked for the next request.
    hinted: bool,
    rejected: bool,
    /// The control plane wants to hear of overloads early.
    reports_overloads: bool,
    /// There was an overload since the newest request was sent, and one before that it reported.
    overloaded: bool,
    told_overload: bool,
}

/// State that few resources have, or for a short time only.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Rare {
    /// The bucket of its limiter, if that saves up for long.
    bucket: Option<Bucket>,
    /// For the next request.
    feedback: Option<Feedback>,
    /// That of the newest response, for a new master.
    effective: Option<Capacity>,
}

/// The change that a response made.
struct LeaseChange {
    before: f64,
    after: f64,
    was_suppressed: bool,
    /// Whether its request was sent before it was due.
    was_early: bool,
}

impl Resource {
    pub(super) fn new(
        demand: Demand,
        terms: Option<Arc<ResourceTerms>>,
        first_answer: FirstAnswer,
        now: Moment,
    ) -> Self {
        let rare = Rare {
            bucket: demand.bucket,
            feedback: demand.feedback,
            effective: None,
        };
        Self {
            wants: demand.wants,
            outstanding: demand.outstanding,
            used: demand.used,
            priority: demand.priority,
            bands: demand.bands,
            requested: Capacity::ZERO,
            reported: Capacity::ZERO,
            ends: Moment::ORIGIN,
            capacity: Capacity::ZERO,
            reason: Reason::Granted,
            sharing: None,
            terms,
            first_answer,
            interval: DEFAULT_INTERVAL.into(),
            newest: Seq::ZERO,
            sent: Moment::ORIGIN,
            in_flight: false,
            due: now.after(GATHER_TIME),
            claimed: false,
            reporting_shrink: false,
            early: false,
            pause_step: 0,
            returns: false,
            returned: false,
            limited_as: None,
            tells_unit: false,
            told_unit: false,
            rare: (rare != Rare::default()).then(|| Box::new(rare)),
            follow_ups: 0,
            hinted: false,
            rejected: false,
            reports_overloads: false,
            overloaded: false,
            told_overload: false,
        }
    }

    pub(super) fn due(&self) -> Option<Moment> {
        (!self.in_flight).then_some(self.due)
    }

    pub(super) fn lease_end(&self) -> Option<Moment> {
        (self.ends > Moment::ORIGIN).then_some(self.ends)
    }

    pub(super) fn interval(&self) -> Duration {
        self.interval.duration()
    }

    pub(super) fn is_in_flight(&self, seq: Seq) -> bool {
        self.in_flight && self.newest == seq
    }

    /// Whether no later request than this one was sent.
    pub(super) fn is_newest(&self, seq: Seq) -> bool {
        self.newest == seq
    }

    /// Requests at `due` at the latest, or once the request in flight is answered. A rejected
    /// resource waits.
    pub(super) fn refresh_by(&mut self, due: Moment) {
        if self.in_flight {
            // The hint has overtaken the response.
            self.hinted = true;
        } else if due < self.due && !self.rejected {
            self.early = false;
            self.hinted = true;
            self.due = due;
        }
    }

    /// Lets a refresh that is due earlier be the hinted one, unless the lease ends before.
    pub(super) fn await_measurement(&mut self, until: Moment) {
        let lasts = self.lease_end().is_some_and(|end| until < end);
        if lasts && !self.in_flight && self.due < until {
            self.hinted = true;
            self.due = until;
        }
    }

    pub(super) fn is_hinted(&self) -> bool {
        self.hinted
    }

    pub(super) fn was_sent(&self) -> bool {
        self.newest > Seq::ZERO
    }

    fn sent(&self) -> Option<Moment> {
        self.was_sent().then_some(self.sent)
    }

    pub(super) fn is_rejected(&self) -> bool {
        self.rejected
    }

    fn held(&self, now: Moment) -> Option<Capacity> {
        (now < self.ends).then_some(self.capacity)
    }

    pub(super) fn joins(&self, now: Moment) -> bool {
        let Some(due) = self.due() else {
            return false;
        };
        let ahead = due.since(now);
        let interval = self.sent().map_or(Duration::ZERO, |sent| due.since(sent));
        let early = if self.overload_pause().is_some() {
            OVERLOAD_JOIN
        } else {
            interval.mul_f64(JOIN_FRACTION)
        };
        ahead <= GATHER_TIME || ahead <= early
    }

    /// The timeout of a request sent now: long enough for a slow server, but not past the end of
    /// the lease, and without a lease no longer than the longest pause between tries. A lost report
    /// of overloads must not delay the next one for long.
    pub(super) fn timeout(&self, tuning: &Tuning, now: Moment) -> Duration {
        let timeout = if self.has_overload_report() {
            MIN_TIMEOUT
        } else {
            (self.interval() / 2).max(MIN_TIMEOUT)
        };
        match self.lease_end() {
            Some(ends) if now < ends => timeout.min(ends.since(now)).max(MIN_INTERVAL),
            Some(_) | None => timeout.min(tuning.max_pause_without_lease),
        }
    }

    pub(super) fn send(
        &mut self,
        resource_id: ResourceId,
        seq: Seq,
        now: Moment,
    ) -> ResourceRequest {
        self.requested = self.wants;
        self.reported = self.used;
        self.sent = now;
        self.newest = seq;
        self.hinted = false;
        self.returned = std::mem::take(&mut self.returns);
        self.in_flight = true;
        let has = self.held(now);
        self.claimed = has.is_some();
        self.told_unit = self.tells_unit;
        self.told_overload = std::mem::take(&mut self.overloaded);
        let rare = self.rare();
        self.update_rare(|it| it.feedback = None);
        let told = self.told_terms();
        ResourceRequest {
            resource_id,
            wants: self.wants,
            priority: (self.priority != 0).then_some(self.priority),
            bands: self.bands.as_ref().map(|bands| bands.0.clone()),
            has: has.map(|capacity| HeldLease {
                capacity,
                effective: rare.effective,
            }),
            outstanding: self.outstanding,
            used: Some(self.used),
            unit: told.map(|terms| terms.unit),
            limited_as: self.limited_as.filter(|_| self.tells_unit),
            per: told
                .filter(|terms| terms.unit == Unit::Rate)
                .map(|terms| terms.per),
            bucket: rare.bucket,
            outcomes: rare.feedback.map(|it| Box::new(it.outcomes)),
            pause: rare.feedback.and_then(|it| it.pause(now)),
            seen: rare.feedback.and_then(|it| it.seen(now)).map(Box::new),
        }
    }

    fn rare(&self) -> Rare {
        self.rare.as_deref().copied().unwrap_or_default()
    }

    fn update_rare(&mut self, change: impl FnOnce(&mut Rare)) {
        let mut rare = self.rare();
        change(&mut rare);
        match &mut self.rare {
            known if rare == Rare::default() => *known = None,
            Some(known) => **known = rare,
            known => *known = Some(Box::new(rare)),
        }
    }

    /// Notes an overload, and reports the first one since the newest request early, but not before
    /// `earliest`.
    pub(super) fn on_overload(&mut self, earliest: Moment) {
        let is_first = !std::mem::replace(&mut self.overloaded, true);
        if is_first && !self.in_flight && !self.rejected {
            self.due = self.with_overload_report(self.due, earliest);
        }
    }

    /// Whether the newest request reported an overload early.
    pub(super) fn told_overload(&self) -> bool {
        self.reports_overloads && self.told_overload
    }

    /// Whether overloads are to be reported early.
    pub(super) fn has_overload_report(&self) -> bool {
        self.overload_pause().is_some()
    }

    /// The request in flight brought nothing, so the next one reports its overloads.
    pub(super) fn keep_overloads(&mut self) {
        self.overloaded |= std::mem::take(&mut self.told_overload);
    }

    /// `due`, or the time of an earlier request that reports overloads, not before `earliest`.
    fn with_overload_report(&self, due: Moment, earliest: Moment) -> Moment {
        let Some(pause) = self.overload_pause() else {
            return due;
        };
        due.min(self.sent.after(pause).max(earliest))
    }

    /// The pause from the newest request until one that reports overloads; `None` if none does.
    fn overload_pause(&self) -> Option<Duration> {
        match (self.told_overload, self.overloaded) {
            _ if !self.reports_overloads => None,
            (true, _) => Some(OVERLOAD_INTERVAL),
            (false, true) => Some(MIN_OVERLOAD_PAUSE),
            (false, false) => None,
        }
    }

    /// The terms that a server told for this resource, in whose unit the amounts of a request are;
    /// `None` before the first response, and without a template.
    fn told_terms(&self) -> Option<&ResourceTerms> {
        let terms = self.terms.as_deref()?;
        let is_told = self.first_answer == FirstAnswer::Received && terms.template.is_some();
        is_told.then_some(terms)
    }

    /// Takes other terms, and converts the demand to their period. Returns the factor.
    fn set_terms(&mut self, terms: Arc<ResourceTerms>) -> f64 {
        let factor = match self.terms.as_deref() {
            Some(old) if old.unit == Unit::Rate && terms.unit == Unit::Rate => {
                terms.per.get() / old.per.get()
            }
            Some(_) | None => 1.0,
        };
        self.terms = Some(terms);
        if factor == 1.0 {
            return factor;
        }
        let scale = |amount: &mut Capacity| *amount = Capacity::saturating(amount.get() * factor);
        scale(&mut self.wants);
        scale(&mut self.outstanding);
        scale(&mut self.requested);
        if let Some(bands) = &mut self.bands {
            let bands = &mut Arc::make_mut(bands).0;
            bands.iter_mut().for_each(|band| scale(&mut band.wants));
        }
        factor
    }

    pub(super) fn set_demand(&mut self, demand: &Demand, tuning: &Tuning, now: Moment) {
        self.wants = demand.wants;
        self.outstanding = demand.outstanding;
        self.used = demand.used;
        self.priority = demand.priority;
        self.bands.clone_from(&demand.bands);
        self.update_rare(|rare| {
            rare.bucket = demand.bucket;
            rare.feedback = demand.feedback.or(rare.feedback);
        });
        if std::mem::replace(&mut self.limited_as, demand.limited_as) != demand.limited_as {
            self.tells_unit = demand.limited_as.is_some();
        }
        self.advance_due(tuning, now);
    }

    /// Requests early when the demand has outgrown both the lease and the last request. Under
    /// SUPPRESSION each lease is the whole capacity, so a part of it counts. Early requests that
    /// bring nothing become rarer.
    fn advance_due(&mut self, tuning: &Tuning, now: Moment) {
        let (Some(due), Some(sent)) = (self.due(), self.sent()) else {
            return;
        };
        let wants = self.wants.get();
        let held = self.held(now).unwrap_or_default().get();
        let requested = self.requested.get();
        let grown = if self.is_suppressed() {
            let wants = self.without_noise(wants, now.seconds_since(sent));
            wants > requested * tuning.early_growth && self.is_notable(wants - requested, tuning)
        } else if self.is_gauge() {
            // It is counted, not measured.
            wants > held && wants > requested
        } else {
            wants > held && wants > requested * tuning.early_growth
        };
        if self.rejected || !grown {
            return;
        }
        let longest = (self.interval() / 4).clamp(MIN_INTERVAL, MAX_EARLY_PAUSE);
        let pause = match self.pause_step {
            0 => MIN_EARLY_PAUSE,
            step => MIN_INTERVAL.saturating_mul(1 << (step - 1).min(4)),
        };
        let early = next_on_grid(sent.after(pause.min(longest)).max(now));
        if early < due {
            self.early = true;
            self.due = early;
        }
    }

    pub(super) fn on_response(
        &mut self,
        response: &ResourceResponse,
        terms: Arc<ResourceTerms>,
        keeps_interval: bool,
        tuning: &Tuning,
        now: Moment,
        rng: &mut fastrand::Rng,
    ) {
        if self.claimed && self.held(now).is_none() {
            // The claimed lease has expired meanwhile. A restarted server may only have repeated
            // the claim, and others may hold the capacity by now: request it again without a claim.
            self.retry_at(now);
            return;
        }
        self.tells_unit &= !self.told_unit;
        let sent = self.sent().unwrap_or(now);
        let mut before = self.held(now).unwrap_or_default().get();
        let was_suppressed = self.is_suppressed();
        match granted_lease(response, sent, self.reported, now) {
            Some(lease) if now < lease.ends => self.set_lease(lease),
            Some(_) | None => self.drop_lease(),
        }
        // A node whose parent has not answered knows no terms. Earlier ones stay.
        let are_known = response.template.is_some() || response.gets.lease_length > Seconds::ZERO;
        if are_known || self.terms.is_none() {
            before *= self.set_terms(terms);
        }
        self.first_answer = FirstAnswer::Received;
        self.rejected = false;
        self.reports_overloads = response.report;
        self.update_rare(|rare| rare.effective = response.gets.effective);
        let interval = response.gets.refresh_interval.duration().max(MIN_INTERVAL);
        // The whole fleet confirms its claims at a new master, or waits until others have. Nobody
        // is the worse for it if that takes one interval as before, and no second brings all.
        let is_sooner = interval < self.interval() && self.lease_end().is_some();
        if !(keeps_interval && is_sooner) {
            self.interval = interval.into();
        }

        let change = LeaseChange {
            before,
            after: self.held(now).unwrap_or_default().get(),
            was_suppressed,
            was_early: std::mem::take(&mut self.early),
        };
        self.pace(&change);
        let due = match self.pause_after(response, &change, tuning) {
            Some(pause) => now.after(pause),
            None => {
                // A rise is measured in a short time and may be too high, at the cost of others.
                let is_confirmed_soon = change.was_early
                    && response.reason == Reason::Granted
                    && response.gets.capacity <= self.requested;
                let due = self.next_refresh(sent, tuning, now, rng);
                if is_confirmed_soon {
                    due.min(sent.after(tuning.confirm_rise_after))
                } else {
                    due
                }
            }
        };
        self.retry_at(self.with_overload_report(due, now));
        self.advance_due(tuning, now);
    }

    /// Counts the follow-ups that are left, and the pauses between early requests.
    fn pace(&mut self, change: &LeaseChange) {
        self.follow_ups = if change.was_early && self.is_suppressed() {
            FOLLOW_UPS
        } else {
            self.follow_ups.saturating_sub(1)
        };
        self.pause_step = match (change.was_early, change.after > change.before) {
            (false, _) => 0,
            // It grows by counts, which are small.
            (true, true) if self.is_gauge() => 0,
            (true, true) => 1,
            (true, false) => self.pause_step.max(1).saturating_add(1),
        };
    }

    /// The pause until the next request if that is not due at a refresh.
    fn pause_after(
        &mut self,
        response: &ResourceResponse,
        change: &LeaseChange,
        tuning: &Tuning,
    ) -> Option<Duration> {
        let &LeaseChange { before, after, .. } = change;
        let shrunk = after < before * (1.0 - TOLERANCE)
            && (response.reason != Reason::Granted
                || self.lease_end().is_none()
                || self.is_notable(before - after, tuning));
        let reported_shrink = std::mem::replace(&mut self.reporting_shrink, shrunk);
        match (shrunk, reported_shrink) {
            (true, false) => Some(Duration::ZERO),
            // A server may shrink the lease at every report: pace the reports.
            (true, true) => Some(MIN_INTERVAL),
            (false, _) if self.hinted => Some(Duration::ZERO),
            // The demand was not yet measured as SUPPRESSION needs it: report it again.
            (false, _) if self.is_suppressed() && !change.was_suppressed => Some(MIN_INTERVAL),
            (false, _) if self.follow_ups > 0 => Some(FOLLOW_UP_INTERVAL),
            (false, _) => None,
        }
    }

    fn is_gauge(&self) -> bool {
        let terms = self.terms.as_ref();
        terms.is_some_and(|terms| terms.unit == Unit::Gauge)
    }

    /// Reports that units of a gauge were given back, or that a node's holders have changed: the
    /// first time at once, later changes together.
    pub(super) fn report_returned(&mut self, now: Moment) {
        let due = if self.returned {
            self.sent.after(MIN_EARLY_PAUSE).max(now)
        } else {
            now
        };
        self.returns = true;
        self.refresh_by(due);
    }

    fn is_suppressed(&self) -> bool {
        self.terms.as_ref().is_some_and(|terms| terms.suppressed)
    }

    /// A demand that was measured for so many seconds, less two standard deviations of counting.
    fn without_noise(&self, wants: f64, seconds: f64) -> f64 {
        let per = self.terms.as_ref().map_or(1.0, |terms| terms.per.get());
        wants - 2.0 * (wants * per / seconds.max(FOLLOW_UP_INTERVAL.as_secs_f64())).sqrt()
    }

    /// Whether others should soon have a capacity that this holder no longer wants.
    fn is_notable(&self, freed: f64, tuning: &Tuning) -> bool {
        let limit = self.terms.as_ref().and_then(|terms| terms.limit);
        limit.is_none_or(|limit| freed > limit.get() * tuning.notable)
    }

    fn next_refresh(
        &self,
        sent: Moment,
        tuning: &Tuning,
        now: Moment,
        rng: &mut fastrand::Rng,
    ) -> Moment {
        let refresh = sent.after(self.interval());
        let latest = match self.lease_end() {
            Some(ends) => refresh.min(now.after(ends.since(now) / 2)),
            None => refresh.min(sent.after(tuning.max_pause_without_lease)),
        };
        let wait = latest.since(now).mul_f64(1.0 - tuning.jitter * rng.f64());
        now.after(wait.max(MIN_INTERVAL))
    }

    /// The newest request brought nothing: the lease stays and is requested again at `due`.
    pub(super) fn retry_at(&mut self, due: Moment) {
        self.in_flight = false;
        self.due = due;
    }

    /// Like [`retry_at`](Self::retry_at), after a failure of the control plane.
    pub(super) fn fail_until(&mut self, due: Moment) {
        self.retry_at(due);
        if self.first_answer == FirstAnswer::Awaited {
            self.first_answer = FirstAnswer::Failed;
        }
    }

    /// The control plane rejected the resource. Returns whether it was accepted before.
    pub(super) fn reject_until(&mut self, due: Moment) -> bool {
        self.fail_until(due);
        !std::mem::replace(&mut self.rejected, true)
    }

    fn set_lease(&mut self, lease: ActiveLease) {
        let ActiveLease {
            capacity,
            ends,
            reason,
            sharing,
        } = lease;
        self.capacity = capacity;
        self.ends = ends;
        self.reason = reason;
        self.sharing = (sharing != Sharing::Divided).then(|| Box::new(sharing));
    }

    pub(super) fn drop_lease(&mut self) {
        self.ends = Moment::ORIGIN;
        self.capacity = Capacity::ZERO;
        self.sharing = None;
    }

    /// The status now. No request is sent before `not_before`.
    pub(super) fn status(&self, not_before: Moment, now: Moment) -> LeaseStatus {
        LeaseStatus {
            lease: (now < self.ends).then(|| ActiveLease {
                capacity: self.capacity,
                ends: self.ends,
                reason: self.reason,
                sharing: self.sharing.as_deref().copied().unwrap_or_default(),
            }),
            terms: self.terms.clone(),
            first_answer: self.first_answer,
            requested: self.requested,
            refresh_interval: self.interval(),
            refresh_at: self.due().unwrap_or(now).max(not_before),
            reports_overloads: self.reports_overloads,
        }
    }
}

fn next_on_grid(earliest: Moment) -> Moment {
    let step = EARLY_REQUEST_GRID.as_nanos() as u64;
    earliest
        .as_nanos()
        .checked_next_multiple_of(step)
        .map_or(Moment::NEVER, Moment::from_nanos)
}

/// The lease in a response. It may be 0, while others have the capacity or the resource is blocked.
fn granted_lease(
    response: &ResourceResponse,
    sent: Moment,
    reported: Capacity,
    now: Moment,
) -> Option<ActiveLease> {
    let lease = response.gets;
    (lease.lease_length > Seconds::ZERO).then(|| ActiveLease {
        capacity: lease.capacity,
        ends: sent.after(lease.lease_length.duration()),
        reason: response.reason,
        sharing: if let Some(tokens) = response.balance {
            Sharing::Bucket(SharedBalance {
                tokens,
                used: reported,
                received_at: now,
            })
        } else if let Some(probability) = response.admission_probability {
            Sharing::Suppressed(probability)
        } else if let Some(tokens) = response.tokens {
            Sharing::Grown(GrownBucket {
                tokens,
                received_at: now,
            })
        } else {
            Sharing::Divided
        },
    })
}
