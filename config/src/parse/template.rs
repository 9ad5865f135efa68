//! `resources`: the list of templates.

use std::collections::HashMap;

use doorman_openapi::{
    Algorithm, AlgorithmKind, CLOCK_DRIFT, Capacity, Glob, SafeCapacity, Seconds, Unit,
};

use super::field::{
    DURATION, DURATION_OR_ZERO, FieldType, Fields, GLOB, Item, Mismatch, UNIT, entries, number,
    one_of, suggestion, text,
};
use crate::{
    diagnostic::{Diagnostic, ErrorCollector, Quoted, Reported},
    template::{AlgorithmSection, Parameters, SafeCapacityRule, Template, default_algorithm},
    tree::Value,
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
];

pub(crate) const ALGORITHM_FIELDS: &[&str] = &[
    "kind",
    "lease_length",
    "refresh_interval",
    "learning_mode_duration",
    "parameters",
];

const LEARNING_MODE_DURATION: &str = "learning_mode_duration";

/// Longer leases have a warning.
const LONG_LEASE_SECONDS: f64 = 3600.0;

const DESCRIPTION: FieldType<String> = FieldType {
    expected: "text",
    parse: text,
};

const CAPACITY: FieldType<Capacity> = FieldType {
    expected: "a number from 0 to 1e15",
    parse: |value| number(value, Capacity::new),
};

const SAFE_CAPACITY: FieldType<SafeCapacity> = FieldType {
    expected: "-1 (unlimited) or a number from 0 to 1e15",
    parse: |value| number(value, SafeCapacity::new),
};

/// A template before it takes the algorithm of the catch-all template. Every field is parsed, so
/// that no error hides another.
#[derive(Debug)]
struct Draft<'n> {
    fields: Fields<'n>,
    identifier_glob: Result<Glob, Reported>,
    capacity: Result<Capacity, Reported>,
    safe_capacity: Result<Option<SafeCapacity>, Reported>,
    description: Result<Option<String>, Reported>,
    unit: Result<Option<Unit>, Reported>,
    per: Result<Option<Seconds>, Reported>,
    minimum_refresh_interval: Result<Option<Seconds>, Reported>,
    algorithm: Result<Option<AlgorithmSection>, Reported>,
}

/// A valid template as written.
#[derive(Debug)]
pub(super) struct ReadTemplate<'n> {
    pub(super) item: Item<'n>,
    pub(super) template: Template,
}

impl<'n> ReadTemplate<'n> {
    /// A field, if it is written.
    fn field(&self, name: &str) -> Option<Item<'n>> {
        self.item.field(name)
    }

    /// A field of its own `algorithm`, if it is written.
    fn algorithm_field(&self, name: &str) -> Option<Item<'n>> {
        self.field("algorithm")?.field(name)
    }
}

/// Reads the list of templates.
pub(super) fn read<'n>(
    item: &Item<'n>,
    errors: &mut ErrorCollector,
) -> Result<Vec<ReadTemplate<'n>>, Reported> {
    let nodes = item.nodes("a list of templates", errors)?;
    let drafts: Vec<_> = entries("resources", "identifier_glob", nodes)
        .map(|item| Draft::read(item, errors))
        .collect();
    check_globs(&drafts, errors);
    let catch_all = drafts.iter().flatten().find(|draft| draft.is_catch_all());
    let templates: Vec<_> = drafts
        .iter()
        .map(|draft| {
            let draft = draft.as_ref().map_err(|reported| *reported)?;
            Ok(ReadTemplate {
                item: draft.fields.item().clone(),
                template: draft.finish(catch_all, errors)?,
            })
        })
        .collect();
    templates.into_iter().collect()
}

