//! What is counted and measured, for those who watch the server, in the OpenMetrics text that Prometheus reads.
//!
//! Every set of labels is bounded: routes and methods are those of the API, and of the resources only the [`MOST_RESOURCES`] that want
//! the most are named. What the books count anyway is read when somebody asks, so that it costs a lease nothing.

mod books;
mod requests;
mod tls;

use std::fmt;

use doorman_openapi::Epoch;
use prometheus_client::{
    encoding::text,
    metrics::{counter::ConstCounter, gauge::ConstGauge, info::Info},
    registry::{Registry, Unit},
};

use self::books::Books;
use crate::{
    document::{ActiveDocument, DocumentEditor, StoreWrites},
    leasing::{BoundWrites, LedgerPoisoned, SharedLedger},
    net::{ConnectionMetrics, tls::Tls},
    observe::log,
    quota::{Quotas, RateLimited},
};

pub(crate) use self::requests::RequestMetrics;

/// The media type of the text; Prometheus refuses a scrape without it.
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How many resources are named: those that want the most.
const MOST_RESOURCES: usize = 50;

/// Why there is no text.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// Too many others look at the books.
    RateLimited(RateLimited),
    Poisoned(LedgerPoisoned),
    Text(fmt::Error),
}

impl From<RateLimited> for Unreadable {
    fn from(limited: RateLimited) -> Self {
        Self::RateLimited(limited)
    }
}

impl From<LedgerPoisoned> for Unreadable {
    fn from(poisoned: LedgerPoisoned) -> Self {
        Self::Poisoned(poisoned)
    }
}

/// Where the metrics are read from.
#[derive(Debug)]
pub(crate) struct Sources<'a> {
    pub(crate) epoch: Epoch,
    pub(crate) assumed_first_start: bool,
    pub(crate) ledger: &'a SharedLedger,
    pub(crate) active: &'a ActiveDocument,
    pub(crate) editor: &'a DocumentEditor,
    pub(crate) limits: &'a Quotas,
    pub(crate) tls: Option<&'a Tls>,
    pub(crate) requests: &'a RequestMetrics,
    pub(crate) connections: &'a ConnectionMetrics,
}

/// All metrics as they are now.
///
/// # Cancel safety
/// Nothing is lost when it is dropped.
pub(crate) async fn scrape(sources: &Sources<'_>) -> Result<String, Unreadable> {
    let books = Books::read(sources.ledger, sources.limits, MOST_RESOURCES).await?;
    let mut registry = Registry::with_prefix("doorman");
    registry.register(
        "build",
        "The program",
        Info::new([("version", env!("CARGO_PKG_VERSION"))]),
    );
    // An epoch is below 2^53, so it fits.
    let epoch = i64::try_from(sources.epoch.get()).unwrap_or(i64::MAX);
    registry.register(
        "epoch",
        "The reign of the node's master",
        ConstGauge::new(epoch),
    );
    registry.register(
        "log_lines_left_out",
        "Lines of the log that were left out, because nobody took them as fast as they came",
        ConstCounter::new(log::left_out()),
    );
    sources.requests.register(&mut registry);
    sources.connections.register(&mut registry);
    books.register(&mut registry, sources.assumed_first_start);
    register_document(&mut registry, sources);
    if let Some(tls) = sources.tls {
        tls::register(&mut registry, tls);
    }
    register_bound(&mut registry, sources.ledger);
    sources.limits.register(&mut registry);
    let mut text = String::new();
    text::encode(&mut text, &registry).map_err(Unreadable::Text)?;
    Ok(text)
}

fn register_bound(registry: &mut Registry, ledger: &SharedLedger) {
    let BoundWrites { written, failed } = ledger.bound().writes();
    registry.register(
        "bound_writes",
        "Writings of the bound that the next start learns until, by what became of them; while they fail, leases become shorter, and end",
        books::by_label("outcome", [("written", written), ("failed", failed)]),
    );
}

fn register_document(registry: &mut Registry, sources: &Sources<'_>) {
    let reloads = sources.active.reloads();
    let counted = books::by_label(
        "outcome",
        [("applied", reloads.applied), ("refused", reloads.rejected)],
    );
    registry.register(
        "config_reloads",
        "Changes of the document, by what became of them",
        counted,
    );
    let StoreWrites { written, failed } = sources.editor.store_writes();
    registry.register(
        "config_writes",
        "Changes of the document over HTTP, by what became of them on the disk; those that failed were refused",
        books::by_label("outcome", [("written", written), ("failed", failed)]),
    );
    registry.register(
        "config_last_reload_successful",
        "Whether the document in force is that of its source",
        ConstGauge::new(i64::from(sources.active.error().is_none())),
    );
    registry.register_with_unit(
        "config_in_force_since_timestamp",
        "When the document in force came into force",
        Unit::Seconds,
        ConstGauge::new(reloads.since),
    );
}
