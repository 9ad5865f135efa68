//! The description of a change for an operator, before it is made, and the warnings of its effects.

use std::{
    fmt::{self, Display},
    sync::Arc,
    thread,
    time::Duration,
};

use doorman_config::{Document, DocumentDiff, Edited, Restrictions, Template, changed_fields};
use doorman_openapi::{AlgorithmKind, Capacity, DryRun, ResourceEffect, ResourceId, ResourceView};
use serde_json::{Value, json};

use super::warnings;
use crate::{leasing::LedgerUnavailable, leasing::SharedLedger};
use doorman_core::{ledger::PageQuery, ledger::UnmatchedPolicy};

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
) -> Result<DryRun, LedgerUnavailable> {
    let new = &edited.document;
    let comparison = compare(ledger, old, new, restrictions, pause)?;
    let effects = comparison.warnings();
    Ok(DryRun {
        warnings: warnings::of_edit(&effects, &edited.notes, [old, new], restrictions),
        ..comparison.dry_run
    })
}

/// The warnings of the effects that a change has on live resources.
pub(super) fn effects(
    ledger: &SharedLedger,
    old: &Document,
    new: &Document,
    restrictions: &Restrictions,
    pause: impl Fn() -> Duration,
) -> Result<Vec<String>, LedgerUnavailable> {
    Ok(compare(ledger, old, new, restrictions, pause)?.warnings())
}

fn compare<'d>(
    ledger: &SharedLedger,
    old: &'d Document,
    new: &'d Document,
    restrictions: &Restrictions,
    pause: impl Fn() -> Duration,
) -> Result<Comparison<'d>, LedgerUnavailable> {
    let unmatched = match ledger.with(|ledger, _| ledger.unmatched_policy()) {
        Ok(unmatched) => Some(unmatched),
        // Only the master knows the live resources.
        Err(LedgerUnavailable::NotMaster) => None,
        Err(LedgerUnavailable::Poisoned) => return Err(LedgerUnavailable::Poisoned),
    };
    let diff = DocumentDiff::between(old, new);
    let mut comparison = Comparison {
        old,
        new,
        unmatched: unmatched.unwrap_or_default(),
        unlimited: Affected::default(),
        blocked: Affected::default(),
        dry_run: DryRun {
            version: new.version().to_owned(),
            changes: diff.lines().take(MAX_LISTED).collect(),
            change_count: diff.templates.len().saturating_add(diff.rules.len()),
            warnings: Vec::new(),
            resources: Vec::new(),
            resource_count: 0,
            looked_at_all: true,
        },
    };
    // Rules affect no resource.
    if !diff.templates.is_empty() {
        comparison.dry_run.looked_at_all =
            unmatched.is_some() && comparison.compare_all(ledger, restrictions, pause)?;
    }
    Ok(comparison)
}

/// Live resources under the old and the new document.
#[derive(Debug)]
struct Comparison<'d> {
    old: &'d Document,
    new: &'d Document,
    unmatched: UnmatchedPolicy,
    /// Those that become unlimited.
    unlimited: Affected,
    /// Those that become blocked.
    blocked: Affected,
    dry_run: DryRun,
}

/// Live resources with the same effect. A client counts once for each of them.
#[derive(Debug, Clone, Copy, Default)]
struct Affected {
    resources: usize,
    leases: u64,
}

impl Affected {
    fn add(&mut self, resource: &ResourceView) {
        self.resources = self.resources.saturating_add(1);
        self.leases = self.leases.saturating_add(resource.clients);
    }

    fn warning(self, outcome: &str, is_complete: bool) -> Option<String> {
        let Self { resources, leases } = self;
        let at_least = if is_complete { "" } else { "at least " };
        (resources > 0).then(|| {
            format!(
                "live resources that become {outcome}: {at_least}{resources}; leases of their \
                 clients: {at_least}{leases}"
            )
        })
    }
}

/// The most that all holders can have together.
#[derive(Debug, Clone, Copy, PartialEq)]
enum EffectiveLimit {
    Unlimited,
    Capacity(Capacity),
}

impl EffectiveLimit {
    fn of(template: Option<&Arc<Template>>, unmatched: UnmatchedPolicy) -> Self {
        match (template, unmatched) {
            (Some(template), _) if template.algorithm().kind == AlgorithmKind::NoAlgorithm => {
                Self::Unlimited
            }
            (Some(template), _) => Self::Capacity(template.capacity()),
            (None, UnmatchedPolicy::Grant) => Self::Unlimited,
            (None, UnmatchedPolicy::Refuse) => Self::Capacity(Capacity::ZERO),
        }
    }
}

impl Display for EffectiveLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Capacity(capacity) => capacity.fmt(f),
        }
    }
}

impl Comparison<'_> {
    /// Compares the live resources; `false` if there are too many.
    fn compare_all(
        &mut self,
        ledger: &SharedLedger,
        restrictions: &Restrictions,
        pause: impl Fn() -> Duration,
    ) -> Result<bool, LedgerUnavailable> {
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
        let [was, is] = [old, new].map(|it| EffectiveLimit::of(it, self.unmatched));
        if was != is {
            match is {
                EffectiveLimit::Unlimited => self.unlimited.add(&resource),
                EffectiveLimit::Capacity(Capacity::ZERO) => self.blocked.add(&resource),
                EffectiveLimit::Capacity(_) => {}
            }
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
        match (old, new) {
            (None, None) => Vec::new(),
            (Some(old), Some(new)) => fields(old)
                .into_iter()
                .zip(fields(new))
                .filter(|((_, old), (_, new))| old != new)
                .map(|((field, old), (_, new))| changed(field, &old, &new))
                .chain(changed_fields(&feedback(old), &feedback(new)))
                .collect(),
            (old, new) => {
                let glob = |it: Option<&Arc<Template>>| {
                    it.map_or("none", |it| it.identifier_glob()).to_owned()
                };
                let [was, is] = [old, new].map(|it| EffectiveLimit::of(it, self.unmatched));
                let mut changes = vec![changed("template", &glob(old), &glob(new))];
                if was != is {
                    changes.push(changed("capacity", &was.to_string(), &is.to_string()));
                }
                changes
            }
        }
    }

    /// Effects that an operator may not expect.
    fn warnings(&self) -> Vec<String> {
        let is_complete = self.dry_run.looked_at_all;
        let effects = [
            self.unlimited.warning("unlimited", is_complete),
            self.blocked.warning("blocked", is_complete),
        ];
        effects.into_iter().flatten().collect()
    }
}

/// The fields of a template, as text.
fn fields(template: &Template) -> [(&'static str, String); 14] {
    let algorithm = template.algorithm();
    let safe_capacity = match template.safe_capacity() {
        None => "an equal part".to_owned(),
        Some(safe) => safe.get().to_string(),
    };
    let surplus = template.surplus();
    let surplus = surplus.map_or_else(|| "default".to_owned(), |it| it.to_string());
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
        ("surplus", surplus),
        ("granularity", template.granularity().to_string()),
        ("floor", template.floor().to_string()),
        ("decay_factor", template.decay_factor().to_string()),
    ]
}

/// The section as it is written: its fields are named as in the changes of the document.
fn feedback(template: &Template) -> Value {
    match template.feedback() {
        Some(feedback) => json!({"feedback": feedback}),
        None => json!({}),
    }
}

fn kind(template: &Template) -> String {
    let kind = serde_json::to_value(template.algorithm().kind);
    let kind = kind.ok().and_then(|kind| kind.as_str().map(str::to_owned));
    kind.unwrap_or_default()
}
