//! Explains to operators why a holder has the capacity that it has.

use doorman_openapi::{
    AlgorithmKind, Balance, Capacity, HeldBackBy, HolderKind, HolderView, Moment, Probability,
    ResourceView, Seconds,
};

use crate::ledger::{
    algorithm::{BandShares, PriorityLimit, ShareRule},
    decide::GrantInput,
    holders::HolderId,
    resource::Resource,
    resource::decision::{TOLERANCE, reaches},
    resource::entry::Entry,
    resource::signal::Signal,
    terms::ResourceTerms,
};
use crate::rounded::rounded;

/// Shorter times, in seconds, would be shown as 0.
const SHORTEST_SHOWN: f64 = 0.001;

/// Small shares matter from this part of the capacity on. Below it each client gets at least twice
/// what it wants.
const SMALL_SHARES_FROM: f64 = 0.5;

/// The terms of a resource under the current document, which it may not have adopted yet.
#[derive(Debug)]
pub(in crate::ledger) struct CurrentTerms<'a> {
    pub(in crate::ledger) terms: &'a ResourceTerms,
    pub(in crate::ledger) learning_until: Moment,
    pub(in crate::ledger) signal: Signal,
    /// For all holders that are shown.
    pub(in crate::ledger) bands: BandShares,
    pub(in crate::ledger) now: Moment,
}

impl CurrentTerms<'_> {
    pub(in crate::ledger) fn is_learning(&self) -> bool {
        self.now < self.learning_until
    }
}

/// One holder of a resource, with what an explanation of its lease says.
#[derive(Debug, Clone, PartialEq)]
pub struct HolderStatus {
    /// The view on the wire, without an explanation and the time of day.
    pub view: HolderView,
    /// The share before rounding to whole steps.
    unrounded_share: Option<f64>,
    /// With PRIORITY_SHARE: why its share is not what it wants.
    priority_limit: Option<PriorityLimit>,
    /// The grant if it refreshed now.
    next_grant: f64,
    /// The most that all other holders may be using.
    others: f64,
    /// Seconds until its refresh is due; negative if it is overdue.
    pub(in crate::ledger) due_in: Option<f64>,
    lease_end: Option<Moment>,
    /// In learning mode: whether its claim is confirmed.
    confirmed: bool,
    /// Whether it wants more than its share, and has tokens in a long bucket.
    has_tokens: bool,
}

impl HolderStatus {
    /// Reports the lease as held back if it ends after `bound`: then its
    /// [`Grant`](crate::ledger::Grant) is capped.
    #[must_use]
    pub fn capped_at(mut self, bound: Moment) -> Self {
        if self.view.has > Capacity::ZERO && self.lease_end.is_some_and(|end| end > bound) {
            self.view.held_back_by = Some(HeldBackBy::Bound);
        }
        self
    }

    /// The view on the wire. `unix_now` is for display only.
    #[must_use]
    pub fn into_view(self, resource: &ResourceView, unix_now: u64) -> HolderView {
        HolderView {
            why: explain(resource, &self),
            refused_since: (self.view.refused_for)
                .map(|seconds| unix_now.saturating_sub(seconds.get() as u64)),
            expiry_time: unix_now.saturating_add(self.view.expires_in.get() as u64),
            ..self.view
        }
    }

    /// The grant if it refreshed now, claiming its lease and the same outstanding amount.
    fn grant_at_refresh(&self, rule: &ShareRule, available: f64) -> f64 {
        let view = &self.view;
        let outstanding = view.outstanding.get().min(view.booked.max(available));
        let input = GrantInput {
            wants: view.wants.get(),
            share: view.share.get(),
            held: view.has.get().max(outstanding),
            available,
        };
        input.grant(rule)
    }

