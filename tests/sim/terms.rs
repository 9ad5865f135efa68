//! The limits in force, and how they would be divided exactly.

use std::{fmt::Write as _, sync::Arc};

use doorman_config::Document;
use doorman_openapi::ResourceId;
use fastrand::Rng;

/// How many resources there are at most.
pub(super) const RESOURCES: usize = 2;
const NAMES: [&str; RESOURCES] = ["db", "api"];

/// The resource at a position.
pub(super) fn resource(position: usize) -> ResourceId {
    ResourceId::new(NAMES[position]).expect("the name is an identifier")
}

/// Where a resource stands.
pub(super) fn position(resource: &ResourceId) -> usize {
    usize::from(resource.as_str() == NAMES[1])
}

/// How a capacity is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Fair,
    Proportional,
}

/// What a template says of one resource. Lengths in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Terms {
    pub(super) capacity: f64,
    pub(super) kind: Kind,
    pub(super) lease: f64,
    pub(super) refresh: f64,
    pub(super) minimum_refresh: f64,
}

impl Terms {
    pub(super) fn any(chance: &mut Rng) -> Self {
        let lease = 10.0 + 20.0 * chance.f64();
        let refresh = (lease / 5.0).max(2.5);
        Self {
            capacity: 100.0,
            kind: if chance.bool() {
                Kind::Fair
            } else {
                Kind::Proportional
            },
            lease,
            refresh,
            minimum_refresh: if chance.bool() { 0.8 * refresh } else { 0.0 },
        }
    }

    /// What each gets when all have told what they want: (weight, wants) each.
    pub(super) fn shares(&self, demands: &[(f64, f64)]) -> Vec<f64> {
        let wanted: f64 = demands.iter().map(|(_, wants)| wants).sum();
        if wanted <= self.capacity {
            return demands.iter().map(|(_, wants)| *wants).collect();
        }
        match self.kind {
            Kind::Fair => fair(self.capacity, demands),
            Kind::Proportional => proportional(self.capacity, demands),
        }
    }
}

/// Filled up as water is: whoever wants less than the level is content, and leaves the rest to the others.
fn fair(capacity: f64, demands: &[(f64, f64)]) -> Vec<f64> {
    let mut content = vec![false; demands.len()];
    loop {
        let (mut left, mut weight) = (capacity, 0.0);
        for ((own, wants), content) in demands.iter().zip(&content) {
            if *content {
                left -= wants;
            } else {
                weight += own;
            }
        }
        let level = left / weight;
        let mut higher = false;
        for ((own, wants), content) in demands.iter().zip(&mut content) {
            if !*content && *wants <= level * own {
                *content = true;
                higher = true;
            }
        }
        if !higher {
            return demands
                .iter()
                .zip(&content)
                .map(|((own, wants), content)| if *content { *wants } else { level * own })
                .collect();
        }
    }
}

/// An equal share for all, the rest in proportion to what is wanted beyond it.
fn proportional(capacity: f64, demands: &[(f64, f64)]) -> Vec<f64> {
    let equal = capacity / demands.iter().map(|(own, _)| own).sum::<f64>();
    let base = |(own, wants): &(f64, f64)| wants.min(equal * own);
    let need = |(own, wants): &(f64, f64)| (wants - equal * own).max(0.0);
    let left = capacity - demands.iter().map(base).sum::<f64>();
    let needed: f64 = demands.iter().map(need).sum();
    demands
        .iter()
        .map(|demand| base(demand) + need(demand) * left / needed)
        .collect()
}

/// The document that says so.
pub(super) fn document(terms: &[Terms]) -> Arc<Document> {
    let mut text = "resources:\n".to_owned();
    for (terms, name) in terms.iter().zip(NAMES) {
        let Terms {
            capacity,
            kind,
            lease,
            refresh,
            minimum_refresh,
        } = terms;
        let kind = match kind {
            Kind::Fair => "FAIR_SHARE",
            Kind::Proportional => "PROPORTIONAL_SHARE",
        };
        // Writing to a string cannot fail.
        let _infallible = writeln!(
            text,
            "  - {{identifier_glob: {name}, capacity: {capacity}, minimum_refresh_interval: {minimum_refresh}, \
             algorithm: {{kind: {kind}, lease_length: {lease}, refresh_interval: {refresh}}}}}"
        );
    }
    Arc::new(Document::parse(&text).expect("the document is a good one"))
}
