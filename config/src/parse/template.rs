//! `resources`: the list of templates.

use doorman_openapi::{
    Algorithm, AlgorithmKind, CLOCK_DRIFT, Capacity, Glob, SafeCapacity, Seconds, Unit,
};

use super::family::{Family, family};
use super::feedback;
use super::field::{
    CAPACITY, DURATION, DURATION_OR_ZERO, Entry, FieldType, GLOB, Item, Mismatch, UNIT, all,
    check_unique, misspelt, number, text, word,
};
use crate::{
    diagnostic::{Diagnostic, Reported},
    template::{
        AlgorithmSection, ParameterName, Parameters, Template, default_algorithm, longest_lease,
    },
    tree::Value,
    words::word_for,
};

pub(crate) const FIELDS: &[&str] = &[
    "identifier_glob",
    "capacity",
    "safe_capacity",
    "description",
    "unit",
    "per",
    "minimum_refresh_interval",
    "algorithm",
    "feedback",
];

pub(crate) const ALGORITHM_FIELDS: &[&str] = &[
    "kind",
    "lease_length",
    "refresh_interval",
    "learning_mode_duration",
    "parameters",
];

const LEARNING_MODE_DURATION: &str = "learning_mode_duration";

/// The highest rate, in tokens per second.
const MAX_RATE: f64 = 1e9;
/// The smallest rate above 0 per second: one in 32 years.
const MIN_RATE: f64 = 1e-9;

/// The most units of a gauge.
const MAX_UNITS: f64 = 1e12;

/// Longer leases have a warning.
const LONG_LEASE_SECONDS: f64 = 3600.0;

const DESCRIPTION: FieldType<String> = FieldType {
    expected: "text",
    parse: text,
};

const SAFE_CAPACITY: FieldType<SafeCapacity> = FieldType {
    expected: "-1 (unlimited) or a number from 0 to 1e15",
    parse: |value| number(value, SafeCapacity::new),
};

/// The template that matches everything, and the `algorithm` of those that have none.
struct CatchAll {
    index: usize,
    algorithm: Result<AlgorithmSection, Reported>,
}

/// Reads the list of templates.
pub(super) fn read<'n>(list: &Item<'n>) -> Result<Vec<Entry<'n, Template>>, Reported> {
    let templates = list.entries("resources", "identifier_glob", "a list of templates")?;
    check_unique(&templates, "resources", "identifier_glob", "glob");
    let mut numbered = templates.iter().enumerate();
    let catch_all = numbered.find(|(_, it)| is_catch_all(it));
    let catch_all = catch_all.map(|(index, template)| {
        if index + 1 < templates.len()
            && let Some(glob) = template.get("identifier_glob")
        {
            glob.error("must be the last template, since it matches everything");
        }
        let algorithm = own_algorithm(template).and_then(|own| {
            let expected = "a template that matches everything must have it";
            own.ok_or_else(|| template.missing("algorithm", expected))
        });
        CatchAll { index, algorithm }
    });
    all(templates.into_iter().enumerate().map(|(index, item)| {
        let value = template(&item, index, catch_all.as_ref())?;
        Ok(Entry { item, value })
    }))
}

fn is_catch_all(template: &Item<'_>) -> bool {
    let glob = template.get("identifier_glob");
    let glob = glob.and_then(|it| (GLOB.parse)(&it.node.value).ok());
    glob.is_some_and(|glob| glob.is_catch_all())
}

