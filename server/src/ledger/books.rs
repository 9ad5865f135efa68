//! The books of all resources.

mod counts;
mod handover;
mod holders;
mod look;
mod reload;
mod renewals;
mod requests;
mod survey;
mod views;

pub use holders::{HolderCursor, HolderPage, ListError};
pub use look::PageQuery;
pub use renewals::RenewalCheck;
pub use requests::ReleaseProgress;
pub use survey::Survey;
pub use views::ResourcePage;

use std::{collections::BTreeMap, sync::Arc};

use doorman_config::Document;
use doorman_openapi::{Capacity, Moment, Reason, ResourceId, Seconds};
use slab::Slab;

use super::{
    Feedback, Grant, LedgerEvent, LedgerEvents, LedgerStats, Predecessor, Settings,
    alarms::Alarms,
    decision::Decision,
    holders::{HolderId, Holders},
    order::Order,
    resource::{Ask, HolderKey, Resource},
    steady_map::SteadyMap,
    terms::Terms,
    undivided::Reign,
};

/// How many notices wait to be taken; of those beyond only their number is kept.
const MAX_NOTICES: usize = 256;

/// The books of all resources, and the decisions taken on them.
///
/// Every call that changes them takes the time at which the request was **handled**, sampled once at its entry; calls must come
/// with times that do not go back.
#[derive(Debug)]
pub struct Ledger {
    document: Arc<Document>,
    settings: Settings,
    started: Moment,
    /// All resources, in the order in which they are listed.
    by_id: BTreeMap<ResourceId, u32>,
    /// The same, found in one step. Identifiers come from clients: hashed with a seed of this process.
    keys: SteadyMap<ResourceId, u32, foldhash::quality::RandomState>,
    live: Slab<Live>,
    /// How many resources came so far.
    came: u64,
    holders: Holders,
    /// How often the document was replaced: terms of an older one are replaced when their resource is next asked for.
    generation: u64,
    /// When a resource has to be looked at although nobody asks.
    ends: Alarms<u32>,
    counts: LedgerStats,
    notices: LedgerEvents,
}

/// A resource with what the books of all resources keep of it.
#[derive(Debug)]
struct Live {
    id: ResourceId,
    /// Tells it from one of the same name that was forgotten: the places of its holders mean nothing in this one.
    incarnation: u64,
    resource: Resource,
    /// Of which document its terms are.
    generation: u64,
    /// When it rings for this resource; any other alarm is an old one.
    alarm: Moment,
    /// That no template matches it has been told.
    told_of_no_template: bool,
    /// An excess claim has been told of.
    told_of_claim: bool,
    /// That more was in use than was leased has been told.
    told_of_outlived: bool,
    /// That its shares are too small has been told.
    told_of_shares_below_one: bool,
}

impl Ledger {
    /// Empty books under this document.
    #[must_use]
    pub fn new(document: Arc<Document>, settings: Settings, now: Moment) -> Self {
        Self {
            document,
            settings,
            started: now,
            by_id: BTreeMap::new(),
            keys: SteadyMap::default(),
            live: Slab::new(),
            came: 0,
            holders: Holders::default(),
            generation: 0,
            ends: Alarms::default(),
            counts: LedgerStats::default(),
            notices: LedgerEvents::default(),
        }
    }

    /// Frees what has run out, in at most `budget` steps, so that no caller waits long for the books. Returns when there is
    /// something to do again, which may be at once; `None` when the books are empty.
    pub fn sweep(&mut self, now: Moment, budget: usize) -> Option<Moment> {
        for _ in 0..budget {
            let Some((at, key)) = self.ends.ring(now) else {
                break;
            };
            let Some(live) = self
                .live
                .get_mut(key as usize)
                .filter(|live| live.alarm == at)
            else {
                continue;
            };
            live.alarm = Moment::NEVER;
            self.expire(key, now);
        }
        self.ends.next()
    }

    /// How much the books hold.
    #[must_use]
    pub fn stats(&self) -> LedgerStats {
        LedgerStats {
            resources: self.by_id.len(),
            ..self.counts
        }
    }

    /// The most leases that they hold.
    #[must_use]
    pub fn max_leases(&self) -> usize {
        self.settings.max_leases
    }

