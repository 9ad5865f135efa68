//! Explains to operators why a holder has the capacity that it has.

use doorman_openapi::{
    AlgorithmKind, Balance, Band, Capacity, HeldBackBy, HolderKind, HolderView, Moment,
    Probability, ResourceView, Seconds, ServerUrl,
};

use crate::ledger::{
    algorithm::{BandShares, PriorityLimit, ShareRule},
    decide::GrantInput,
    holders::HolderId,
    resource::Resource,
    resource::decision::{TOLERANCE, reaches},
    resource::entry::Entry,
    resource::feedback::Feedback,
    terms::ResourceTerms,
};
use crate::rounded::rounded;

/// Shorter times, in seconds, would be shown as 0.
const SHORTEST_SHOWN: f64 = 0.001;

/// The terms of a resource under the current document, which it may not have adopted yet.
#[derive(Debug)]
pub(in crate::ledger) struct CurrentTerms<'a> {
    pub(in crate::ledger) terms: &'a ResourceTerms,
    pub(in crate::ledger) learning_until: Moment,
    pub(in crate::ledger) feedback: Feedback,
    /// For all holders that are shown.
    pub(in crate::ledger) bands: BandShares,
    pub(in crate::ledger) now: Moment,
}

impl CurrentTerms<'_> {
    pub(in crate::ledger) fn is_learning(&self) -> bool {
        self.now < self.learning_until
    }
}

/// One holder of a resource: a [`HolderView`] before its text is written.
#[derive(Debug, Clone, PartialEq)]
pub struct HolderStatus {
    /// The identifier of the client or node.
    pub id: String,
    /// Its demand by priority.
    pub bands: Vec<Band>,
    /// Its demand.
    pub wants: f64,
    /// The most that it may be using.
    pub booked: f64,
    kind: HolderKind,
    /// The address of a node, as it states it.
    pub(in crate::ledger) address: Option<ServerUrl>,
    share: f64,
    /// The share before rounding to whole steps.
    unrounded_share: Option<f64>,
    /// With PRIORITY_SHARE: why its share is not what it wants.
    priority_limit: Option<PriorityLimit>,
    has: f64,
    /// The grant if it refreshed now.
    next_grant: f64,
    /// The most that all other holders may be using.
    others: f64,
    held_back_by: Option<HeldBackBy>,
    outstanding: Capacity,
    used: Option<Capacity>,
    /// Seconds since its last decision.
    refreshed_ago: Option<f64>,
    /// Seconds until its refresh is due; negative if it is overdue.
    pub(in crate::ledger) due_in: Option<f64>,
    lease_end: Option<Moment>,
    /// In learning mode: whether its claim is confirmed.
    confirmed: bool,
    /// Seconds until all its capacity is free.
    expires_in: Seconds,
}

impl HolderStatus {
    /// Reports the lease as held back if it ends after `bound`: then its
    /// [`Grant`](crate::ledger::Grant) is capped.
    #[must_use]
    pub fn capped_at(self, bound: Moment) -> Self {
        if self.has > 0.0 && self.lease_end.is_some_and(|end| end > bound) {
            Self {
                held_back_by: Some(HeldBackBy::Bound),
                ..self
            }
        } else {
            self
        }
    }

    /// The view on the wire. `unix_now` is for display only.
    #[must_use]
    pub fn into_view(self, resource: &ResourceView, unix_now: u64) -> HolderView {
        HolderView {
            why: explain(resource, &self),
            client_id: self.id,
            kind: self.kind,
            clients: (self.kind == HolderKind::Node).then(|| {
                let clients = self.bands.iter().map(|band| band.num_clients.get());
                clients.fold(0, u64::saturating_add)
            }),
            address: self.address.map(|address| address.to_string()),
            priority: self.bands.first().map_or(0, |band| band.priority),
            wants: Capacity::saturating(self.wants),
            share: Capacity::saturating(self.share),
            has: Capacity::saturating(self.has),
            held_back_by: self.held_back_by,
            booked: self.booked,
            outstanding: self.outstanding,
            used: self.used,
            refreshed_ago: self.refreshed_ago.map(Seconds::saturating),
            expires_in: self.expires_in,
            expiry_time: unix_now.saturating_add(self.expires_in.get() as u64),
            bands: match self.kind {
                HolderKind::Client if self.bands.len() <= 1 => Vec::new(),
                HolderKind::Client | HolderKind::Node => self.bands,
            },
        }
    }
}

