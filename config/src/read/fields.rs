//! One map of the document: its fields by name, with the unknown and the repeated ones reported.

use std::fmt;

use super::value::{Form, Refusal};
use crate::{
    fault::{FaultList, Place, Position, Reported},
    nearest::nearest,
    node::{Node, Value},
    quote::Quoted,
};

/// The known fields of a map. Of a repeated field the first stands, so that its own faults are found as well.
#[derive(Debug)]
pub(super) struct Fields<'n> {
    at: Position,
    place: Place,
    entries: Vec<(&'n str, &'n Node)>,
}

impl<'n> Fields<'n> {
    /// Takes a value for a map, and reports its keys that are unknown, repeated or no text.
    pub(super) fn read(
        node: &'n Node,
        place: Place,
        known: &[&str],
        faults: &mut FaultList,
    ) -> Result<Self, Reported> {
        let Value::Map(written) = &node.value else {
            let message = format!(
                "must be a map with the fields {}, not {}",
                listed(known),
                node.value
            );
            return Err(faults.add(node.at, place, message));
        };
        // Bounded by what is known, so that a document of many keys costs no more than their number.
        let mut entries: Vec<(&str, &Node)> = Vec::with_capacity(known.len());
        for (key, value) in written {
            let Some(name) = key.value.as_text() else {
                let message = format!("must have text for every key, not {}", key.value);
                faults.add(key.at, place.clone(), message);
                continue;
            };
            if !known.contains(&name) {
                faults.add(key.at, place.field(name), unknown(name, known));
            } else if let Some((_, first)) = entries.iter().find(|(earlier, _)| *earlier == name) {
                let message = format!("must stand only once; its first value is at {}", first.at);
                faults.add(key.at, place.field(name), message);
            } else {
                entries.push((name, value));
            }
        }
        Ok(Self {
            at: node.at,
            place,
            entries,
        })
    }

    /// A field as written, and its place.
    pub(super) fn get(&self, name: &str) -> Option<(&'n Node, Place)> {
        let (_, node) = self.entries.iter().find(|(known, _)| *known == name)?;
        Some((node, self.place.field(name)))
    }

    /// A field that may be absent.
    pub(super) fn optional<T>(
        &self,
        name: &str,
        form: &Form<T>,
        faults: &mut FaultList,
    ) -> Result<Option<T>, Reported> {
        let Some((node, place)) = self.get(name) else {
            return Ok(None);
        };
        value(node, place, form, faults).map(Some)
    }

    /// A field that must be there.
    pub(super) fn required<T>(
        &self,
        name: &str,
        form: &Form<T>,
        faults: &mut FaultList,
    ) -> Result<T, Reported> {
        self.optional(name, form, faults)?
            .ok_or_else(|| self.missing(name, format_args!("must be {}", form.expected), faults))
    }

    /// Reports that a field is wrong because of another.
    pub(super) fn wrong(&self, name: &str, message: &str, faults: &mut FaultList) -> Reported {
        let (at, place) = match self.get(name) {
            Some((node, place)) => (node.at, place),
            None => (self.at, self.place.clone()),
        };
        faults.add(at, place, message)
    }

    /// Reports that a field is not there; what stands in for its position is that of the map.
    pub(super) fn missing(
        &self,
        name: &str,
        expected: impl fmt::Display,
        faults: &mut FaultList,
    ) -> Reported {
        let message = format!("is missing; {expected}");
        faults.add(self.at, self.place.field(name), message)
    }
}

/// A value, in its form.
pub(super) fn value<T>(
    node: &Node,
    place: Place,
    form: &Form<T>,
    faults: &mut FaultList,
) -> Result<T, Reported> {
    (form.read)(&node.value).map_err(|refusal| {
        let message = match refusal {
            Refusal::NotAsExpected => format!("must be {}, not {}", form.expected, node.value),
            Refusal::Because(message) => message,
        };
        faults.add(node.at, place, message)
    })
}

fn unknown(name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(meant) => format!("is not a known field; did you mean {}?", Quoted(meant)),
        None => format!("is not a known field; known are {}", listed(known)),
    }
}

fn listed(known: &[&str]) -> String {
    known.join(", ")
}
