//! The description of a change for an operator, before it is made.

use std::{sync::Arc, thread, time::Duration};

use doorman_config::{Document, DocumentDiff, Edited, Restrictions, SafeCapacityRule, Template};
use doorman_openapi::{DryRun, ResourceEffect, ResourceId, ResourceView};

use super::warnings;
use crate::{
    leasing::{LedgerPoisoned, SharedLedger},
    ledger::PageQuery,
};

/// The most changes and resources that are listed.
const MAX_LISTED: usize = 100;
/// The most live resources that are compared.
const MAX_COMPARED: usize = 10_000;
/// The most live resources that are visited, including those outside of the caller's restrictions.
const MAX_VISITED: usize = 100_000;
/// The most globs that are matched: many templates and many resources must not take an hour.
const MAX_MATCHES: usize = 10_000_000;
/// Resources per turn under the ledger's lock.
const PAGE: usize = 32;

/// Describes the difference of two documents and its effect on live resources. A restricted
/// caller sees its own resources only, and no warnings of the document.
pub(super) fn describe(
    ledger: &SharedLedger,
    old: &Document,
    edited: &Edited,
    restrictions: &Restrictions,
    pause: impl Fn() -> Duration,
) -> Result<DryRun, LedgerPoisoned> {
    let new = &edited.document;
    let diff = DocumentDiff::between(old, new);
    let mut dry_run = DryRun {
        version: new.version().to_owned(),
        changes: diff.lines().take(MAX_LISTED).collect(),
        change_count: diff.templates.len().saturating_add(diff.rules.len()),
        warnings: warnings::of_edit(&edited.notes, new, restrictions),
        resources: Vec::new(),
        resource_count: 0,
        looked_at_all: true,
    };
    // Rules affect no resource.
    if diff.templates.is_empty() {
        return Ok(dry_run);
    }
    let templates = old.templates().len().saturating_add(new.templates().len());
    let max_compared = MAX_COMPARED.min(MAX_MATCHES / templates.max(1)).max(1);
    let mut compared: usize = 0;
    let mut visited: usize = 0;
    let mut after: Option<ResourceId> = None;
    loop {
        match pause() {
            Duration::ZERO => thread::yield_now(),
            pause => thread::sleep(pause),
        }
        let page = ledger.with(|ledger, now| {
            ledger.resources(&PageQuery::unfiltered(PAGE), after.as_ref(), now)
        })?;
        if visited >= MAX_VISITED && !page.resources.is_empty() {
            dry_run.looked_at_all = false;
            return Ok(dry_run);
        }
        visited = visited.saturating_add(page.resources.len());
        let is_visible = |it: &ResourceView| restrictions.allows_resource(it.resource_id.as_str());
        for resource in page.resources.into_iter().filter(is_visible) {
            if compared >= max_compared {
                dry_run.looked_at_all = false;
                return Ok(dry_run);
            }
            compared = compared.saturating_add(1);
            compare(&mut dry_run, old, new, resource);
        }
        after = page.next;
        if after.is_none() {
            return Ok(dry_run);
        }
    }
}

fn compare(dry_run: &mut DryRun, old: &Document, new: &Document, resource: ResourceView) {
    let id = &resource.resource_id;
    let changes = changes(old.lookup(id), new.lookup(id));
    if changes.is_empty() {
        return;
    }
    dry_run.resource_count = dry_run.resource_count.saturating_add(1);
    if dry_run.resources.len() < MAX_LISTED {
        dry_run.resources.push(ResourceEffect {
            resource_id: resource.resource_id,
            clients: resource.clients,
            sum_has: resource.sum_has,
            changes,
        });
    }
}

/// The changed fields of a resource's template, such as `capacity: 100 → 50`.
fn changes(old: Option<&Arc<Template>>, new: Option<&Arc<Template>>) -> Vec<String> {
    let (old, new) = (fields(old), fields(new));
    old.into_iter()
        .zip(new)
        .filter(|((_, old), (_, new))| old != new)
        .map(|((field, old), (_, new))| format!("{field}: {old} → {new}"))
        .collect()
}

/// The fields of a template, as text.
fn fields(template: Option<&Arc<Template>>) -> [(&'static str, String); 12] {
    let text = |of: &dyn Fn(&Template) -> String| {
        template.map_or_else(|| "none".to_owned(), |template| of(template))
    };
    [
        ("template", text(&|it| it.identifier_glob().to_owned())),
        ("capacity", text(&|it| it.capacity().to_string())),
        (
            "unit",
            text(&|it| format!("{:?}", it.unit()).to_lowercase()),
        ),
        ("per", text(&|it| it.per().to_string())),
        (
            "safe_capacity",
            text(&|it| match it.safe_capacity() {
                SafeCapacityRule::Dynamic => "an equal part".to_owned(),
                SafeCapacityRule::Fixed(safe) => safe.get().to_string(),
            }),
        ),
        (
            "minimum_refresh_interval",
            text(&|it| it.minimum_refresh_interval().to_string()),
        ),
        ("algorithm.kind", text(&|it| kind(it))),
        (
            "algorithm.lease_length",
            text(&|it| it.algorithm().lease_length.to_string()),
        ),
        (
            "algorithm.refresh_interval",
            text(&|it| it.algorithm().refresh_interval.to_string()),
        ),
        (
            "algorithm.learning_mode_duration",
            text(&|it| {
                let duration = it.learning_mode_duration();
                duration.map_or_else(|| "as needed".to_owned(), |it| it.to_string())
            }),
        ),
        ("surplus", text(&|it| it.surplus().to_string())),
        ("granularity", text(&|it| it.granularity().to_string())),
    ]
}

fn kind(template: &Template) -> String {
    let kind = serde_json::to_value(template.algorithm().kind);
    let kind = kind.ok().and_then(|kind| kind.as_str().map(str::to_owned));
    kind.unwrap_or_default()
}
