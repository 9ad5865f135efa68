//! The lazy walk over a body that does not read as what it should be, to find every fault.
//!
//! Values are looked at as raw text, so that neither their type nor their range ends the walk, and repeated keys are seen. What an
//! object may hold is a table of [`Field`]s. What is not in the table is skipped unread, however deep it is.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeOwned, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::fault::{Faults, Place};

/// Looks at a value, and adds what is wrong with it.
pub(super) type Inspect = fn(&RawValue, Place<'_>, &mut Faults);

/// A field that an object may have.
#[derive(Debug)]
pub(crate) struct Field {
    pub(super) name: &'static str,
    pub(super) required: bool,
    pub(super) inspect: Inspect,
}

impl Field {
    pub(super) const fn required(name: &'static str, inspect: Inspect) -> Self {
        Self {
            name,
            required: true,
            inspect,
        }
    }

    pub(super) const fn optional(name: &'static str, inspect: Inspect) -> Self {
        Self {
            name,
            required: false,
            inspect,
        }
    }
}

/// A value that holds no other, whose type says by itself what it may be.
pub(super) trait Scalar: DeserializeOwned {
    /// What would be right, as the end of a sentence about the field.
    const RULE: &'static str;
}

/// Inspects a value that must read as a `T`.
pub(super) fn scalar<T: Scalar>(value: &RawValue, place: Place<'_>, faults: &mut Faults) {
    if serde_json::from_str::<T>(value.get()).is_err() {
        faults.add(place, T::RULE);
    }
}

/// Inspects a value that must be an object with these fields.
pub(super) fn object(value: &RawValue, fields: &[Field], place: Place<'_>, faults: &mut Faults) {
    let mut seen = vec![false; fields.len()];
    let walk = Members(|key: &RawValue, value: &RawValue| {
        let Ok(key) = serde_json::from_str::<String>(key.get()) else {
            // Half of a surrogate pair is within the grammar of JSON, but it is no text.
            faults.add(place, "must have only keys that are Unicode text");
            return;
        };
        let known = fields
            .iter()
            .zip(&mut seen)
            .find(|(field, _)| field.name == key);
        if let Some((field, seen)) = known {
            let place = place.member(field.name);
            if *seen {
                faults.add(place, "must stand only once");
            } else {
                (field.inspect)(value, place, faults);
            }
            *seen = true;
        }
    });
    if walk.over(value).is_err() {
        faults.add(place, "must be an object");
        return;
    }
    for (field, seen) in fields.iter().zip(seen) {
        if field.required && !seen {
            faults.add(place.member(field.name), "must be present");
        }
    }
}

/// Calls `each` with every element of a value that must be an array, up to `most` of them, and with its place.
pub(super) fn array(
    value: &RawValue,
    most: usize,
    place: Place<'_>,
    faults: &mut Faults,
    mut each: impl FnMut(usize, &RawValue, &mut Faults),
) {
    let mut index = 0;
    let walk = Elements(|element: &RawValue| {
        if index < most {
            each(index, element, faults);
        }
        index = index.saturating_add(1);
    });
    if walk.over(value).is_err() {
        faults.add(place, "must be an array");
    } else if index > most {
        faults.add(
            place,
            format!("must have at most {most} elements, not {index}"),
        );
    }
}

struct Members<F>(F);

impl<F: FnMut(&RawValue, &RawValue)> Members<F> {
    fn over(self, value: &RawValue) -> serde_json::Result<()> {
        serde_json::Deserializer::from_str(value.get()).deserialize_map(self)
    }
}

impl<'de, F: FnMut(&RawValue, &RawValue)> Visitor<'de> for Members<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            (self.0)(key, value);
        }
        Ok(())
    }
}

struct Elements<F>(F);

impl<F: FnMut(&RawValue)> Elements<F> {
    fn over(self, value: &RawValue) -> serde_json::Result<()> {
        serde_json::Deserializer::from_str(value.get()).deserialize_seq(self)
    }
}

impl<'de, F: FnMut(&RawValue)> Visitor<'de> for Elements<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while let Some(element) = seq.next_element::<&RawValue>()? {
            (self.0)(element);
        }
        Ok(())
    }
}
