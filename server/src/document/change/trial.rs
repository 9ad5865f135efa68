//! What a change would do, for whom: an account for an operator, before it is made.

use std::sync::Arc;

use doorman_config::{Document, DocumentDiff, Restrictions, SafeCapacityRule, Template};
use doorman_openapi::{DryRun, ResourceEffect, ResourceId, ResourceView};

use crate::{
    http::state::{App, BooksInDoubt},
    ledger::PageQuery,
};

/// The most lines of the document's own changes, and the most resources, that are listed.
const MOST_LISTED: usize = 100;
/// The most live resources that are looked at.
const MOST_LOOKED_AT: usize = 10_000;
/// The most that are passed by on the way, for whoever is bound, as those of others: it is work all the same.
const MOST_PASSED: usize = 100_000;
/// The most globs that are compared with identifiers for it, so that many templates and many resources are no hour of work.
const MOST_COMPARED: usize = 10_000_000;
/// How many resources are taken from the books at a time.
const PAGE: usize = 32;

/// What leads from one document to another, and what that means for live resources. Who is bound is told of its own alone: neither what
/// is odd elsewhere in the document, nor how many resources others have, but for very many.
pub(super) fn account(
    app: &App,
    old: &Document,
    new: &Document,
    restrictions: &Restrictions,
) -> Result<DryRun, BooksInDoubt> {
    let diff = DocumentDiff::between(old, new);
    let mut account = DryRun {
        version: new.version().to_owned(),
        changes: diff.lines().take(MOST_LISTED).collect(),
        change_count: diff.templates.len().saturating_add(diff.rules.len()),
        warnings: if restrictions.is_unrestricted() {
            new.warnings().iter().take(MOST_LISTED).cloned().collect()
        } else {
            Vec::new()
        },
        resources: Vec::new(),
        resource_count: 0,
        looked_at_all: true,
    };
    // Rules alone touch no resource.
    if diff.templates.is_empty() {
        return Ok(account);
    }
    let templates = old.templates().len().saturating_add(new.templates().len());
    let most = MOST_LOOKED_AT.min(MOST_COMPARED / templates.max(1)).max(1);
    let mut looked_at: usize = 0;
    let mut passed: usize = 0;
    let mut after: Option<ResourceId> = None;
    loop {
        app.make_way_on_a_thread();
        let page = app.books(|core, now| {
            core.resources("", &PageQuery::unfiltered(PAGE), after.as_ref(), now)
        })?;
        if passed >= MOST_PASSED && !page.resources.is_empty() {
            account.looked_at_all = false;
            return Ok(account);
        }
        passed = passed.saturating_add(page.resources.len());
        let own = |it: &ResourceView| restrictions.allows_resource(it.resource_id.as_str());
        for resource in page.resources.into_iter().filter(own) {
            if looked_at >= most {
                account.looked_at_all = false;
                return Ok(account);
            }
            looked_at = looked_at.saturating_add(1);
            consider(&mut account, old, new, resource);
        }
        after = page.next;
        if after.is_none() {
            return Ok(account);
        }
    }
}

fn consider(account: &mut DryRun, old: &Document, new: &Document, resource: ResourceView) {
    let id = &resource.resource_id;
    let changes = changes(old.lookup(id), new.lookup(id));
    if changes.is_empty() {
        return;
    }
    account.resource_count = account.resource_count.saturating_add(1);
    if account.resources.len() < MOST_LISTED {
        account.resources.push(ResourceEffect {
            resource_id: resource.resource_id,
            clients: resource.clients,
            sum_has: resource.sum_has,
            changes,
        });
    }
}

/// What changes for a resource that falls under one template and then under another: a field each, `capacity: 100 → 50`.
fn changes(old: Option<&Arc<Template>>, new: Option<&Arc<Template>>) -> Vec<String> {
    let (was, is) = (terms(old), terms(new));
    was.into_iter()
        .zip(is)
        .filter(|((_, was), (_, is))| was != is)
        .map(|((field, was), (_, is))| format!("{field}: {was} → {is}"))
        .collect()
}

/// What counts for a resource, field by field, in words.
fn terms(template: Option<&Arc<Template>>) -> [(&'static str, String); 12] {
    let said = |say: &dyn Fn(&Template) -> String| {
        template.map_or_else(|| "none".to_owned(), |template| say(template))
    };
    [
        ("template", said(&|it| it.identifier_glob().to_owned())),
        ("capacity", said(&|it| it.capacity().to_string())),
        (
            "unit",
            said(&|it| format!("{:?}", it.unit()).to_lowercase()),
        ),
        ("per", said(&|it| it.per().to_string())),
        (
            "safe_capacity",
            said(&|it| match it.safe_capacity() {
                SafeCapacityRule::Dynamic => "an equal part".to_owned(),
                SafeCapacityRule::Fixed(safe) => safe.get().to_string(),
            }),
        ),
        (
            "minimum_refresh_interval",
            said(&|it| it.minimum_refresh_interval().to_string()),
        ),
        ("algorithm.kind", said(&|it| kind(it))),
        (
            "algorithm.lease_length",
            said(&|it| it.algorithm().lease_length.to_string()),
        ),
        (
            "algorithm.refresh_interval",
            said(&|it| it.algorithm().refresh_interval.to_string()),
        ),
        (
            "algorithm.learning_mode_duration",
            said(&|it| {
                let duration = it.learning_mode_duration();
                duration.map_or_else(|| "as needed".to_owned(), |it| it.to_string())
            }),
        ),
        ("surplus", said(&|it| it.surplus().to_string())),
        ("granularity", said(&|it| it.granularity().to_string())),
    ]
}

/// As documents have it.
fn kind(template: &Template) -> String {
    let kind = serde_json::to_value(template.algorithm().kind);
    let kind = kind.ok().and_then(|kind| kind.as_str().map(str::to_owned));
    kind.unwrap_or_default()
}