fn template(
    item: &Item<'_>,
    index: usize,
    catch_all: Option<&CatchAll>,
) -> Result<Template, Reported> {
    item.check_fields(FIELDS)?;
    // Every field is parsed, so that no error hides another.
    let identifier_glob = item.required("identifier_glob", &GLOB);
    let capacity = item.required("capacity", &CAPACITY);
    let safe_capacity = item.optional("safe_capacity", &SAFE_CAPACITY);
    let description = item.optional("description", &DESCRIPTION);
    let unit = item.optional("unit", &UNIT);
    let per = item.optional("per", &DURATION);
    let minimum_refresh_interval = item.optional("minimum_refresh_interval", &DURATION_OR_ZERO);
    let feedback = item.get("feedback").map(|it| feedback::read(&it));
    let section = own_or_inherited(item, index, catch_all)?;
    let minimum_refresh_interval = minimum_refresh_interval?.unwrap_or(Seconds::ZERO);
    let Algorithm {
        kind,
        refresh_interval,
        ..
    } = section.algorithm;
    check_minimum(item, minimum_refresh_interval, refresh_interval)?;
    let unit = unit?.unwrap_or_default();
    if unit == Unit::Gauge {
        check_gauge(item, kind, per.as_ref().ok().and_then(Option::as_ref))?;
    }
    let (capacity, safe_capacity) = (capacity?, safe_capacity?);
    let per = per?.unwrap_or(Seconds::saturating(1.0));
    let checked = match kind {
        AlgorithmKind::NoAlgorithm => Ok(()),
        _ => check_amount(item, "capacity", capacity.get(), unit, per),
    };
    if let Some(SafeCapacity::AtMost(safe)) = safe_capacity {
        check_amount(item, "safe_capacity", safe.get(), unit, per)?;
    }
    checked?;
    let template = Template {
        identifier_glob: identifier_glob?,
        capacity,
        safe_capacity,
        description: description?,
        unit,
        per,
        minimum_refresh_interval,
        section,
        feedback: feedback.transpose()?,
    };
    feedback::check(item, &template)?;
    Ok(template)
}

fn check_minimum(
    template: &Item<'_>,
    minimum_refresh_interval: Seconds,
    refresh_interval: Seconds,
) -> Result<(), Reported> {
    match template.get("minimum_refresh_interval") {
        Some(item) if minimum_refresh_interval > refresh_interval => Err(item.error(format!(
            "must be at most the refresh_interval of {refresh_interval} seconds, not {}",
            item.node.value
        ))),
        _ => Ok(()),
    }
}

/// Checks that a gauge has no field of rates.
fn check_gauge(
    template: &Item<'_>,
    kind: AlgorithmKind,
    per: Option<&Seconds>,
) -> Result<(), Reported> {
    if family(kind) == Family::Signal
        && let Some(item) = template.get("unit")
    {
        let kind = word_for(&kind);
        return Err(item.error(format!("must be rate: {kind} is for rates only")));
    }
    if per.is_some_and(|per| *per != Seconds::saturating(1.0))
        && let Some(item) = template.get("per")
    {
        return Err(item.error("must be left out: a gauge has no period"));
    }
    Ok(())
}

/// Checks that holders can enforce an amount as it is written: buckets count single tokens up to
/// [`MAX_RATE`] a second, the slowest for one in decades, and gauges whole units up to
/// [`MAX_UNITS`].
fn check_amount(
    template: &Item<'_>,
    field: &str,
    amount: f64,
    unit: Unit,
    per: Seconds,
) -> Result<(), Reported> {
    let Some(item) = template.get(field) else {
        return Ok(());
    };
    let expected = match unit {
        Unit::Rate if amount > MAX_RATE * per.get() => {
            "must be at most 1e9 per second; count in larger units, such as kilobytes"
        }
        Unit::Rate if amount > 0.0 && amount < MIN_RATE * per.get() => {
            "must be 0, or at least 1e-9 per second"
        }
        Unit::Gauge if amount > MAX_UNITS => "must be at most 1e12 units; count in larger units",
        Unit::Gauge if amount > 0.0 && amount < 1.0 => "must be 0, or at least one whole unit",
        Unit::Rate | Unit::Gauge => return Ok(()),
    };
    Err(item.error(format!("{expected}, not {}", item.node.value)))
}

/// The `algorithm` of a template, or that of the template for `*`.
fn own_or_inherited(
    template: &Item<'_>,
    index: usize,
    catch_all: Option<&CatchAll>,
) -> Result<AlgorithmSection, Reported> {
    if let Some(catch_all) = catch_all.filter(|it| it.index == index) {
        return catch_all.algorithm.clone();
    }
    match (own_algorithm(template)?, catch_all) {
        (Some(own), _) => Ok(own),
        (None, Some(CatchAll { algorithm, .. })) => Ok(AlgorithmSection {
            is_inherited: true,
            ..algorithm.clone()?
        }),
        (None, None) => {
            let expected = "must be here or in the template for \"*\"";
            Err(template.missing("algorithm", expected))
        }
    }
}

