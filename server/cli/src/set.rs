//! `doorman set`: single fields of a template or rule.

use std::{io, str::FromStr, time::Duration};

use axum::http::Method;
use doorman_config::changed_fields;
use doorman_openapi::{DryRun, paths};
use serde_json::{Map, Value, json};

use super::{
    client::{Client, ServerArguments},
    document::{Changed, effects},
    failure::Failure,
    output::warn,
    show::encoded,
};

/// Attempts while others change the same entry.
const MAX_ATTEMPTS: u32 = 6;

/// The longest pause before the second attempt, doubled before each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A value is JSON, or else text. All other fields stay as they are. To delete a template or rule,\n\
    change the whole document: doorman export > limits.yaml, then doorman import limits.yaml.\n\n\
    Examples:\n  doorman set 'tenant/*' capacity=20 safe_capacity=2\n  \
    doorman set db algorithm.kind=STATIC description= --dry-run\n  \
    doorman set --rule per-tenant cost=2\n  \
    doorman set tenant/acme capacity=20 --create"
)]
pub(super) struct SetArguments {
    /// The glob of a template, or the name of a rule
    #[arg(value_parser = not_empty)]
    name: String,
    /// A field and its new value: capacity=20, algorithm.lease_length=60. Without a value, or with
    /// null, the field is removed
    #[arg(required = true, value_name = "FIELD=VALUE")]
    fields: Vec<Assignment>,
    /// Change a rule
    #[arg(long, env = "DOORMAN_SET_RULE")]
    rule: bool,
    /// Create the template or rule if it does not exist
    #[arg(long, env = "DOORMAN_SET_CREATE")]
    create: bool,
    /// Print the changes without applying them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    server: ServerArguments,
}

fn not_empty(text: &str) -> Result<String, &'static str> {
    if text.is_empty() {
        return Err("must be the glob of a template, such as tenant/*, or the name of a rule");
    }
    Ok(text.to_owned())
}

/// A field, with the sections that it is in, and its new value.
#[derive(Debug, Clone, PartialEq)]
struct Assignment {
    sections: Vec<String>,
    field: String,
    value: Value,
}

impl FromStr for Assignment {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "must be FIELD=VALUE, such as capacity=20";
        let (names, value) = text.split_once('=').ok_or(EXPECTED)?;
        let mut sections: Vec<_> = names.split('.').map(str::to_owned).collect();
        let field = sections.pop().ok_or(EXPECTED)?;
        if field.is_empty() || sections.iter().any(String::is_empty) {
            return Err(EXPECTED);
        }
        Ok(Self {
            sections,
            field,
            value: match value {
                "" => Value::Null,
                text => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
            },
        })
    }
}

/// The JSON merge patch (RFC 7396) that makes these assignments.
fn merge_patch(assignments: &[Assignment]) -> Result<Value, Failure> {
    let mut patch = Map::new();
    for assignment in assignments {
        let twice = || {
            let mut names = assignment.sections.clone();
            names.push(assignment.field.clone());
            Failure::wrong_usage(format!("{} is set twice", names.join(".")))
        };
        let mut section = &mut patch;
        for name in &assignment.sections {
            let entry = section.entry(name).or_insert_with(|| Map::new().into());
            section = entry.as_object_mut().ok_or_else(twice)?;
        }
        let old = section.insert(assignment.field.clone(), assignment.value.clone());
        if old.is_some() {
            return Err(twice());
        }
    }
    Ok(patch.into())
}

/// Says how to create an entry that does not exist.
fn with_way_to_create(failure: Failure) -> Failure {
    let hint = failure.is_not_found();
    failure.with_hint(hint.then_some("check its name, or create it with --create"))
}

/// The fields of a merge patch that have a value: those of a new entry.
fn without_nulls(patch: Value) -> Value {
    match patch {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(name, value)| (name, without_nulls(value)));
            Value::Object(fields.collect())
        }
        value => value,
    }
}

/// The fields that a merge patch names, as an entry has them.
fn named_fields(entry: &Value, patch: &Value) -> Value {
    let Value::Object(fields) = patch else {
        return entry.clone();
    };
    let fields = fields.iter().map(|(name, patch)| {
        let old = entry.get(name).unwrap_or(&Value::Null);
        (name.clone(), named_fields(old, patch))
    });
    Value::Object(fields.collect())
}

/// Repeats the change while others change other fields of the same entry.
pub(super) async fn set(arguments: SetArguments) -> Result<String, Failure> {
    let entry = Entry::new(&arguments);
    let patch = merge_patch(&arguments.fields)?;
    let client = Client::new(&arguments.server)?;
    let mut longest_pause = FIRST_PAUSE;
    let mut first = None;
    for _ in 1..MAX_ATTEMPTS {
        match entry.set(&client, &arguments, &patch, &mut first).await {
            Err(failure) if failure.is_outdated() => {}
            result => return result,
        }
        tokio::time::sleep(longest_pause.mul_f64(fastrand::f64())).await;
        longest_pause *= 2;
    }
    let result = entry.set(&client, &arguments, &patch, &mut first).await;
    result.map_err(Failure::of_concurrent_change)
}

/// A template or rule.
struct Entry<'a> {
    kind: &'static str,
    name: &'a str,
    path: String,
}

impl<'a> Entry<'a> {
    fn new(arguments: &'a SetArguments) -> Self {
        let name = encoded(&arguments.name);
        let (kind, path) = if arguments.rule {
            ("rule", paths::RULE.replace("{name}", &name))
        } else {
            (
                "template",
                paths::TEMPLATE.replace("{identifier_glob}", &name),
            )
        };
        Self {
            kind,
            name: &arguments.name,
            path,
        }
    }