    /// What an operator should read that has not been taken yet.
    pub fn take_events(&mut self) -> LedgerEvents {
        std::mem::take(&mut self.notices)
    }

    /// Decides what a holder that asks gets of one resource.
    fn refresh(&mut self, holder: HolderKey, id: &ResourceId, ask: &Ask<'_>, now: Moment) -> Grant {
        let key = self.find_or_add(id, now);
        self.adopt(key, now);
        let Some(live) = self.live.get_mut(key as usize) else {
            return self.full(id, 0.0);
        };
        let holders = &mut self.holders;
        let before = live.resource.len();
        live.resource
            .expire_some(now, |holder| holders.left(holder, key));
        self.counts.leases = (self.counts.leases + live.resource.len()).saturating_sub(before);

        if !live.resource.knows(holder) {
            let of_tenant = holders.leases_of_tenant(holder);
            let share = self.settings.max_leases_per_tenant();
            if self.counts.leases >= self.settings.max_leases || of_tenant >= Some(share) {
                let clients = live.resource.clients();
                self.wake(key);
                self.forget_if_empty(key, now);
                return self.full(id, clients);
            }
            holders.joined(holder, key);
            self.counts.leases = self.counts.leases.saturating_add(1);
        }
        let decision = live.resource.refresh(holder, ask, now);
        let clients = live.resource.clients();
        let feedback = live.resource.feedback(now);
        let granted = granted(id, live.resource.terms(), clients, decision, feedback);
        self.counts.count(&granted, &decision);
        let is_news = |when: bool, told: &mut bool| when && !std::mem::replace(told, true);
        let unmatched = is_news(granted.template.is_none(), &mut live.told_of_no_template);
        let claim = is_news(decision.claimed_too_much, &mut live.told_of_claim);
        let overused = is_news(decision.overused, &mut live.told_of_outlived);
        let small = is_news(
            live.resource.terms().splits_below_one(clients),
            &mut live.told_of_shares_below_one,
        );
        if small {
            self.notice(LedgerEvent::SharesBelowOne(id.clone()));
        }
        if unmatched {
            self.notice(LedgerEvent::Unmatched(id.clone()));
        }
        if overused {
            self.notice(LedgerEvent::Overused(id.clone()));
        }
        if claim && let Some(holder) = self.holders.id(holder) {
            let id = id.clone();
            let notice = match holder {
                HolderId::Client(client) => LedgerEvent::ExcessClaimOfClient(id, client.clone()),
                HolderId::Node(node) => LedgerEvent::ExcessClaimOfNode(id, node.clone()),
            };
            self.notice(notice);
        }
        self.wake(key);
        granted
    }

    /// One lease of a holder comes back.
    fn release(&mut self, holder: HolderKey, key: u32, order: Order, now: Moment) {
        let Some(live) = self.live.get_mut(key as usize) else {
            return;
        };
        let before = live.resource.len();
        live.resource.release(holder, order, now);
        if live.resource.len() < before {
            self.counts.leases = self.counts.leases.saturating_sub(1);
            self.holders.left(holder, key);
        }
        self.wake(key);
        self.forget_if_empty(key, now);
    }

    /// Clears away what has ended of a resource, and forgets it when nothing is left.
    fn expire(&mut self, key: u32, now: Moment) {
        let Some(live) = self.live.get_mut(key as usize) else {
            return;
        };
        let holders = &mut self.holders;
        let before = live.resource.len();
        live.resource
            .expire_some(now, |holder| holders.left(holder, key));
        self.counts.leases = (self.counts.leases + live.resource.len()).saturating_sub(before);
        self.wake(key);
        self.forget_if_empty(key, now);
    }

