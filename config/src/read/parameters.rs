//! The named parameters of an algorithm.

use doorman_openapi::{AlgorithmKind, Capacity};

use super::{
    fields::Fields,
    value::{PARAMETER_NAME, PARAMETER_VALUE, ParameterName, list},
};
use crate::{
    fault::{FaultList, Place, Reported},
    node::Node,
    template::Parameters,
};

const FIELDS: &[&str] = &["name", "value"];

/// Smaller steps could not be counted: there would be more of them in a capacity than a number can tell apart.
const SMALLEST_STEP: f64 = 1e-6;

/// Reads the parameters of an algorithm; each may stand once, and only where the algorithm takes it.
pub(super) fn read(
    fields: &Fields<'_>,
    kind: Option<AlgorithmKind>,
    faults: &mut FaultList,
) -> Result<Parameters, Reported> {
    let mut parameters = Parameters::default();
    let Some((node, place)) = fields.get("parameters") else {
        return Ok(parameters);
    };
    let mut failed = None;
    let entries = list(node, place.clone(), "a list of names and values", faults)?;
    for (index, entry) in entries.iter().enumerate() {
        let read = read_one(entry, place.entry(index), kind, &mut parameters, faults);
        failed = failed.or(read.err());
    }
    failed.map_or(Ok(parameters), Err)
}

fn read_one(
    node: &Node,
    place: Place,
    kind: Option<AlgorithmKind>,
    parameters: &mut Parameters,
    faults: &mut FaultList,
) -> Result<(), Reported> {
    let fields = Fields::read(node, place.clone(), FIELDS, faults)?;
    let name = fields.required("name", &PARAMETER_NAME, faults);
    let value = fields.required("value", &PARAMETER_VALUE, faults);
    let (name, value) = (name?, value?);
    if let Some(
        kind @ (AlgorithmKind::NoAlgorithm
        | AlgorithmKind::Static
        | AlgorithmKind::Suppression
        | AlgorithmKind::SharedBucket),
    ) = kind
    {
        let message = format!("must be left out: {} takes no parameters", kind_name(kind));
        return Err(faults.add(node.at, place, message));
    }
    let repeated = match name {
        ParameterName::Surplus => {
            if value > 1.0
                && let Some((node, place)) = fields.get("value")
            {
                let message = format!(
                    "must be a number from 0 to 1 for surplus, not {}",
                    node.value
                );
                return Err(faults.add(node.at, place, message));
            }
            parameters.surplus.replace(value).map(|_| "surplus")
        }
        ParameterName::Granularity => {
            if value > 0.0
                && value < SMALLEST_STEP
                && let Some((node, place)) = fields.get("value")
            {
                let message = format!(
                    "must be 0 or a number from 0.000001 for granularity, not {}",
                    node.value
                );
                return Err(faults.add(node.at, place, message));
            }
            let value = Capacity::saturating(value);
            parameters.granularity.replace(value).map(|_| "granularity")
        }
    };
    match repeated {
        Some(name) => {
            let message = format!("must be left out: {name} stands only once");
            Err(faults.add(node.at, place, message))
        }
        None => Ok(()),
    }
}

pub(super) fn kind_name(kind: AlgorithmKind) -> &'static str {
    match kind {
        AlgorithmKind::NoAlgorithm => "NO_ALGORITHM",
        AlgorithmKind::Static => "STATIC",
        AlgorithmKind::ProportionalShare => "PROPORTIONAL_SHARE",
        AlgorithmKind::FairShare => "FAIR_SHARE",
        AlgorithmKind::Suppression => "SUPPRESSION",
        AlgorithmKind::SharedBucket => "SHARED_BUCKET",
    }
}