    async fn set(
        &self,
        client: &Client,
        arguments: &SetArguments,
        patch: &Value,
        first: &mut Option<Value>,
    ) -> Result<String, Failure> {
        let old: Result<(Value, _), _> = client.get_with_etag(&self.path).await;
        let (old, etag) = match old {
            // A restricted token may create a rule, and does not learn whether there is one.
            Err(failure)
                if arguments.create && (failure.is_not_found() || failure.is_forbidden()) =>
            {
                first.get_or_insert_with(|| named_fields(&Value::Null, patch));
                let is_hidden = failure.is_forbidden();
                let created = self.create(client, arguments, patch).await;
                return created.map_err(|failure| {
                    if is_hidden && failure.is_outdated() {
                        self.exists()
                    } else {
                        failure
                    }
                });
            }
            old => old.map_err(with_way_to_create)?,
        };
        self.reject_other_change(first, &named_fields(&old, patch))?;
        let patch = patch.to_string();
        if arguments.dry_run {
            let path = format!("{}?dry_run=true", self.path);
            return described(&client.change(Method::PATCH, &path, None, patch).await?);
        }
        // With the ETag, the output has all changes of the entry.
        let mut new: Value = client
            .change(Method::PATCH, &self.path, etag.as_ref(), patch)
            .await?;
        let warnings = new.as_object_mut().and_then(|new| new.remove("warnings"));
        warn_of(serde_json::from_value(json!({"warnings": warnings}))?);
        let changes = changed_fields(&old, &new);
        if changes.is_empty() {
            return Ok("nothing to change\n".to_owned());
        }
        let Self { kind, name, .. } = self;
        Ok(format!(
            "changed: {kind} {name:?}: {}\n",
            changes.join(", ")
        ))
    }

    /// Fails if a named field is not as this command has read it first.
    fn reject_other_change(&self, first: &mut Option<Value>, now: &Value) -> Result<(), Failure> {
        let first = first.get_or_insert_with(|| now.clone());
        if first == now {
            return Ok(());
        }
        let Self { kind, name, .. } = self;
        let changes = changed_fields(first, now).join(", ");
        Err(Failure::new(format!(
            "nothing was changed: somebody else has changed {kind} {name:?} meanwhile: {changes}; \
             run the command again to replace that"
        )))
    }

    /// The failure to create an entry that the token may not read.
    fn exists(&self) -> Failure {
        let Self { kind, name, .. } = self;
        Failure::new(format!(
            "nothing was changed: {kind} {name:?} exists, and the token does not allow to read it"
        ))
    }

    async fn create(
        &self,
        client: &Client,
        arguments: &SetArguments,
        patch: &Value,
    ) -> Result<String, Failure> {
        let Self { kind, name, path } = self;
        let new = without_nulls(patch.clone()).to_string();
        if arguments.dry_run {
            let path = format!("{path}?dry_run=true");
            return described(&client.create(&path, new).await?);
        }
        warn_of(client.create(path, new).await?);
        Ok(format!("created: {kind} {name:?}\n"))
    }
}

fn described(dry_run: &DryRun) -> Result<String, Failure> {
    for warning in &dry_run.warnings {
        warn(&mut io::stderr(), warning);
    }
    if dry_run.changes.is_empty() {
        return Ok("nothing to change\n".to_owned());
    }
    let lines = dry_run.changes.iter();
    let lines: String = lines.map(|it| format!("would change: {it}\n")).collect();
    Ok(lines + &effects(dry_run)?)
}

fn warn_of(changed: Changed) {
    for warning in changed.warnings.into_iter().flatten() {
        warn(&mut io::stderr(), &warning);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(assignments: &[&str]) -> Result<Value, String> {
        let parsed: Result<Vec<Assignment>, _> = assignments.iter().map(|it| it.parse()).collect();
        merge_patch(&parsed?).map_err(|failure| failure.to_string())
    }

    #[test]
    fn assignments_are_a_merge_patch() {
        let assignments = [
            "capacity=20",
            "safe_capacity=-1",
            "description=one = two",
            "unit=",
            "per=null",
            "algorithm.kind=STATIC",
            "algorithm.lease_length=1e1",
            r#"algorithm.parameters=[{"name": "surplus", "value": "0.2"}]"#,
        ];
        let expected = json!({
            "capacity": 20,
            "safe_capacity": -1,
            "description": "one = two",
            "unit": null,
            "per": null,
            "algorithm": {
                "kind": "STATIC",
                "lease_length": 10.0,
                "parameters": [{"name": "surplus", "value": "0.2"}]
            }
        });
        assert_eq!(patch(&assignments), Ok(expected));
    }

    #[test]
    fn malformed_and_repeated_assignments_are_rejected() {
        for assignments in [
            &["capacity"][..],
            &["=5"],
            &["a.=5"],
            &[".a=5"],
            &["a..b=5"],
        ] {
            let error = patch(assignments).unwrap_err();
            assert!(error.contains("capacity=20"), "{error}");
        }
        for assignments in [
            ["a=1", "a=2"],
            ["a=1", "a.b=2"],
            ["a.b=1", "a={}"],
            ["a.b=1", "a.b=1"],
        ] {
            let error = patch(&assignments).unwrap_err();
            assert!(error.ends_with("is set twice"), "{error}");
        }
    }
}