    fn find_or_add(&mut self, id: &ResourceId, now: Moment) -> u32 {
        if let Some(key) = self.keys.get(id) {
            return *key;
        }
        let (terms, learning_until) = terms(&self.document, self.settings, self.started, id);
        self.count_short_learning(self.learns_too_short(&terms, learning_until, now));
        let predecessor = match self.settings.predecessor {
            Predecessor::Until(outstanding_until) if now < outstanding_until => Some(Reign {
                ended: self.started,
                outstanding_until,
            }),
            Predecessor::Until(_) | Predecessor::None => None,
        };
        let resource = Resource::new(terms, learning_until, predecessor, now);
        self.came = self.came.saturating_add(1);
        let live = Live {
            id: id.clone(),
            incarnation: self.came,
            resource,
            generation: self.generation,
            alarm: Moment::NEVER,
            told_of_no_template: false,
            told_of_claim: false,
            told_of_outlived: false,
            told_of_shares_below_one: false,
        };
        // The books are bounded far below this many resources.
        let key = u32::try_from(self.live.insert(live)).unwrap_or(u32::MAX);
        self.by_id.insert(id.clone(), key);
        self.keys.insert(id.clone(), key);
        key
    }

    /// Whether a resource learns for less long than a predecessor's leases may last.
    fn learns_too_short(&self, terms: &Terms, learning_until: Moment, now: Moment) -> bool {
        match self.settings.predecessor {
            Predecessor::Until(outstanding) => {
                terms.rule().divides() && learning_until.max(now) < outstanding
            }
            Predecessor::None => false,
        }
    }

    fn count_short_learning(&mut self, when: bool) {
        self.counts.short_learning = self.counts.short_learning.saturating_add(u64::from(when));
    }

    /// Forgets a resource without holders: when nothing is lost by it, or there is no room for what is owed.
    fn forget_if_empty(&mut self, key: u32, now: Moment) {
        let has_room = self.by_id.len() <= self.settings.max_leases;
        if self.live.get(key as usize).is_some_and(|live| {
            live.resource.is_empty(now) || live.resource.len() == 0 && !has_room
        }) {
            let live = self.live.remove(key as usize);
            self.by_id.remove(&live.id);
            self.keys.remove(&live.id);
        }
    }

    /// Sees to it that the resource is looked at when something of it ends.
    fn wake(&mut self, key: u32) {
        if let Some(live) = self.live.get_mut(key as usize)
            && let Some(end) = live.resource.next_end().filter(|end| *end < live.alarm)
        {
            live.alarm = end;
            self.ends.set(end, key);
            let live = &self.live;
            self.ends.prune(live.len(), |at, key| {
                live.get(*key as usize).is_some_and(|live| live.alarm == at)
            });
        }
    }

    fn notice(&mut self, notice: LedgerEvent) {
        let LedgerEvents { events, dropped } = &mut self.notices;
        if events.len() < MAX_NOTICES {
            events.push(notice);
        } else {
            *dropped = dropped.saturating_add(1);
        }
    }

    /// The books have no room for one more beside so many clients of the resource.
    fn full(&self, id: &ResourceId, clients: f64) -> Grant {
        let (terms, _) = terms(&self.document, self.settings, self.started, id);
        let decision = Decision {
            capacity: Capacity::ZERO,
            lease_length: Seconds::ZERO,
            refresh_interval: terms.refresh_interval(false),
            reason: Reason::Full,
            booked_until: Moment::ORIGIN,
            claimed_too_much: false,
            overused: false,
            is_over_capacity: false,
        };
        granted(id, &terms, clients + 1.0, decision, Feedback::None)
    }
}

/// The terms of a resource, and until when the server learns who holds it.
fn terms(
    document: &Document,
    settings: Settings,
    started: Moment,
    id: &ResourceId,
) -> (Terms, Moment) {
    let terms = document
        .lookup(id)
        .map_or_else(|| Terms::unmatched(settings.unmatched), Terms::of);
    let learning_until = match settings.predecessor {
        Predecessor::None => started,
        Predecessor::Until(outstanding) => terms.learning_until(started, outstanding),
    };
    (terms, learning_until)
}

fn granted(
    id: &ResourceId,
    terms: &Terms,
    clients: f64,
    decision: Decision,
    feedback: Feedback,
) -> Grant {
    let Decision {
        capacity,
        lease_length,
        refresh_interval,
        reason,
        booked_until,
        claimed_too_much: _,
        overused: _,
        is_over_capacity: _,
    } = decision;
    Grant {
        resource_id: id.clone(),
        capacity,
        lease_length,
        refresh_interval,
        reason,
        template: terms.template().cloned(),
        safe_capacity: terms.safe_capacity(clients),
        algorithm: terms.algorithm().clone(),
        feedback,
        booked_until,
    }
}