/// The globs are unique, and a catch-all is the last template.
fn check_globs(drafts: &[Result<Draft<'_>, Reported>], errors: &mut ErrorCollector) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let last = drafts.len().saturating_sub(1);
    for (index, draft) in drafts.iter().enumerate() {
        let Ok(draft) = draft else { continue };
        let (Ok(glob), Some(item)) = (&draft.identifier_glob, draft.fields.get("identifier_glob"))
        else {
            continue;
        };
        if let Some(first) = seen.get(glob.as_str()) {
            let message = format!("must be unique; resources[{first}] has the same glob");
            item.error(message, errors);
            continue;
        }
        seen.insert(glob.as_str(), index);
        if glob.is_catch_all() && index != last {
            item.error(
                "must be the last template, since it matches everything",
                errors,
            );
        }
    }
}

impl<'n> Draft<'n> {
    fn read(item: Item<'n>, errors: &mut ErrorCollector) -> Result<Self, Reported> {
        let fields = Fields::read(item, FIELDS, errors)?;
        let identifier_glob = fields.required("identifier_glob", &GLOB, errors);
        let is_catch_all = identifier_glob.as_ref().is_ok_and(Glob::is_catch_all);
        Ok(Self {
            identifier_glob,
            capacity: fields.required("capacity", &CAPACITY, errors),
            safe_capacity: fields.optional("safe_capacity", &SAFE_CAPACITY, errors),
            description: fields.optional("description", &DESCRIPTION, errors),
            unit: fields.optional("unit", &UNIT, errors),
            per: fields.optional("per", &DURATION, errors),
            minimum_refresh_interval: fields.optional(
                "minimum_refresh_interval",
                &DURATION_OR_ZERO,
                errors,
            ),
            algorithm: match fields.get("algorithm") {
                Some(item) => algorithm(item, errors).map(Some),
                None if is_catch_all => {
                    let expected = "a template that matches everything must have it";
                    Err(fields.missing("algorithm", expected, errors))
                }
                None => Ok(None),
            },
            fields,
        })
    }

    fn is_catch_all(&self) -> bool {
        self.identifier_glob.as_ref().is_ok_and(Glob::is_catch_all)
    }

    fn finish(
        &self,
        catch_all: Option<&Self>,
        errors: &mut ErrorCollector,
    ) -> Result<Template, Reported> {
        let own = self.algorithm.as_ref().map_err(|reported| *reported)?;
        let section = match (own, catch_all.map(|draft| &draft.algorithm)) {
            (Some(own), _) => own.clone(),
            (None, Some(Ok(Some(default)))) => default.clone(),
            (None, Some(Err(reported))) => return Err(*reported),
            (None, Some(Ok(None)) | None) => {
                let expected = "must be here or in the template for \"*\"";
                return Err(self.fields.missing("algorithm", expected, errors));
            }
        };
        let minimum_refresh_interval = self.minimum_refresh_interval?.unwrap_or(Seconds::ZERO);
        let refresh_interval = section.algorithm.refresh_interval;
        if minimum_refresh_interval > refresh_interval
            && let Some(item) = self.fields.get("minimum_refresh_interval")
        {
            let message = format!(
                "must be at most the refresh_interval of {refresh_interval} seconds, not {}",
                item.node.value
            );
            return Err(item.error(message, errors));
        }
        let kind = section.algorithm.kind;
        if is_for_rates_only(kind)
            && self.unit.is_ok_and(|unit| unit == Some(Unit::Gauge))
            && let Some(item) = self.fields.get("unit")
        {
            let message = format!("must be rate: {} is for rates only", kind_name(kind));
            return Err(item.error(message, errors));
        }
        Ok(Template {
            identifier_glob: self.identifier_glob.clone()?,
            capacity: self.capacity?,
            safe_capacity: self
                .safe_capacity?
                .map_or(SafeCapacityRule::Dynamic, SafeCapacityRule::Fixed),
            description: self.description.clone()?,
            unit: self.unit?.unwrap_or_default(),
            per: self.per?.unwrap_or(Seconds::saturating(1.0)),
            minimum_refresh_interval,
            section,
            has_own_algorithm: own.is_some(),
        })
    }
}

fn algorithm(item: Item<'_>, errors: &mut ErrorCollector) -> Result<AlgorithmSection, Reported> {
    let fields = Fields::read(item, ALGORITHM_FIELDS, errors)?;
    let kind = fields.required("kind", &KIND, errors);
    let lease_length = fields.optional("lease_length", &DURATION, errors);
    let refresh_interval = fields.optional("refresh_interval", &DURATION, errors);
    let learning_mode_duration = fields.optional(LEARNING_MODE_DURATION, &DURATION_OR_ZERO, errors);
    let parameters = parameters(&fields, kind.ok(), errors);
    let defaults = default_algorithm();
    let algorithm = Algorithm {
        kind: kind?,
        lease_length: lease_length?.unwrap_or(defaults.lease_length),
        refresh_interval: refresh_interval?.unwrap_or(defaults.refresh_interval),
    };
    check_refresh_interval(&algorithm, &fields, errors)?;
    Ok(AlgorithmSection {
        algorithm,
        learning_mode_duration: learning_mode_duration?,
        parameters: parameters?,
    })
}

fn check_refresh_interval(
    algorithm: &Algorithm,
    fields: &Fields<'_>,
    errors: &mut ErrorCollector,
) -> Result<(), Reported> {
    let (lease_length, refresh_interval) = (algorithm.lease_length, algorithm.refresh_interval);
    if refresh_interval < lease_length {
        return Ok(());
    }
    let expected = format!("must be shorter than the lease_length of {lease_length} seconds");
    Err(match fields.get("refresh_interval") {
        Some(item) => item.error(format!("{expected}, not {}", item.node.value), errors),
        None => {
            let expected = format!("{expected}, and is {refresh_interval} when absent");
            fields.missing("refresh_interval", expected, errors)
        }
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
    parse: |value| {
        let known = match value {
            Value::Number { value, .. } => KINDS.iter().find(|(_, it)| *it == Some(*value)),
            Value::Text(text) => KINDS.iter().find(|(kind, _)| kind_name(*kind) == text),
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Map(_) => None,
        };
        match (known, value) {
            (Some((kind, _)), _) => Ok(*kind),
            (None, Value::Text(text)) => Err(unknown_kind(text)),
            (None, _) => Err(Mismatch::Unexpected),
        }
    },
};

fn unknown_kind(text: &str) -> Mismatch {
    let expected = KIND.expected;
    match suggestion(text, &KINDS.map(|(kind, _)| kind_name(kind))) {
        Some(meant) => Mismatch::Message(format!(
            "must be {expected}, not {}; did you mean {meant}?",
            Quoted(text)
        )),
        None => Mismatch::Unexpected,
    }
}

fn kind_name(kind: AlgorithmKind) -> &'static str {
    match kind {
        AlgorithmKind::NoAlgorithm => "NO_ALGORITHM",
        AlgorithmKind::Static => "STATIC",
        AlgorithmKind::ProportionalShare => "PROPORTIONAL_SHARE",
        AlgorithmKind::FairShare => "FAIR_SHARE",
        AlgorithmKind::PriorityShare => "PRIORITY_SHARE",
        AlgorithmKind::Suppression => "SUPPRESSION",
        AlgorithmKind::SharedBucket => "SHARED_BUCKET",
    }
}

fn takes_parameters(kind: AlgorithmKind) -> bool {
    match kind {
        AlgorithmKind::ProportionalShare
        | AlgorithmKind::FairShare
        | AlgorithmKind::PriorityShare => true,
        AlgorithmKind::NoAlgorithm
        | AlgorithmKind::Static
        | AlgorithmKind::Suppression
        | AlgorithmKind::SharedBucket => false,
    }
}

fn is_for_rates_only(kind: AlgorithmKind) -> bool {
    match kind {
        AlgorithmKind::Suppression | AlgorithmKind::SharedBucket => true,
        AlgorithmKind::NoAlgorithm
        | AlgorithmKind::Static
        | AlgorithmKind::ProportionalShare
        | AlgorithmKind::FairShare
        | AlgorithmKind::PriorityShare => false,
    }
}

#[derive(Debug, Clone, Copy)]
enum ParameterName {
    Surplus,
    Granularity,
    Floor,
    DecayFactor,
}

const PARAMETER_NAME: FieldType<ParameterName> = FieldType {
    expected: "surplus, granularity, floor or decay_factor",
    parse: |value| {
        let names = [
            ("surplus", ParameterName::Surplus),
            ("granularity", ParameterName::Granularity),
            ("floor", ParameterName::Floor),
            ("decay_factor", ParameterName::DecayFactor),
        ];
        one_of(value, &names)
    },
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

/// The smallest step of shares: a capacity divided by it is still an exact number.
const MIN_GRANULARITY: f64 = 1e-6;

fn parameters(
    fields: &Fields<'_>,
    kind: Option<AlgorithmKind>,
    errors: &mut ErrorCollector,
) -> Result<Parameters, Reported> {
    let mut parameters = Parameters::default();
    let Some(item) = fields.get("parameters") else {
        return Ok(parameters);
    };
    let mut failed = None;
    for item in item.list("a list of names and values", errors)? {
        failed = failed.or(parameter(&item, kind, &mut parameters, errors).err());
    }
    failed.map_or(Ok(parameters), Err)
}

fn parameter(
    item: &Item<'_>,
    kind: Option<AlgorithmKind>,
    parameters: &mut Parameters,
    errors: &mut ErrorCollector,
) -> Result<(), Reported> {
    let fields = Fields::read(item.clone(), &["name", "value"], errors)?;
    let name = fields.required("name", &PARAMETER_NAME, errors);
    let number = fields.required("value", &PARAMETER_VALUE, errors);
    let (name, number) = (name?, number?);
    if let Some(kind) = kind
        && !matches!(name, ParameterName::DecayFactor)
        && !takes_parameters(kind)
    {
        let message = format!(
            "must be left out: {} takes no parameters but decay_factor",
            kind_name(kind)
        );
        return Err(item.error(message, errors));
    }
    if let (ParameterName::Floor, Some(kind)) = (name, kind)
        && kind != AlgorithmKind::PriorityShare
    {
        let message = "must be left out: floor is for PRIORITY_SHARE only";
        return Err(item.error(message, errors));
    }
    let out_of_range = match name {
        ParameterName::Surplus if number > 1.0 => Some("a number from 0 to 1 for surplus"),
        ParameterName::Granularity if number > 0.0 && number < MIN_GRANULARITY => {
            Some("0 or a number from 0.000001 for granularity")
        }
        ParameterName::Floor if number > 1.0 => Some("a number from 0 to 1 for floor"),
        ParameterName::DecayFactor if number == 0.0 || number > 1.0 => {
            Some("a number above 0 and at most 1 for decay_factor")
        }
        ParameterName::Surplus
        | ParameterName::Granularity
        | ParameterName::Floor
        | ParameterName::DecayFactor => None,
    };
    if let (Some(expected), Some(item)) = (out_of_range, fields.get("value")) {
        let message = format!("must be {expected}, not {}", item.node.value);
        return Err(item.error(message, errors));
    }
    let repeated = match name {
        ParameterName::Surplus => parameters.surplus.replace(number).map(|_| "surplus"),
        ParameterName::Granularity => {
            let step = Capacity::saturating(number);
            parameters.granularity.replace(step).map(|_| "granularity")
        }
        ParameterName::Floor => parameters.floor.replace(number).map(|_| "floor"),
        ParameterName::DecayFactor => parameters
            .decay_factor
            .replace(number)
            .map(|_| "decay_factor"),
    };
    match repeated {
        Some(name) => Err(item.error(format!("must be left out: {name} is already set"), errors)),
        None => Ok(()),
    }
}

/// The longest lease of any template. Resources without a template are not divided, so their leases
/// do not matter here.
pub(super) fn longest_lease(templates: &[ReadTemplate<'_>]) -> Seconds {
    let lengths = templates
        .iter()
        .map(|it| it.template.algorithm().lease_length);
    lengths.fold(Seconds::ZERO, |longest, length| {
        if length > longest { length } else { longest }
    })
}

/// Warns of a document in which a resource may match no template.
pub(super) fn catch_all_warning(
    list: &Item<'_>,
    templates: &[ReadTemplate<'_>],
) -> Option<Diagnostic> {
    let mut globs = templates.iter().map(|it| &it.template.identifier_glob);
    (!globs.any(Glob::is_catch_all)).then(|| {
        list.diagnostic(
            "has no template for \"*\": resources that match no template are unlimited, or blocked \
             with `--unmatched refuse`",
        )
    })
}

/// Warns of valid values that are probably mistakes, and of a risk.
pub(super) fn warnings(templates: &[ReadTemplate<'_>], longest_lease: Seconds) -> Vec<Diagnostic> {
    let warnings = templates.iter().flat_map(|read| {
        [
            safe_capacity_warning(read),
            lease_length_warning(read),
            learning_warning(read, longest_lease),
        ]
    });
    warnings.flatten().collect()
}

fn safe_capacity_warning(read: &ReadTemplate<'_>) -> Option<Diagnostic> {
    let capacity = read.template.capacity();
    match read.template.safe_capacity() {
        SafeCapacityRule::Fixed(SafeCapacity::AtMost(safe)) if safe > capacity => {
            Some(read.field("safe_capacity")?.diagnostic(format!(
                "{safe} is more than the capacity of {capacity}: every holder without a lease may use it"
            )))
        }
        SafeCapacityRule::Fixed(_) | SafeCapacityRule::Dynamic => None,
    }
}

/// Warns of a lease that was probably meant in milliseconds.
fn lease_length_warning(read: &ReadTemplate<'_>) -> Option<Diagnostic> {
    let length = read.template.algorithm().lease_length;
    if length.get() <= LONG_LEASE_SECONDS {
        return None;
    }
    Some(read.algorithm_field("lease_length")?.diagnostic(format!(
        "{length} seconds are more than an hour: a holder that crashes keeps its lease for as long"
    )))
}

/// Warns of a learning mode shorter than the leases that may be in use at a restart.
fn learning_warning(read: &ReadTemplate<'_>, longest_lease: Seconds) -> Option<Diagnostic> {
    const RISK: &str = "leases of the previous master may still be in use, so capacity can be exceeded after a restart";
    // Rounded to the millisecond, as an operator would write it.
    let needed = (longest_lease.get() * CLOCK_DRIFT * 1000.0).round() / 1000.0;
    let item = read.algorithm_field(LEARNING_MODE_DURATION)?;
    let duration = read.template.learning_mode_duration()?;
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