/// A holder's amounts among those of the others.
#[derive(Debug, Clone, Copy)]
struct HolderPosition {
    wants: f64,
    share: f64,
    has: f64,
    outstanding: f64,
    booked: f64,
    available: f64,
    /// In learning mode: whether its claim is confirmed.
    confirmed: bool,
}

impl HolderPosition {
    /// The grant if it refreshed now, claiming its lease and the same outstanding amount.
    fn next_grant(&self, rule: &ShareRule) -> f64 {
        let outstanding = self.outstanding.min(self.booked.max(self.available));
        let input = GrantInput {
            wants: self.wants,
            share: self.share,
            held: self.has.max(outstanding),
            available: self.available,
        };
        input.grant(rule)
    }

    fn held_back_by(&self, current: &CurrentTerms<'_>) -> Option<HeldBackBy> {
        if self.wants <= 0.0 {
            return None;
        }
        if current.terms.is_blocked() {
            return Some(HeldBackBy::Blocked);
        }
        // Feedback limits a holder whatever lease it has.
        let is_spent = |balance: Balance| balance.get() <= 0.0;
        let is_partial = |probability: Probability| probability.get() < 1.0;
        if current.feedback.balance().is_some_and(is_spent) {
            return Some(HeldBackBy::Balance);
        }
        if current
            .feedback
            .admission_probability()
            .is_some_and(is_partial)
        {
            return Some(HeldBackBy::Suppressed);
        }
        let has_share = self.confirmed && reaches(self.has, self.share);
        if reaches(self.has, self.wants) {
            None
        } else if current.is_learning() && !has_share {
            Some(HeldBackBy::Learning)
        } else if !reaches(self.has, self.next_grant(current.terms.rule())) {
            Some(HeldBackBy::NotRefreshed)
        } else if !reaches(self.has, self.share) {
            Some(HeldBackBy::Others)
        } else {
            Some(HeldBackBy::Share)
        }
    }
}

impl Resource {
    pub(in crate::ledger) fn holder_status(
        &self,
        entry: &Entry,
        holder: &HolderId,
        current: &mut CurrentTerms<'_>,
    ) -> HolderStatus {
        let &mut CurrentTerms { terms, now, .. } = current;
        let bands = entry.bands();
        let lease = entry.booking.lease(now);
        let others = self.booked.total_except(entry.slot.index());
        let available = terms.available_beside(others);
        let rule = self.rule_of(terms);
        let bands_of_all = &mut current.bands;
        let priority_limit = rule.priority_limit(bands_of_all, &self.demands, entry.demands());
        let unrounded_share =
            rule.unrounded_share(bands_of_all, &self.demands, entry.demands(), entry.polls);
        let is_below_others = priority_limit.is_some_and(|limit| {
            let higher = entry.demands().filter(|it| it.band() > limit.priority);
            let own: f64 = higher.map(|it| it.demand().wants).sum();
            !reaches(own, limit.higher)
        });
        let position = HolderPosition {
            wants: bands.iter().map(|band| band.wants.get()).sum(),
            share: self.share_of(entry, current, available),
            has: lease.map_or(0.0, |lease| lease.amount),
            outstanding: entry.outstanding.get(),
            booked: entry.booking.amount(now),
            available,
            confirmed: self.is_confirmed(entry),
        };
        HolderStatus {
            id: holder.as_str().to_owned(),
            bands,
            wants: position.wants,
            booked: position.booked,
            kind: holder.kind(),
            address: None,
            share: position.share,
            unrounded_share,
            priority_limit,
            has: position.has,
            next_grant: position.next_grant(terms.rule()),
            others,
            held_back_by: position.held_back_by(current).map(|reason| match reason {
                HeldBackBy::Share if is_below_others => HeldBackBy::HigherPriorities,
                other => other,
            }),
            outstanding: entry.outstanding,
            used: entry.used.get(),
            refreshed_ago: entry.last_decision.map(|last| now.seconds_since(last.at)),
            due_in: entry.last_decision.map(|last| {
                let due = last.due();
                due.seconds_since(now) - now.seconds_since(due)
            }),
            lease_end: lease.map(|lease| lease.end),
            confirmed: position.confirmed,
            expires_in: entry.booking.last_end().since(now).into(),
        }
    }

