//! The alternative: a plain map that each decision looks through, as the control plane of Google's Doorman does (`Decide`, `FairShare` and
//! `ProportionalShare` in its `go/server/doorman`): once for leases that have ended, and once or twice for what the others leave.

use std::collections::HashMap;

use doorman_openapi::{Capacity, CapacityRequest, InvalidId, Moment};
use fastrand::Rng;

use super::{
    Sharing,
    steady::{CAPACITY_PER_CLIENT, Decides, LEASE_LENGTH, START, ids, wants},
};

#[derive(Debug, Clone, Copy, PartialEq)]
struct Leased {
    has: f64,
    wants: f64,
    ends: Moment,
}

/// The leases of one resource, by client.
#[derive(Debug)]
pub(crate) struct Scan {
    sharing: Sharing,
    capacity: f64,
    leases: HashMap<String, Leased>,
    sum_has: f64,
    sum_wants: f64,
}

impl Scan {
    /// So many clients are there already, each with an equal share. To let them come one after the other would take hours.
    pub(crate) fn full(sharing: Sharing, clients: usize) -> Result<Self, InvalidId> {
        let mut chance = Rng::with_seed(2);
        let mut scan = Self {
            sharing,
            capacity: CAPACITY_PER_CLIENT * clients as f64,
            leases: HashMap::with_capacity(clients),
            sum_has: 0.0,
            sum_wants: 0.0,
        };
        for id in ids(clients) {
            let leased = Leased {
                has: CAPACITY_PER_CLIENT,
                wants: wants(&mut chance).get(),
                ends: START.after(LEASE_LENGTH),
            };
            scan.assign(id?.as_str(), leased);
        }
        Ok(scan)
    }

    fn assign(&mut self, client: &str, leased: Leased) {
        self.sum_has += leased.has;
        self.sum_wants += leased.wants;
        if let Some(place) = self.leases.get_mut(client) {
            self.sum_has -= place.has;
            self.sum_wants -= place.wants;
            *place = leased;
        } else {
            self.leases.insert(client.to_owned(), leased);
        }
    }

    fn clean(&mut self, now: Moment) {
        let (sum_has, sum_wants) = (&mut self.sum_has, &mut self.sum_wants);
        self.leases.retain(|_, leased| {
            let lasts = leased.ends > now;
            if !lasts {
                *sum_has -= leased.has;
                *sum_wants -= leased.wants;
            }
            lasts
        });
    }

    /// An equal share, an equal part of what the others leave of theirs, and of what those leave of that.
    fn fair_share(&self, client: &str, wants: f64, equal: f64) -> f64 {
        let (mut extra, mut want_extra) = (0.0, 1.0);
        let mut hungry = HashMap::new();
        for (id, leased) in self.others(client) {
            if leased.wants < equal {
                extra += equal - leased.wants;
            } else if leased.wants > equal {
                want_extra += 1.0;
                hungry.insert(id, leased);
            }
        }
        let share = equal + extra / want_extra;
        if wants < share {
            return wants;
        }
        let (mut extra, mut want_extra) = (0.0, 1.0);
        for leased in hungry.values() {
            if leased.wants < share {
                extra += share - leased.wants;
            } else if leased.wants > share {
                want_extra += 1.0;
            }
        }
        share + extra / want_extra
    }

    /// An equal share, and of what others leave of theirs a part that is in proportion to what is still wanted.
    fn proportional_share(&self, client: &str, wants: f64, equal: f64) -> f64 {
        let (mut extra, mut need) = (0.0, wants - equal);
        for (_, leased) in self.others(client) {
            if leased.wants < equal {
                extra += equal - leased.wants;
            } else {
                need += leased.wants - equal;
            }
        }
        equal + (wants - equal) * (extra / need)
    }

    fn others(&self, client: &str) -> impl Iterator<Item = (&String, &Leased)> {
        self.leases.iter().filter(move |(id, _)| *id != client)
    }
}

impl Decides for Scan {
    fn decide(&mut self, request: &CapacityRequest, now: Moment) -> Capacity {
        let Some(asked) = request.resources.first() else {
            return Capacity::ZERO;
        };
        self.clean(now);
        let client = request.client_id.as_str();
        let wants = asked.wants.get();
        let has = self.leases.get(client).map_or(0.0, |leased| leased.has);
        let equal = self.capacity / self.leases.len().max(1) as f64;
        let share = if wants <= equal {
            wants
        } else {
            match self.sharing {
                Sharing::Fair => self.fair_share(client, wants, equal),
                Sharing::Proportional if self.sum_wants <= self.capacity => wants,
                Sharing::Proportional => self.proportional_share(client, wants, equal),
            }
        };
        let gets = share.min(self.capacity - self.sum_has + has);
        let ends = now.after(LEASE_LENGTH);
        let has = gets;
        self.assign(client, Leased { has, wants, ends });
        Capacity::saturating(gets)
    }
}