/// The `algorithm` of a template, if it is written.
fn own_algorithm(template: &Item<'_>) -> Result<Option<AlgorithmSection>, Reported> {
    template
        .get("algorithm")
        .as_ref()
        .map(algorithm)
        .transpose()
}

fn algorithm(item: &Item<'_>) -> Result<AlgorithmSection, Reported> {
    item.check_fields(ALGORITHM_FIELDS)?;
    let kind = item.required("kind", &KIND);
    let lease_length = item.optional("lease_length", &DURATION);
    let refresh_interval = item.optional("refresh_interval", &DURATION);
    let learning_mode_duration = item.optional(LEARNING_MODE_DURATION, &DURATION_OR_ZERO);
    let parameters = parameters(item, kind.ok());
    let defaults = default_algorithm();
    let algorithm = Algorithm {
        kind: kind?,
        lease_length: lease_length?.unwrap_or(defaults.lease_length),
        refresh_interval: refresh_interval?.unwrap_or(defaults.refresh_interval),
    };
    check_refresh_interval(&algorithm, item)?;
    Ok(AlgorithmSection {
        algorithm,
        learning_mode_duration: learning_mode_duration?,
        parameters: parameters?,
        is_inherited: false,
    })
}

fn check_refresh_interval(algorithm: &Algorithm, section: &Item<'_>) -> Result<(), Reported> {
    let (lease_length, refresh_interval) = (algorithm.lease_length, algorithm.refresh_interval);
    if refresh_interval < lease_length {
        return Ok(());
    }
    let expected = format!("must be shorter than the lease_length of {lease_length} seconds");
    Err(match section.get("refresh_interval") {
        Some(item) => item.error(format!("{expected}, not {}", item.node.value)),
        None => section.missing(
            "refresh_interval",
            format_args!("{expected}, and is {refresh_interval} when absent"),
        ),
    })
}

/// The algorithms, with their number in Doorman's protocol, which is valid in documents.
const KINDS: [(AlgorithmKind, Option<f64>); 7] = [
    (AlgorithmKind::NoAlgorithm, Some(0.0)),
    (AlgorithmKind::Static, Some(1.0)),
    (AlgorithmKind::ProportionalShare, Some(2.0)),
    (AlgorithmKind::FairShare, Some(3.0)),
    (AlgorithmKind::PriorityShare, None),
    (AlgorithmKind::Suppression, None),
    (AlgorithmKind::SharedBucket, None),
];

const KIND: FieldType<AlgorithmKind> = FieldType {
    expected: "NO_ALGORITHM, STATIC, PROPORTIONAL_SHARE, FAIR_SHARE, PRIORITY_SHARE, SUPPRESSION or \
               SHARED_BUCKET",
    parse: |value| match value {
        Value::Number { value, .. } => {
            let known = KINDS.iter().find(|(_, it)| *it == Some(*value));
            known.map(|(kind, _)| *kind).ok_or(Mismatch::Unexpected)
        }
        Value::Text(text) => word(value).map_err(|_| {
            let names = KINDS.map(|(kind, _)| word_for(&kind));
            misspelt(text, KIND.expected, &names.each_ref().map(String::as_str))
        }),
        Value::Null | Value::Bool(_) | Value::List(_) | Value::Map(_) => Err(Mismatch::Unexpected),
    },
};

const PARAMETER_NAME: FieldType<ParameterName> = FieldType {
    expected: "surplus, granularity, floor or decay_factor",
    parse: word,
};

/// Text in Doorman's documents; plain numbers are valid, too.
const PARAMETER_VALUE: FieldType<f64> = FieldType {
    expected: "a number from 0 to 1e15, such as \"0.2\"",
    parse: |value| match value {
        Value::Text(text) => {
            let number = text.parse().ok().and_then(|it| Capacity::new(it).ok());
            number.map(Capacity::get).ok_or(Mismatch::Unexpected)
        }
        other => number(other, Capacity::new).map(Capacity::get),
    },
};

fn parameters(section: &Item<'_>, kind: Option<AlgorithmKind>) -> Result<Parameters, Reported> {
    let mut parameters = Parameters::default();
    if let Some(list) = section.get("parameters") {
        let items = list.list("a list of names and values")?;
        all(items.map(|item| parameter(&item, kind, &mut parameters)))?;
    }
    Ok(parameters)
}

