//! Families of algorithms, by the fields that are valid with them.

use doorman_openapi::AlgorithmKind;

/// Algorithms that are valid with the same fields.
#[derive(Debug, PartialEq)]
pub(super) enum Family {
    NoDivision,
    /// With parameters other than decay_factor.
    Shares,
    /// For rates only.
    Signal,
}

pub(super) fn family(kind: AlgorithmKind) -> Family {
    match kind {
        AlgorithmKind::NoAlgorithm | AlgorithmKind::Static => Family::NoDivision,
        AlgorithmKind::ProportionalShare
        | AlgorithmKind::FairShare
        | AlgorithmKind::PriorityShare => Family::Shares,
        AlgorithmKind::Suppression | AlgorithmKind::SharedBucket => Family::Signal,
    }
}
