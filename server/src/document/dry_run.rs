//! The description of a change for an operator, before it is made.

use std::{sync::Arc, thread, time::Duration};

use doorman_config::{Document, DocumentDiff, Edited, Restrictions, SafeCapacityRule, Template};
use doorman_openapi::{DryRun, ResourceEffect, ResourceId, ResourceView};

use super::warnings;
use crate::{
    leasing::{LedgerPoisoned, SharedLedger},
    ledger::{PageQuery, UnmatchedPolicy},
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
    let mut comparison = Comparison {
        old,
        new,
        unmatched: ledger.with(|ledger, _| ledger.unmatched_policy())?,
        lost_resources: 0,
        lost_clients: 0,
        dry_run: DryRun {
            version: new.version().to_owned(),
            changes: diff.lines().take(MAX_LISTED).collect(),
            change_count: diff.templates.len().saturating_add(diff.rules.len()),
            warnings: warnings::of_edit(&edited.notes, new, restrictions),
            resources: Vec::new(),
            resource_count: 0,
            looked_at_all: true,
        },
    };
    // Rules affect no resource.
    if !diff.templates.is_empty() {
        comparison.dry_run.looked_at_all = comparison.compare_all(ledger, restrictions, pause)?;
    }
    Ok(comparison.finish())
}

/// Live resources under the old and the new document.
#[derive(Debug)]
struct Comparison<'d> {
    old: &'d Document,
    new: &'d Document,
    unmatched: UnmatchedPolicy,
    /// Resources that no template matches any more, and their clients.
    lost_resources: usize,
    lost_clients: u64,
    dry_run: DryRun,
}

impl Comparison<'_> {
    /// Compares the live resources; `false` if there are too many.
    fn compare_all(
        &mut self,
        ledger: &SharedLedger,
        restrictions: &Restrictions,
        pause: impl Fn() -> Duration,
    ) -> Result<bool, LedgerPoisoned> {
        let (old, new) = (self.old.templates(), self.new.templates());
        let templates = old.len().saturating_add(new.len());
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
                return Ok(false);
            }
            visited = visited.saturating_add(page.resources.len());
            let is_visible =
                |it: &ResourceView| restrictions.allows_resource(it.resource_id.as_str());
            for resource in page.resources.into_iter().filter(is_visible) {
                if compared >= max_compared {
                    return Ok(false);
                }
                compared = compared.saturating_add(1);
                self.compare(resource);
            }
            after = page.next;
            if after.is_none() {
                return Ok(true);
            }
        }
    }

    fn compare(&mut self, resource: ResourceView) {
        let id = &resource.resource_id;
        let (old, new) = (self.old.lookup(id), self.new.lookup(id));
        let changes = self.changes(old, new);
        if changes.is_empty() {
            return;
        }
        if new.is_none() {
            self.lost_resources = self.lost_resources.saturating_add(1);
            self.lost_clients = self.lost_clients.saturating_add(resource.clients);
        }
        let dry_run = &mut self.dry_run;
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
    fn changes(&self, old: Option<&Arc<Template>>, new: Option<&Arc<Template>>) -> Vec<String> {
        let changed = |field, old: &str, new: &str| format!("{field}: {old} → {new}");
        let unmatched = match self.unmatched {
            UnmatchedPolicy::Grant => "unlimited",
            UnmatchedPolicy::Refuse => "0",
        };
        match (old, new) {
            (None, None) => Vec::new(),
            (Some(old), Some(new)) => fields(old)
                .into_iter()
                .zip(fields(new))
                .filter(|((_, old), (_, new))| old != new)
                .map(|((field, old), (_, new))| changed(field, &old, &new))
                .collect(),
            (Some(old), None) => vec![
                changed("template", old.identifier_glob(), "none"),
                changed("capacity", &old.capacity().to_string(), unmatched),
            ],
            (None, Some(new)) => vec![
                changed("template", "none", new.identifier_glob()),
                changed("capacity", unmatched, &new.capacity().to_string()),
            ],
        }
    }

    fn finish(self) -> DryRun {
        let mut dry_run = self.dry_run;
        if self.lost_resources > 0 {
            let outcome = match self.unmatched {
                UnmatchedPolicy::Grant => "unlimited",
                UnmatchedPolicy::Refuse => "blocked",
            };
            let warning = format!(
                "live resources that become {outcome}, because no template matches them: {}; their \
                 clients: {}",
                self.lost_resources, self.lost_clients
            );
            dry_run.warnings.insert(0, warning);
        }
        dry_run
    }
}

/// The fields of a template, as text.
fn fields(template: &Template) -> [(&'static str, String); 12] {
    let algorithm = template.algorithm();
    let safe_capacity = match template.safe_capacity() {
        SafeCapacityRule::Dynamic => "an equal part".to_owned(),
        SafeCapacityRule::Fixed(safe) => safe.get().to_string(),
    };
    let learning = template.learning_mode_duration();
    let learning = learning.map_or_else(|| "as needed".to_owned(), |it| it.to_string());
    [
        ("template", template.identifier_glob().to_owned()),
        ("capacity", template.capacity().to_string()),
        ("unit", format!("{:?}", template.unit()).to_lowercase()),
        ("per", template.per().to_string()),
        ("safe_capacity", safe_capacity),
        (
            "minimum_refresh_interval",
            template.minimum_refresh_interval().to_string(),
        ),
        ("algorithm.kind", kind(template)),
        ("algorithm.lease_length", algorithm.lease_length.to_string()),
        (
            "algorithm.refresh_interval",
            algorithm.refresh_interval.to_string(),
        ),
        ("algorithm.learning_mode_duration", learning),
        ("surplus", template.surplus().to_string()),
        ("granularity", template.granularity().to_string()),
    ]
}

fn kind(template: &Template) -> String {
    let kind = serde_json::to_value(template.algorithm().kind);
    let kind = kind.ok().and_then(|kind| kind.as_str().map(str::to_owned));
    kind.unwrap_or_default()
}