    fn held_back_by(
        &self,
        current: &CurrentTerms<'_>,
        is_unleased: bool,
        is_below_others: bool,
    ) -> Option<HeldBackBy> {
        let [wants, share, has] = [self.view.wants, self.view.share, self.view.has];
        let [wants, share, has] = [wants, share, has].map(Capacity::get);
        if wants <= 0.0 {
            return None;
        }
        // Its terms, such as a share of 0, only follow from that.
        if is_unleased {
            return Some(HeldBackBy::Parent);
        }
        if current.terms.is_blocked() {
            return Some(HeldBackBy::Blocked);
        }
        // A signal limits a holder whatever lease it has.
        let is_spent = |balance: Balance| balance.get() <= 0.0;
        let is_partial = |probability: Probability| probability.get() < 1.0;
        if current.signal.balance().is_some_and(is_spent) {
            return Some(HeldBackBy::Balance);
        }
        if current
            .signal
            .admission_probability()
            .is_some_and(is_partial)
        {
            return Some(HeldBackBy::Suppressed);
        }
        if reaches(has, wants) {
            None
        } else if current.is_learning() && !(self.confirmed && reaches(has, share)) {
            Some(HeldBackBy::Learning)
        } else if !reaches(has, self.next_grant) {
            Some(HeldBackBy::NotRefreshed)
        } else if !reaches(has, share) {
            Some(HeldBackBy::Others)
        } else if is_below_others {
            Some(HeldBackBy::HigherPriorities)
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
        let others = self.booked.total_except(entry.slot.index());
        let available = terms.available_beside(others);
        let rule = self.rule_of(terms);
        let bands_of_all = &mut current.bands;
        let priority_limit = rule.priority_limit(bands_of_all, &self.demands, entry.demands());
        let unrounded_share = rule.unrounded_share(
            bands_of_all,
            &self.demands,
            entry.demands(),
            entry.polling(&self.demands),
        );
        let is_below_others = priority_limit.is_some_and(|limit| {
            let higher = entry.demands().filter(|it| it.band() > limit.priority);
            let own: f64 = higher.map(|it| it.demand().wants).sum();
            !reaches(own, limit.higher)
        });
        let mut status = HolderStatus {
            view: self.holder_view(entry, holder, current),
            unrounded_share,
            priority_limit,
            next_grant: 0.0,
            others,
            due_in: entry.last_decision.map(|last| {
                let due = last.due();
                due.seconds_since(now) - now.seconds_since(due)
            }),
            lease_end: entry.booking.lease(now).map(|lease| lease.end),
            confirmed: self.is_confirmed(entry),
            has_tokens: false,
        };
        let parent = self.parent.as_deref();
        let is_unleased = parent.is_some_and(|it| !it.is_leased(now));
        status.next_grant = status.grant_at_refresh(terms.rule(), available);
        status.view.held_back_by = status.held_back_by(current, is_unleased, is_below_others);
        if status.view.held_back_by.is_some_and(is_by_shares) && self.has_tokens(entry) {
            status.view.held_back_by = None;
            status.has_tokens = true;
        }
        status.view.wants = Capacity::saturating(self.shown_wants_of(entry, now));
        status
    }

    fn holder_view(
        &self,
        entry: &Entry,
        holder: &HolderId,
        current: &mut CurrentTerms<'_>,
    ) -> HolderView {
        let now = current.now;
        let kind = holder.kind();
        let bands = entry.bands();
        let lease = entry.booking.lease(now);
        let clients = bands.iter().map(|band| band.num_clients.get());
        let last = entry.last_decision;
        let reported = self.outcomes.as_ref();
        let reported = reported.and_then(|it| it.of_holder(entry.slot));
        let refused_since = reported.and_then(|it| it.refused_since);
        HolderView {
            client_id: holder.as_str().to_owned(),
            run: holder.run(),
            duplicate_client: false,
            kind,
            clients: (kind == HolderKind::Node).then(|| clients.fold(0, u64::saturating_add)),
            address: None,
            priority: bands.first().map_or(0, |band| band.priority),
            wants: Capacity::saturating(bands.iter().map(|band| band.wants.get()).sum()),
            share: Capacity::saturating(self.share_of(entry, current)),
            has: Capacity::saturating(lease.map_or(0.0, |lease| lease.amount)),
            held_back_by: None,
            why: String::new(),
            booked: entry.booking.amount(now),
            outstanding: entry.outstanding,
            used: entry.used.get(),
            outcomes: reported.map(|it| it.totals),
            refused_for: refused_since.map(|since| Seconds::saturating(now.seconds_since(since))),
            refused_since: None,
            overloaded_share: reported.and_then(|it| it.overloaded_share),
            suffers_alone: (self.effective.as_ref())
                .is_some_and(|it| it.suffers_alone(entry.slot, now)),
            refreshed_ago: last.map(|last| Seconds::saturating(now.seconds_since(last.at))),
            expires_in: entry.booking.last_end().since(now).into(),
            expiry_time: 0,
            bands: match kind {
                HolderKind::Client if bands.len() <= 1 => Vec::new(),
                HolderKind::Client | HolderKind::Node => bands,
            },
        }
    }

    /// The share at the next refresh with the same claims.
    fn share_of(&self, entry: &Entry, current: &mut CurrentTerms<'_>) -> f64 {
        let rule = self.rule_of(current.terms);
        let (bands, demands) = (&mut current.bands, entry.demands());
        rule.share_with(bands, &self.demands, demands, entry.polling(&self.demands))
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

    /// Whether an equal share of the clients that make requests is less than one request per
    /// refresh interval, or in the time of a long bucket, and the rest of the capacity is too small
    /// to make up for it.
    pub(in crate::ledger) fn shares_are_below_one(
        &self,
        terms: &ResourceTerms,
        now: Moment,
    ) -> bool {
        let burst = self.long_burst();
        // The quick checks first: each decision comes here.
        terms.shares_are_below_one(self.clients(), burst)
            && self.shown_wants(now) >= SMALL_SHARES_FROM * terms.capacity()
            && terms.shares_are_below_one(self.requesting_clients(now), burst)
    }

    /// The demand beyond what may be leased.
    pub(in crate::ledger) fn unmet(&self, terms: &ResourceTerms, now: Moment) -> f64 {
        let rule = self.rule_of(terms);
        if self.long_burst() > 0.0 {
            rule.without_rounding(self.shown_wants(now) - terms.capacity())
        } else {
            rule.unmet(&self.demands)
        }
    }

    /// The most that FAIR_SHARE gives one client in overload.
    pub(in crate::ledger) fn fill_level(&self, terms: &ResourceTerms, now: Moment) -> Option<f64> {
        let is_overload = self.unmet(terms, now) > 0.0;
        is_overload.then(|| self.rule_of(terms).fill_level(&self.demands))?
    }

    /// The free part of a capacity that is divided. In learning mode it is unknown until all leases
    /// of the predecessor are.
    pub(in crate::ledger) fn free(&self, current: &CurrentTerms<'_>) -> Option<f64> {
        let terms = current.terms;
        let is_known = !current.is_learning() || self.are_shares_known(current.now);
        (terms.rule().divides() && is_known).then(|| {
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

/// A cause that does not hold back requests while a long bucket has tokens.
fn is_by_shares(cause: HeldBackBy) -> bool {
    matches!(
        cause,
        HeldBackBy::Share
            | HeldBackBy::HigherPriorities
            | HeldBackBy::Others
            | HeldBackBy::NotRefreshed
    )
}

/// Explains a holder's lease. Names no other holder: the reader may not be allowed to see them.
fn explain(resource: &ResourceView, holder: &HolderStatus) -> String {
    let mut text = match holder.view.held_back_by {
        None => explain_met(holder),
        Some(HeldBackBy::Share) => explain_share(resource, holder),
        Some(HeldBackBy::HigherPriorities) => explain_higher_priorities(resource, holder),
        Some(HeldBackBy::Others) => format!(
            "its share is {}, of which {} can be granted now: others still hold {} of {} until they \
             refresh, every {} s, or their leases expire",
            rounded(holder.view.share.get()),
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
            "{}: every holder admits requests with a probability of {}",
            demand_above_capacity(resource),
            rounded(resource.admission_probability.map_or(1.0, Probability::get)),
        ),
        Some(HeldBackBy::Bound) => "the end of the lease is not yet on the server's disk: until \
             then the holder gets a shorter lease, or none"
            .to_owned(),
        Some(HeldBackBy::Parent) => "this node has no lease from its parent".to_owned(),
    };
    let overdue = holder.due_in.map(|due| -due);
    let is_late = |by: &f64| *by > resource.refresh_interval.get() && holder.view.booked > 0.0;
    if let Some(overdue) = overdue.filter(is_late) {
        text += &format!(
            "; its refresh is {} s overdue: without one, its capacity is free in {} s",
            rounded(overdue),
            rounded(holder.view.expires_in.get()),
        );
    }
    text
}

/// SUPPRESSION goes by the demand of the last 24 seconds, in a tree by that of all nodes.
fn demand_above_capacity(resource: &ResourceView) -> String {
    let capacity = capacity(resource);
    if resource.unmet > 0.0 {
        format!("demand exceeds {capacity}")
    } else if resource.parent.is_some() {
        format!("the demand of the tree exceeds {capacity}")
    } else {
        format!("demand exceeded {capacity} within the last 24 s")
    }
}

fn explain_met(holder: &HolderStatus) -> String {
    if holder.view.wants.get() <= 0.0 {
        "it wants nothing".to_owned()
    } else if reaches(holder.view.share.get(), holder.view.wants.get()) {
        "it has what it wants".to_owned()
    } else if holder.has_tokens {
        let share = rounded(holder.view.share.get());
        format!("its share is {share}, and its bucket has tokens")
    } else {
        format!(
            "it has what it wants; its share is {} from its next refresh on",
            rounded(holder.view.share.get()),
        )
    }
}

fn explain_share(resource: &ResourceView, holder: &HolderStatus) -> String {
    let share = rounded(holder.view.share.get());
    let is_met_unrounded = |share: f64| reaches(share, holder.view.wants.get());
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
        (Some(AlgorithmKind::FairShare), Some(level)) => format!(
            "its share is {share}: {}, so each gets at most {}{rounding}",
            demand(),
            rounded(level)
        ),
        (Some(AlgorithmKind::PriorityShare), _) => match holder.priority_limit {
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
        (Some(AlgorithmKind::ProportionalShare), _) => format!(
            "its share is {share}: {}, so each gets an equal part, and unused parts go to those that \
             want more{rounding}",
            demand()
        ),
        (
            Some(AlgorithmKind::Static | AlgorithmKind::Suppression | AlgorithmKind::SharedBucket),
            _,
        ) => {
            format!("each holder gets at most {}{rounding}", capacity(resource))
        }
        // Without rounding, every demand is met here.
        (Some(AlgorithmKind::FairShare | AlgorithmKind::NoAlgorithm) | None, _) => {
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
        rounded(holder.view.share.get()),
        rounded(limit.higher),
        capacity(resource),
        priority_of(holder, limit),
        rounded(limit.most),
        rounded(limit.level),
    )
}

fn priority_of(holder: &HolderStatus, limit: PriorityLimit) -> String {
    match holder.view.bands.len() {
        0 | 1 => "its priority".to_owned(),
        _ => format!("priority {}", limit.priority),
    }
}

fn explain_learning(resource: &ResourceView, holder: &HolderStatus) -> String {
    let left = rounded(resource.learning_ends_in.map_or(0.0, Seconds::get));
    let meanwhile = if holder.confirmed {
        "until then it gets only what other holders give up"
    } else if holder.view.has.get() > 0.0 {
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
