//! The simulated document, and a reference implementation of its shares.

use std::sync::Arc;

use doorman_config::Document;
use doorman_openapi::ResourceId;
use fastrand::Rng;

/// The largest number of resources that are divided from the beginning.
pub(super) const DIVIDED: usize = 2;
/// The largest number of resources.
pub(super) const RESOURCES: usize = DIVIDED + 1;
const NAMES: [&str; RESOURCES] = ["db", "api", "beside"];

pub(super) fn resource_id(index: usize) -> ResourceId {
    ResourceId::new(NAMES[index]).expect("the name is a valid identifier")
}

/// The ids of all resources.
pub(super) fn resource_ids() -> Arc<[ResourceId]> {
    (0..RESOURCES).map(resource_id).collect()
}

pub(super) fn resource_index(id: &ResourceId) -> usize {
    let position = NAMES.iter().position(|name| id.as_str() == *name);
    position.unwrap_or_default()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Fair,
    Proportional,
    /// With the floor in percent.
    Priority {
        floor: u8,
    },
    Static,
    SharedBucket,
    Suppression,
    Unlimited,
}

/// The priorities of a run. A third of the runs have them, and half of these a floor.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Priorities {
    /// The floor in percent; `None` for a run without priorities.
    floor: Option<u8>,
}

impl Priorities {
    pub(super) fn of_run(seed: u64) -> Self {
        let floor = if seed.is_multiple_of(2) { 20 } else { 0 };
        Self {
            floor: (seed % 3 == 2).then_some(floor),
        }
    }

    /// Whether a share may be 0 although the capacity is not: others are more important.
    pub(super) fn allow_nothing(self) -> bool {
        self.floor == Some(0)
    }

    /// Whether PRIORITY_SHARE has a `floor`: lower priorities always get a part.
    pub(super) fn have_floor(self) -> bool {
        self.floor.is_some_and(|floor| floor > 0)
    }

    pub(super) fn random(self, rng: &mut Rng) -> i32 {
        self.floor.map_or(0, |_| rng.i32(-1..=2))
    }
}

impl Algorithm {
    pub(super) fn random(rng: &mut Rng, priorities: Priorities) -> Self {
        match (rng.bool(), priorities.floor) {
            (true, None) => Self::Fair,
            (true, Some(floor)) => Self::Priority { floor },
            (false, _) => Self::Proportional,
        }
    }

    /// Any algorithm. One that divides the capacity is as likely as one that does not.
    pub(super) fn random_of_all(rng: &mut Rng) -> Self {
        const DIVIDING: [Algorithm; 2] = [Algorithm::Fair, Algorithm::Proportional];
        if rng.bool() {
            DIVIDING[rng.usize(..DIVIDING.len())]
        } else {
            Self::random_undivided(rng)
        }
    }

    pub(super) fn random_undivided(rng: &mut Rng) -> Self {
        const UNDIVIDED: [Algorithm; 4] = [
            Algorithm::Static,
            Algorithm::SharedBucket,
            Algorithm::Suppression,
            Algorithm::Unlimited,
        ];
        UNDIVIDED[rng.usize(..UNDIVIDED.len())]
    }

    /// Whether the sum of all leases stays within the capacity.
    pub(super) fn divides(self) -> bool {
        match self {
            Self::Fair | Self::Proportional | Self::Priority { .. } => true,
            Self::Static | Self::SharedBucket | Self::Suppression | Self::Unlimited => false,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Fair => "FAIR_SHARE",
            Self::Proportional => "PROPORTIONAL_SHARE",
            Self::Priority { .. } => "PRIORITY_SHARE",
            Self::Static => "STATIC",
            Self::SharedBucket => "SHARED_BUCKET",
            Self::Suppression => "SUPPRESSION",
            Self::Unlimited => "NO_ALGORITHM",
        }
    }
}

/// The unit of a capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum LimitUnit {
    /// The capacity is per second; the document states it per so many seconds.
    Rate {
        per: f64,
    },
    Gauge,
}

impl LimitUnit {
    /// The amount that a lease of one unit of the document counts.
    pub(super) fn scale(self) -> f64 {
        match self {
            Self::Rate { per } => 1.0 / per,
            Self::Gauge => 1.0,
        }
    }

    pub(super) fn is_gauge(self) -> bool {
        self == Self::Gauge
    }
}

/// How the template of a resource names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Glob {
    Exact,
    /// All names with the same first letter.
    Prefix,
}

