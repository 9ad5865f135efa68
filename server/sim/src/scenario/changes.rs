//! Changes of the document during a run.

use std::sync::Arc;

use doorman_config::Document;
use serde::Deserialize;

use super::{InvalidScenario, Resource, check, invalid};

/// The most changes of a scenario.
const MAX_CHANGES: usize = 1_000;

/// Another capacity of a template, from a second on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileChange {
    at: f64,
    /// The `identifier_glob` of the template.
    template: String,
    capacity: f64,
}

/// The document from a second on.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) at: f64,
    pub(crate) document: Arc<Document>,
    /// Of all resources of the scenario.
    pub(super) capacities: Vec<f64>,
}

pub(super) fn check_changes(
    changes: &[FileChange],
    document: &Document,
    resources: &[Resource],
    seconds: f64,
) -> Result<Vec<Change>, InvalidScenario> {
    if changes.len() > MAX_CHANGES {
        let message = format!("must be at most {MAX_CHANGES}, not {}", changes.len());
        return Err(invalid("changes", message));
    }
    let mut current: serde_json::Value =
        serde_json::from_str(&document.to_json()).map_err(|error| invalid("document", error))?;
    let mut capacities: Vec<_> = resources.iter().map(|it| it.capacity).collect();
    let mut earliest = 0.0;
    let mut checked = Vec::new();
    for (index, change) in changes.iter().enumerate() {
        let field = |name: &str| format!("changes[{index}].{name}");
        // In order, so that each builds on the one before.
        check(&field("at"), change.at, earliest..=seconds)?;
        earliest = change.at;
        let is_used = |it: &&Resource| it.template == change.template;
        if !resources.iter().any(|it| is_used(&it)) {
            let message = format!(
                "must be the template of a used resource, not {:?}",
                change.template
            );
            return Err(invalid(&field("template"), message));
        }
        let templates = current
            .get_mut("resources")
            .and_then(|it| it.as_array_mut());
        for template in templates.into_iter().flatten() {
            if template["identifier_glob"] == change.template.as_str() {
                template["capacity"] = change.capacity.into();
            }
        }
        let changed = Document::parse_json(&current.to_string()).map_err(|errors| {
            let first = errors.list().first().map(ToString::to_string);
            invalid(&field("capacity"), first.unwrap_or_default())
        })?;
        for (capacity, resource) in capacities.iter_mut().zip(resources) {
            if resource.template == change.template {
                *capacity = change.capacity;
            }
        }
        checked.push(Change {
            at: change.at,
            document: Arc::new(changed),
            capacities: capacities.clone(),
        });
    }
    Ok(checked)
}