fn parameter(
    item: &Item<'_>,
    kind: Option<AlgorithmKind>,
    parameters: &mut Parameters,
) -> Result<(), Reported> {
    item.check_fields(&["name", "value"])?;
    let name = item.required("name", &PARAMETER_NAME);
    let number = item.required("value", &PARAMETER_VALUE);
    let (name, number) = (name?, number?);
    if let Some(kind) = kind
        && name != ParameterName::DecayFactor
        && family(kind) != Family::Shares
    {
        let kind = word_for(&kind);
        let message = format!("must be left out: {kind} takes no parameters but decay_factor");
        return Err(item.error(message));
    }
    if name == ParameterName::Floor && kind.is_some_and(|it| it != AlgorithmKind::PriorityShare) {
        return Err(item.error("must be left out: floor is for PRIORITY_SHARE only"));
    }
    let (is_valid, expected) = name.range(number);
    if !is_valid && let Some(item) = item.get("value") {
        let value = &item.node.value;
        let name = word_for(&name);
        return Err(item.error(format!("must be {expected} for {name}, not {value}")));
    }
    match parameters.0.insert(name, number) {
        Some(_) => {
            let name = word_for(&name);
            Err(item.error(format!("must be left out: {name} is already set")))
        }
        None => Ok(()),
    }
}

/// Warns of a document in which a resource may match no template.
pub(super) fn catch_all_warning(
    list: &Item<'_>,
    templates: &[Entry<'_, Template>],
) -> Option<Diagnostic> {
    let mut globs = templates.iter().map(|it| &it.value.identifier_glob);
    (!globs.any(Glob::is_catch_all)).then(|| {
        list.diagnostic(
            "has no template for \"*\": resources that match no template are unlimited, or blocked \
             with `--unmatched refuse`",
        )
    })
}

/// Warns of valid values that are probably mistakes, and of a risk.
pub(super) fn warnings(templates: &[Entry<'_, Template>]) -> Vec<Diagnostic> {
    let longest = longest_lease(templates.iter().map(|it| &it.value));
    let warnings = templates.iter().flat_map(|Entry { item, value }| {
        [
            safe_capacity_warning(item, value),
            lease_length_warning(item, value),
            learning_warning(item, value, longest),
            feedback::warning(item, value),
        ]
    });
    warnings.flatten().collect()
}

fn safe_capacity_warning(item: &Item<'_>, template: &Template) -> Option<Diagnostic> {
    let capacity = template.capacity();
    match template.safe_capacity() {
        Some(SafeCapacity::AtMost(safe)) if safe > capacity => {
            Some(item.get("safe_capacity")?.diagnostic(format!(
                "{safe} is more than the capacity of {capacity}: every holder without a lease may use it"
            )))
        }
        _ => None,
    }
}

/// Warns of a lease that was probably meant in milliseconds.
fn lease_length_warning(item: &Item<'_>, template: &Template) -> Option<Diagnostic> {
    let length = template.algorithm().lease_length;
    if length.get() <= LONG_LEASE_SECONDS {
        return None;
    }
    let item = item.get("algorithm")?.get("lease_length")?;
    Some(item.diagnostic(format!(
        "{length} seconds are more than an hour: a holder that crashes keeps its lease for as long"
    )))
}

/// Warns of a learning mode shorter than the leases that may be in use at a restart.
fn learning_warning(
    item: &Item<'_>,
    template: &Template,
    longest_lease: Seconds,
) -> Option<Diagnostic> {
    const RISK: &str = "leases of the previous master may still be in use, so capacity can be exceeded after a restart";
    // Rounded to the millisecond, as an operator would write it.
    let needed = (longest_lease.get() * CLOCK_DRIFT * 1000.0).round() / 1000.0;
    let item = item.get("algorithm")?.get(LEARNING_MODE_DURATION)?;
    let duration = template.learning_mode_duration()?;
    if duration.get() >= needed {
        None
    } else if duration == Seconds::ZERO {
        Some(item.diagnostic(format!("0 disables learning mode: {RISK}")))
    } else {
        Some(item.diagnostic(format!(
            "{duration} seconds are less than {needed} (the longest lease × {CLOCK_DRIFT}): {RISK}"
        )))
    }
}
