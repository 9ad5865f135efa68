//! `feedback` of a template.

use doorman_openapi::{Feedback, FeedbackMode, Fraction, Seconds, Unit};

use super::{
    family::{Family, family},
    field::{BOOL, FieldType, Item, Mismatch, number, word},
};
use crate::{
    Template,
    diagnostic::{Diagnostic, Reported},
    words::word_for,
};

#[cfg(test)]
mod tests;

pub(crate) const FIELDS: &[&str] = &["mode", "floor", "tolerate", "headers", "latency"];

/// The highest [`tolerate`](Feedback::tolerate): a target that refuses more is overloaded.
const MAX_TOLERATE: f64 = 0.5;

/// The rate per second below which a target refuses more than the default `tolerate` by chance.
const LOW_RATE: f64 = 2.0;
/// The `tolerate` that suits low rates.
const TOLERATE_OF_LOW_RATES: f64 = 0.1;

const MODE: FieldType<FeedbackMode> = FieldType {
    expected: "act or observe",
    parse: word,
};

const FLOOR: FieldType<Fraction> = FieldType {
    expected: "a number from 0 to 1",
    parse: |value| number(value, Fraction::new),
};

const TOLERATE: FieldType<Fraction> = FieldType {
    expected: "a number from 0 to 0.5",
    parse: |value| {
        let tolerate = number(value, Fraction::new)?;
        (tolerate.get() <= MAX_TOLERATE)
            .then_some(tolerate)
            .ok_or(Mismatch::Unexpected)
    },
};

const LATENCY: FieldType<Seconds> = FieldType {
    expected: "a number of seconds above 0, up to 31536000 (a year)",
    parse: |value| {
        let latency = number(value, Seconds::new)?;
        (latency > Seconds::ZERO)
            .then_some(latency)
            .ok_or(Mismatch::Unexpected)
    },
};

/// Reads the section by itself.
pub(super) fn read(section: &Item<'_>) -> Result<Feedback, Reported> {
    section.check_fields(FIELDS)?;
    let mode = section.optional("mode", &MODE);
    let floor = section.optional("floor", &FLOOR);
    let tolerate = section.optional("tolerate", &TOLERATE);
    let headers = section.optional("headers", &BOOL);
    let latency = section.optional("latency", &LATENCY);
    let defaults = Feedback::default();
    Ok(Feedback {
        mode: mode?.unwrap_or(defaults.mode),
        floor: floor?.unwrap_or(defaults.floor),
        tolerate: tolerate?.unwrap_or(defaults.tolerate),
        headers: headers?.unwrap_or(defaults.headers),
        latency: latency?,
    })
}

/// Checks that the section can do what it says, beside the other fields of its template.
pub(super) fn check(item: &Item<'_>, template: &Template) -> Result<(), Reported> {
    let (Some(feedback), Some(section)) = (template.feedback, item.get("feedback")) else {
        return Ok(());
    };
    let latency = section.get("latency");
    let latency = latency.filter(|_| template.unit == Unit::Rate);
    let latency = latency.map(|it| it.error("must be left out: latency is for gauges only"));
    let kind = template.algorithm().kind;
    let mode = (feedback.mode == FeedbackMode::Act && family(kind) != Family::Shares).then(|| {
        let kind = word_for(&kind);
        let expected = format!("must be observe: {kind} does not divide the capacity");
        match section.get("mode") {
            Some(mode) => mode.error(format!("{expected}, so leases do not show the use")),
            None => section.missing("mode", format_args!("{expected}, and is act when absent")),
        }
    });
    let capacity = (template.capacity.get() == 0.0)
        .then(|| section.error("must be left out while the capacity is 0"));
    match latency.or(mode).or(capacity) {
        Some(reported) => Err(reported),
        None => Ok(()),
    }
}

/// Warns of a rate so low that chance alone would lower it.
pub(super) fn warning(item: &Item<'_>, template: &Template) -> Option<Diagnostic> {
    let tolerate = template.feedback?.tolerate;
    let rate = template.capacity.get() / template.per.get();
    if template.unit != Unit::Rate || rate >= LOW_RATE || tolerate.get() >= TOLERATE_OF_LOW_RATES {
        return None;
    }
    let section = item.get("feedback")?;
    let message = format!(
        "{tolerate} is too little below {LOW_RATE} requests a second: a target refuses more by \
         chance; use {TOLERATE_OF_LOW_RATES}"
    );
    Some(match section.get("tolerate") {
        Some(tolerate) => tolerate.diagnostic(message),
        None => section.diagnostic(format!("tolerate is absent, and its default of {message}")),
    })
}