    /// The share at the next refresh with the same claims.
    fn share_of(&self, entry: &Entry, current: &mut CurrentTerms<'_>, available: f64) -> f64 {
        let rule = self.rule_of(current.terms);
        let (bands, demands) = (&mut current.bands, entry.demands());
        let share = rule.share_with(bands, &self.demands, demands, entry.polls);
        let hints = self.hints.as_ref();
        if hints.is_some_and(|hints| hints.may_keep_surplus(entry)) {
            let lease = entry
                .booking
                .lease(current.now)
                .map_or(0.0, |lease| lease.amount);
            let held = lease.max(entry.outstanding.get());
            let tolerance = current.terms.tuning().surplus_tolerance;
            rule.keep_surplus(share, entry.wants(), held, available, tolerance)
        } else {
            share
        }
    }

    /// The rule of terms that the resource may not have adopted: the demands are still in the order
    /// for the algorithm before.
    fn rule_of(&self, terms: &ResourceTerms) -> ShareRule {
        let rule = *terms.rule();
        if rule.reads_priorities() == self.demands.is_by_priority() {
            return rule;
        }
        ShareRule {
            kind: self.terms.rule().kind,
            ..rule
        }
    }

    /// The most that FAIR_SHARE gives one client in overload.
    pub(in crate::ledger) fn fill_level(&self, terms: &ResourceTerms) -> Option<f64> {
        self.rule_of(terms).fill_level(&self.demands)
    }

    /// The free part of a capacity that is divided.
    pub(in crate::ledger) fn free(&self, terms: &ResourceTerms) -> Option<f64> {
        terms.rule().divides().then(|| {
            let free = terms.available_beside(self.sum_has());
            // Hides what rounding leaves.
            if free > terms.capacity() * TOLERANCE {
                free
            } else {
                0.0
            }
        })
    }
}

/// Explains a holder's lease. Names no other holder: the reader may not be allowed to see them.
fn explain(resource: &ResourceView, holder: &HolderStatus) -> String {
    let mut text = match holder.held_back_by {
        None => explain_met(holder),
        Some(HeldBackBy::Share) => explain_share(resource, holder),
        Some(HeldBackBy::HigherPriorities) => explain_higher_priorities(resource, holder),
        Some(HeldBackBy::Others) => format!(
            "its share is {}, of which {} can be granted now: others still hold {} of {} until they \
             refresh, every {} s, or their leases expire",
            rounded(holder.share),
            rounded(holder.next_grant),
            rounded(holder.others),
            capacity(resource),
            rounded(resource.refresh_interval.get()),
        ),
        Some(HeldBackBy::Learning) => explain_learning(resource, holder),
        Some(HeldBackBy::Blocked) if resource.template.is_none() => {
            "no template matches, and the server rejects unmatched resources".to_owned()
        }
        Some(HeldBackBy::Blocked) => "the capacity is 0".to_owned(),
        Some(HeldBackBy::NotRefreshed) => explain_not_refreshed(holder),
        Some(HeldBackBy::Balance) => format!(
            "the shared bucket is empty (balance {}): requests are rejected until it refills",
            rounded(resource.balance.map_or(0.0, Balance::get)),
        ),
        Some(HeldBackBy::Suppressed) => format!(
            "demand exceeds {}: every holder admits requests with a probability of {}",
            capacity(resource),
            rounded(resource.admission_probability.map_or(1.0, Probability::get)),
        ),
        Some(HeldBackBy::Bound) => "the end of the lease is not yet on the server's disk: until \
             then the holder gets a shorter lease, or none"
            .to_owned(),
    };
    let overdue = holder.due_in.map(|due| -due);
    let is_late = |by: &f64| *by > resource.refresh_interval.get() && holder.booked > 0.0;
    if let Some(overdue) = overdue.filter(is_late) {
        text += &format!(
            "; its refresh is {} s overdue: without one, its capacity is free in {} s",
            rounded(overdue),
            rounded(holder.expires_in.get()),
        );
    }
    text
}

