//! The `algorithm` section of a template.

use doorman_openapi::{Algorithm, Seconds};

use super::{
    fields::Fields,
    parameters,
    value::{KIND, LENGTH},
};
use crate::{
    fault::{FaultList, Place, Reported},
    node::Node,
    template::{Terms, default_algorithm},
};

const FIELDS: &[&str] = &[
    "kind",
    "lease_length",
    "refresh_interval",
    "learning_mode_duration",
    "parameters",
];

/// The terms that a template states itself.
#[derive(Debug)]
pub(super) struct OwnTerms<'n> {
    pub(super) terms: Terms,
    pub(super) fields: Fields<'n>,
}

pub(super) fn read<'n>(
    node: &'n Node,
    place: Place,
    faults: &mut FaultList,
) -> Result<OwnTerms<'n>, Reported> {
    let fields = Fields::read(node, place, FIELDS, faults)?;
    let kind = fields.required("kind", &KIND, faults);
    let lease_length = fields.optional("lease_length", &LENGTH, faults);
    let refresh_interval = fields.optional("refresh_interval", &LENGTH, faults);
    let learning_mode_duration = fields.optional("learning_mode_duration", &LENGTH, faults);
    let parameters = parameters::read(&fields, kind.as_ref().ok().copied(), faults);
    let defaults = default_algorithm();
    let algorithm = Algorithm {
        kind: kind?,
        lease_length: lease_length?.unwrap_or(defaults.lease_length),
        refresh_interval: refresh_interval?.unwrap_or(defaults.refresh_interval),
    };
    check_order(&algorithm, &fields, faults)?;
    Ok(OwnTerms {
        terms: Terms {
            algorithm,
            learning_mode_duration: learning_mode_duration?,
            parameters: parameters?,
        },
        fields,
    })
}

/// A holder must be able to renew a lease before it ends.
fn check_order(
    algorithm: &Algorithm,
    fields: &Fields<'_>,
    faults: &mut FaultList,
) -> Result<(), Reported> {
    let (lease_length, refresh_interval) = (algorithm.lease_length, algorithm.refresh_interval);
    if refresh_interval < lease_length {
        return Ok(());
    }
    let expected = |lease_length: Seconds| {
        format!("must be shorter than the lease_length of {lease_length} seconds")
    };
    Err(match fields.get("refresh_interval") {
        Some((node, place)) => {
            let message = format!("{}, not {}", expected(lease_length), node.value);
            faults.add(node.at, place, message)
        }
        None => {
            let expected = format!(
                "{}, and is {refresh_interval} when absent",
                expected(lease_length)
            );
            fields.missing("refresh_interval", expected, faults)
        }
    })
}