/// How a capacity follows the target. Parts are in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitFeedback {
    /// Whether the effective capacity is leased, if the algorithm divides it. Otherwise it is shown.
    pub(super) acts: bool,
    pub(super) floor: u8,
    pub(super) tolerate: u8,
    /// Whether it follows what the target says of its own limit.
    pub(super) headers: bool,
    /// Of a gauge: the seconds from which on a request takes too long.
    pub(super) latency: Option<u8>,
}

impl LimitFeedback {
    /// Most act.
    pub(super) fn random(rng: &mut Rng) -> Self {
        Self {
            acts: rng.u8(..5) > 0,
            floor: [0, 10, 30, 50, 100][rng.usize(..5)],
            tolerate: [1, 1, 0, 10, 50][rng.usize(..5)],
            headers: rng.bool(),
            latency: rng.bool().then_some(1),
        }
    }

    fn section(self, limit: &Limit) -> String {
        let acts = self.acts && limit.algorithm.divides();
        let mode = if acts { "act" } else { "observe" };
        let latency = self.latency.filter(|_| limit.unit.is_gauge());
        let latency = latency.map_or_else(String::new, |it| format!(", latency: {it}"));
        let (floor, tolerate) = (
            f64::from(self.floor) / 100.0,
            f64::from(self.tolerate) / 100.0,
        );
        let headers = self.headers;
        format!(
            "feedback: {{mode: {mode}, floor: {floor}, tolerate: {tolerate}, \
             headers: {headers}{latency}}}, "
        )
    }
}

/// The template of one resource. Durations are in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// Of a rate per second.
    pub(super) capacity: f64,
    pub(super) unit: LimitUnit,
    pub(super) glob: Glob,
    pub(super) algorithm: Algorithm,
    pub(super) lease_length: f64,
    pub(super) refresh_interval: f64,
    pub(super) minimum_refresh_interval: f64,
    pub(super) feedback: Option<LimitFeedback>,
}

/// The demand of one holder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Demand {
    /// The number of clients: a share is proportional to it.
    pub(super) weight: f64,
    pub(super) wants: f64,
    pub(super) priority: i32,
}

impl Limit {
    /// A rate per second that is divided by FAIR_SHARE. Durations are in seconds.
    #[must_use]
    pub fn fair(capacity: f64, lease_length: f64, refresh_interval: f64) -> Self {
        Self {
            capacity,
            unit: LimitUnit::Rate { per: 1.0 },
            glob: Glob::Exact,
            algorithm: Algorithm::Fair,
            lease_length,
            refresh_interval,
            minimum_refresh_interval: 0.0,
            feedback: None,
        }
    }

    pub(super) fn random(rng: &mut Rng, priorities: Priorities) -> Self {
        let lease_length = 10.0 + 20.0 * rng.f64();
        let refresh_interval = (lease_length / 5.0).max(2.5);
        Self {
            capacity: 100.0,
            unit: LimitUnit::Rate { per: 1.0 },
            glob: Glob::Exact,
            algorithm: Algorithm::random(rng, priorities),
            lease_length,
            refresh_interval,
            minimum_refresh_interval: if rng.bool() {
                0.8 * refresh_interval
            } else {
                0.0
            },
            feedback: None,
        }
    }

    /// The shares once all holders have reported these demands.
    pub(super) fn shares(&self, demands: &[Demand]) -> Vec<f64> {
        let wanted: f64 = demands.iter().map(|demand| demand.wants).sum();
        if wanted <= self.capacity {
            return demands.iter().map(|demand| demand.wants).collect();
        }
        match self.algorithm {
            Algorithm::Fair => fair_shares(self.capacity, demands),
            Algorithm::Proportional => proportional_shares(self.capacity, demands),
            Algorithm::Priority { floor } => {
                priority_shares(self.capacity, f64::from(floor) / 100.0, demands)
            }
            Algorithm::Static => {
                let wants = demands.iter().map(|demand| demand.wants);
                wants.map(|it| it.min(self.capacity)).collect()
            }
            Algorithm::SharedBucket | Algorithm::Suppression => vec![self.capacity; demands.len()],
            Algorithm::Unlimited => demands.iter().map(|demand| demand.wants).collect(),
        }
    }
}

/// A demand, which is small in some cases.
pub(super) fn random_demand(rng: &mut Rng) -> f64 {
    let most = if rng.u8(..4) == 0 { 3.0 } else { 90.0 };
    most * rng.f64()
}

/// The longest lease of a document, in seconds.
pub(super) fn longest_lease(limits: &[Limit]) -> f64 {
    limits
        .iter()
        .map(|limit| limit.lease_length)
        .fold(0.0, f64::max)
}

