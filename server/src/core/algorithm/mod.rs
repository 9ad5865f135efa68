//! How a capacity is divided: pure functions from the demands known now to one holder's share.

mod fair;
mod proportional;

use doorman_openapi::AlgorithmKind;

use super::demands::{Demand, Demands};

/// What one band of a holder's demand gets when all others get theirs.
///
/// A share is what should be, not what may be granted: that depends on what others still hold.
pub(super) fn share(kind: AlgorithmKind, capacity: f64, demands: &Demands, bands: impl Iterator<Item = Demand>) -> f64 {
    match kind {
        AlgorithmKind::NoAlgorithm => bands.map(|band| band.wants).sum(),
        AlgorithmKind::Static => bands.map(|band| band.wants).sum::<f64>().min(capacity),
        AlgorithmKind::ProportionalShare => proportional::share(capacity, demands, bands),
        AlgorithmKind::FairShare => fair::share(capacity, demands, bands),
    }
}

/// Whether the shares of all holders together stay within the capacity, so that what one may be granted depends on the others.
pub(super) fn divides(kind: AlgorithmKind) -> bool {
    match kind {
        AlgorithmKind::NoAlgorithm | AlgorithmKind::Static => false,
        AlgorithmKind::ProportionalShare | AlgorithmKind::FairShare => true,
    }
}

#[cfg(test)]
mod tests;
