//! Reads the bodies of the lease calls: at full speed when they are right, at leisure when they are not.
//!
//! The fast path is one typed parse, in which the types of the wire check themselves, and the few rules that no type can hold. Only
//! when it fails, the slow path walks over the same text to find every fault and where it is. Both agree on what is acceptable; a
//! property test holds them together.
//!
//! Fields that no call knows are ignored: not looked into, and not counted when they stand twice.

mod exact;
mod fault;
mod rules;
mod walk;

#[cfg(test)]
mod tests;

use doorman_openapi::ProblemType;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

pub(super) use self::fault::Faults;
use self::{
    exact::Exact,
    fault::Place,
    walk::{Field, object},
};
use super::refusal::Refusal;

/// The most faults of one body that are listed. A body of 4 MiB has room for millions.
const MAX_LISTED: usize = 10_000;

/// A body that a call takes.
pub(crate) trait Body: DeserializeOwned {
    /// What the body is made of.
    const FIELDS: &'static [Field];

    /// Whether it keeps the rules that its type alone does not hold.
    fn keeps_the_rules(&self) -> bool;
}

/// Reads a body.
///
/// # Errors
/// 400 for what is not JSON in UTF-8; 422 with every fault for JSON that is not a `T`.
pub(crate) fn read<T: Body>(body: &[u8]) -> Result<T, Refusal> {
    let text = std::str::from_utf8(body).map_err(|error| {
        Refusal::new(
            ProblemType::MalformedRequest,
            format!("the body is not UTF-8 from byte {} on", error.valid_up_to()),
        )
    })?;
    match exactly::<T>(text) {
        Ok(read) if read.keeps_the_rules() => Ok(read),
        _ => Err(diagnose::<T>(text)),
    }
}

/// Reads the whole text as a `T`, an object as an object and nothing else.
fn exactly<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = T::deserialize(Exact(&mut deserializer))?;
    deserializer.end()?;
    Ok(value)
}

/// Says what is wrong with a text that does not read as a `T`.
fn diagnose<T: Body>(text: &str) -> Refusal {
    match serde_json::from_str::<&RawValue>(text) {
        Err(error) => Refusal::new(
            ProblemType::MalformedRequest,
            format!("the body is not JSON: {error}"),
        ),
        Ok(value) => Refusal::of_faults(faults::<T>(value)),
    }
}

fn faults<T: Body>(value: &RawValue) -> Vec<doorman_openapi::FieldError> {
    let mut faults = Faults::at_most(MAX_LISTED);
    object(value, T::FIELDS, Place::Body, &mut faults);
    faults.into_errors()
}