/// Max-min fairness by water filling.
fn fair_shares(capacity: f64, demands: &[Demand]) -> Vec<f64> {
    let mut satisfied = vec![false; demands.len()];
    loop {
        let (mut left, mut weight) = (capacity, 0.0);
        for (demand, satisfied) in demands.iter().zip(&satisfied) {
            if *satisfied {
                left -= demand.wants;
            } else {
                weight += demand.weight;
            }
        }
        let level = left / weight;
        let mut changed = false;
        for (demand, satisfied) in demands.iter().zip(&mut satisfied) {
            if !*satisfied && demand.wants <= level * demand.weight {
                *satisfied = true;
                changed = true;
            }
        }
        if !changed {
            let share = |(demand, satisfied): (&Demand, &bool)| {
                if *satisfied {
                    demand.wants
                } else {
                    level * demand.weight
                }
            };
            return demands.iter().zip(&satisfied).map(share).collect();
        }
    }
}

/// The highest priority first, each by water filling. It leaves a floor to the lower ones.
fn priority_shares(capacity: f64, floor: f64, demands: &[Demand]) -> Vec<f64> {
    let mut shares = vec![0.0; demands.len()];
    let mut left = capacity;
    let mut priorities: Vec<_> = demands.iter().map(|demand| demand.priority).collect();
    priorities.sort_unstable();
    priorities.dedup();
    for priority in priorities.into_iter().rev() {
        let lower = demands.iter().filter(|demand| demand.priority < priority);
        let lower: f64 = lower.map(|demand| demand.wants).sum();
        let most = left - lower.min(floor * left);
        let is_own = |(_, demand): &(usize, &Demand)| demand.priority == priority;
        let own = demands.iter().enumerate().filter(is_own);
        let (slots, own): (Vec<_>, Vec<_>) = own.map(|(slot, demand)| (slot, *demand)).unzip();
        let wanted: f64 = own.iter().map(|demand| demand.wants).sum();
        let given = if wanted <= most {
            own.iter().map(|demand| demand.wants).collect()
        } else {
            fair_shares(most, &own)
        };
        left = (left - given.iter().sum::<f64>()).max(0.0);
        for (slot, given) in slots.into_iter().zip(given) {
            shares[slot] = given;
        }
    }
    shares
}

/// An equal share, and a part of the rest in proportion to the demand above that share.
fn proportional_shares(capacity: f64, demands: &[Demand]) -> Vec<f64> {
    let equal = capacity / demands.iter().map(|demand| demand.weight).sum::<f64>();
    let base = |demand: &Demand| demand.wants.min(equal * demand.weight);
    let need = |demand: &Demand| (demand.wants - equal * demand.weight).max(0.0);
    let left = capacity - demands.iter().map(base).sum::<f64>();
    let needed: f64 = demands.iter().map(need).sum();
    demands
        .iter()
        .map(|demand| base(demand) + need(demand) * left / needed)
        .collect()
}

/// The document with these limits.
pub(super) fn document(limits: &[Limit]) -> Arc<Document> {
    let mut text = "resources:\n".to_owned();
    for (limit, name) in limits.iter().zip(NAMES) {
        text.push_str(&template(limit, name));
    }
    Arc::new(Document::parse(&text).expect("the document is valid"))
}

fn template(limit: &Limit, name: &str) -> String {
    let Limit {
        capacity,
        unit,
        glob,
        algorithm,
        lease_length,
        refresh_interval,
        minimum_refresh_interval,
        feedback,
    } = limit;
    let glob = match glob {
        Glob::Exact => name.to_owned(),
        Glob::Prefix => format!("{}*", &name[..1]),
    };
    let (capacity, unit) = match unit {
        LimitUnit::Rate { per } => (capacity * per, format!("per: {per}")),
        LimitUnit::Gauge => (*capacity, "unit: gauge".to_owned()),
    };
    let mut parameters = Vec::new();
    if let Algorithm::Priority { floor } = algorithm {
        parameters.push(format!("{{name: floor, value: 0.{floor:02}}}"));
    }
    if limit.unit.is_gauge() && algorithm.divides() {
        // Shares are not rounded to whole units.
        parameters.push("{name: granularity, value: 0}".to_owned());
    }
    let parameters = if parameters.is_empty() {
        String::new()
    } else {
        format!(", parameters: [{}]", parameters.join(", "))
    };
    let feedback = feedback.map_or_else(String::new, |it| it.section(limit));
    format!(
        "  - {{identifier_glob: \"{glob}\", capacity: {capacity}, {unit}, {feedback}\
         minimum_refresh_interval: {minimum_refresh_interval}, \
         algorithm: {{kind: {}, lease_length: {lease_length}, \
         refresh_interval: {refresh_interval}{parameters}}}}}\n",
        algorithm.name(),
    )
}
