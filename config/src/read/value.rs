//! The values of single fields: what each may be, and the step from what is written to what is meant.

use doorman_openapi::{AlgorithmKind, Capacity, SafeCapacity, Seconds, Unit};

use crate::{
    Glob, InvalidGlob,
    fault::{FaultList, Place, Reported},
    nearest::nearest,
    node::{Node, Value},
    quote::Quoted,
};

/// What a field may be.
#[derive(Debug)]
pub(super) struct Form<T> {
    /// In words that fit behind "must be".
    pub(super) expected: &'static str,
    pub(super) read: fn(&Value) -> Result<T, Refusal>,
}

/// Why a value is refused.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It is not what the form says.
    NotAsExpected,
    /// For a reason that deserves its own words, what would be right included.
    Because(String),
}

pub(super) const IDENTIFIER_GLOB: Form<Glob> = Form {
    expected: "a glob over identifiers, such as \"tenant/*\"",
    read: |value| {
        let text = text(value)?;
        Glob::new(&text).map_err(|invalid: InvalidGlob| {
            Refusal::Because(format!("{invalid}, not {}", Quoted(&text)))
        })
    },
};

pub(super) const DESCRIPTION: Form<String> = Form {
    expected: "text",
    read: text,
};

pub(super) const CAPACITY: Form<Capacity> = Form {
    expected: "a number from 0 to 1e15",
    read: |value| checked(number(value)?, Capacity::new),
};

pub(super) const SAFE_CAPACITY: Form<SafeCapacity> = Form {
    expected: "-1 (unlimited) or a number from 0 to 1e15",
    read: |value| checked(number(value)?, SafeCapacity::new),
};

/// The shortest length there is. Whatever is divided by a length stays finite, and no clock here can tell shorter ones apart.
const SHORTEST: f64 = 0.001;

pub(super) const LENGTH: Form<Seconds> = Form {
    expected: "a number of seconds from 0.001 to 31536000 (a year)",
    read: |value| {
        let seconds = number(value)?;
        if seconds < SHORTEST {
            return Err(Refusal::NotAsExpected);
        }
        checked(seconds, Seconds::new)
    },
};

pub(super) const LENGTH_OR_ZERO: Form<Seconds> = Form {
    expected: "a number of seconds from 0 to 31536000 (a year)",
    read: |value| checked(number(value)?, Seconds::new),
};

pub(super) const UNIT: Form<Unit> = Form {
    expected: "rate or gauge",
    read: |value| match value.as_text() {
        Some("rate") => Ok(Unit::Rate),
        Some("gauge") => Ok(Unit::Gauge),
        _ => Err(Refusal::NotAsExpected),
    },
};

/// The parameters that algorithms take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterName {
    Surplus,
    Granularity,
}

pub(super) const PARAMETER_NAME: Form<ParameterName> = Form {
    expected: "surplus or granularity",
    read: |value| match value.as_text() {
        Some("surplus") => Ok(ParameterName::Surplus),
        Some("granularity") => Ok(ParameterName::Granularity),
        _ => Err(Refusal::NotAsExpected),
    },
};

/// Parameters are written as text in Doorman's documents; a plain number is as good.
pub(super) const PARAMETER_VALUE: Form<f64> = Form {
    expected: "a number from 0 to 1e15, such as \"0.2\"",
    read: |value| {
        let number = match value {
            Value::Text(text) => text.parse().map_err(|_| Refusal::NotAsExpected)?,
            other => number(other)?,
        };
        checked(number, Capacity::new).map(Capacity::get)
    },
};

/// The algorithms by name, with their number in the original's protocol where it knew them, which documents may hold instead.
const KINDS: [(&str, Option<f64>, AlgorithmKind); 6] = [
    ("NO_ALGORITHM", Some(0.0), AlgorithmKind::NoAlgorithm),
    ("STATIC", Some(1.0), AlgorithmKind::Static),
    (
        "PROPORTIONAL_SHARE",
        Some(2.0),
        AlgorithmKind::ProportionalShare,
    ),
    ("FAIR_SHARE", Some(3.0), AlgorithmKind::FairShare),
    ("SUPPRESSION", None, AlgorithmKind::Suppression),
    ("SHARED_BUCKET", None, AlgorithmKind::SharedBucket),
];

const LATER_KINDS: [&str; 1] = ["PRIORITY_SHARE"];

const KIND_EXPECTED: &str =
    "NO_ALGORITHM, STATIC, PROPORTIONAL_SHARE, FAIR_SHARE, SUPPRESSION or SHARED_BUCKET";

pub(super) const KIND: Form<AlgorithmKind> = Form {
    expected: KIND_EXPECTED,
    read: |value| match value {
        Value::Number { value, .. } => KINDS
            .iter()
            .find(|(_, number, _)| *number == Some(*value))
            .map(|(_, _, kind)| *kind)
            .ok_or(Refusal::NotAsExpected),
        Value::Text(text) => KINDS
            .iter()
            .find(|(name, _, _)| name == text)
            .map(|(_, _, kind)| *kind)
            .ok_or_else(|| unknown_kind(text)),
        Value::Nothing | Value::Bool(_) | Value::List(_) | Value::Map(_) => {
            Err(Refusal::NotAsExpected)
        }
    },
};

fn unknown_kind(text: &str) -> Refusal {
    if LATER_KINDS.contains(&text) {
        return Refusal::Because(format!(
            "{text} is not yet supported; must be {KIND_EXPECTED}"
        ));
    }
    match nearest(text, &KINDS.map(|(name, _, _)| name)) {
        Some(meant) => Refusal::Because(format!(
            "must be {KIND_EXPECTED}, not {}; did you mean {meant}?",
            Quoted(text)
        )),
        None => Refusal::NotAsExpected,
    }
}

pub(super) fn text(value: &Value) -> Result<String, Refusal> {
    value
        .as_text()
        .map(str::to_owned)
        .ok_or(Refusal::NotAsExpected)
}

pub(super) fn number(value: &Value) -> Result<f64, Refusal> {
    match value {
        Value::Number { value, .. } => Ok(*value),
        Value::Nothing | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => {
            Err(Refusal::NotAsExpected)
        }
    }
}

pub(super) fn checked<T, E>(number: f64, check: fn(f64) -> Result<T, E>) -> Result<T, Refusal> {
    check(number).map_err(|_| Refusal::NotAsExpected)
}

/// Takes a value for a list.
pub(super) fn list<'n>(
    node: &'n Node,
    place: Place,
    expected: &str,
    faults: &mut FaultList,
) -> Result<&'n [Node], Reported> {
    match &node.value {
        Value::List(entries) => Ok(entries),
        other => Err(faults.add(node.at, place, format!("must be {expected}, not {other}"))),
    }
}