fn explain_met(holder: &HolderStatus) -> String {
    if holder.wants <= 0.0 {
        "it wants nothing".to_owned()
    } else if reaches(holder.share, holder.wants) {
        "it has what it wants".to_owned()
    } else {
        format!(
            "it has what it wants; its share is {} from its next refresh on",
            rounded(holder.share),
        )
    }
}

fn explain_share(resource: &ResourceView, holder: &HolderStatus) -> String {
    let share = rounded(holder.share);
    let is_met_unrounded = |share: f64| reaches(share, holder.wants);
    if holder.unrounded_share.is_some_and(is_met_unrounded) {
        return format!("its share is {share}, rounded to whole steps");
    }
    let rounding = holder
        .unrounded_share
        .map_or("", |_| ", rounded to whole steps");
    let demand = || {
        let wants = rounded(resource.sum_wants);
        format!("clients want {wants} of {}", capacity(resource))
    };
    match (resource.algorithm, resource.fill_level) {
        (AlgorithmKind::FairShare, Some(level)) => format!(
            "its share is {share}: {}, so each gets at most {}{rounding}",
            demand(),
            rounded(level)
        ),
        (AlgorithmKind::PriorityShare, _) => match holder.priority_limit {
            Some(limit) => format!(
                "its share is {share}: clients of {} want {} and get at most {} of {}, so each gets at \
                 most {}{rounding}",
                priority_of(holder, limit),
                rounded(limit.wants),
                rounded(limit.most),
                capacity(resource),
                rounded(limit.level),
            ),
            None => format!("its share is {share}{rounding}"),
        },
        (AlgorithmKind::ProportionalShare, _) => format!(
            "its share is {share}: {}, so each gets an equal part, and unused parts go to those that \
             want more{rounding}",
            demand()
        ),
        (AlgorithmKind::Static | AlgorithmKind::Suppression | AlgorithmKind::SharedBucket, _) => {
            format!("each holder gets at most {}{rounding}", capacity(resource))
        }
        // Without rounding, every demand is met here.
        (AlgorithmKind::FairShare | AlgorithmKind::NoAlgorithm, _) => {
            format!("its share is {share}{rounding}")
        }
    }
}

fn explain_higher_priorities(resource: &ResourceView, holder: &HolderStatus) -> String {
    let Some(limit) = holder.priority_limit else {
        return explain_share(resource, holder);
    };
    let rounding = holder
        .unrounded_share
        .map_or("", |_| ", rounded to whole steps");
    format!(
        "its share is {}, held back by higher priorities, which want {} of {}: {} gets at most {}, \
         and each of its clients at most {}{rounding}",
        rounded(holder.share),
        rounded(limit.higher),
        capacity(resource),
        priority_of(holder, limit),
        rounded(limit.most),
        rounded(limit.level),
    )
}

fn priority_of(holder: &HolderStatus, limit: PriorityLimit) -> String {
    match holder.bands.len() {
        0 | 1 => "its priority".to_owned(),
        _ => format!("priority {}", limit.priority),
    }
}

fn explain_learning(resource: &ResourceView, holder: &HolderStatus) -> String {
    let left = rounded(resource.learning_ends_in.map_or(0.0, Seconds::get));
    let meanwhile = if holder.confirmed {
        "until then it gets only what other holders give up"
    } else if holder.has > 0.0 {
        "it keeps what it claims until it has sent `heard_epoch`"
    } else {
        "a new holder gets nothing before it has sent `heard_epoch`"
    };
    format!("the server is in learning mode for {left} s: {meanwhile}")
}

fn explain_not_refreshed(holder: &HolderStatus) -> String {
    let since = if holder.lease_end.is_some() {
        "its share, or what is free, has grown since its last decision"
    } else {
        "its lease has expired"
    };
    let due = match holder.due_in {
        Some(due) if due >= SHORTEST_SHOWN => format!(", due within {} s", rounded(due)),
        Some(due) if due >= 0.0 => ", due now".to_owned(),
        _ => String::new(),
    };
    let next_grant = rounded(holder.next_grant);
    format!("{since}: it gets {next_grant} at its next refresh{due}")
}

fn capacity(resource: &ResourceView) -> String {
    rounded(resource.capacity.map_or(0.0, Capacity::get))
}
