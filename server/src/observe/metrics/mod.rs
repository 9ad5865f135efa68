//! What is counted and measured, for those who watch the server, in the OpenMetrics text that Prometheus reads.
//!
//! Every set of labels is bounded: routes and methods are those of the API, and of the resources only the [`MOST_RESOURCES`] that want
//! the most are named. What the books count anyway is read when somebody asks, so that it costs a lease nothing.

mod books;
mod limits;
mod requests;
mod tls;

use std::fmt;

use prometheus_client::{
    encoding::text,
    metrics::{counter::ConstCounter, gauge::ConstGauge, info::Info},
    registry::{Registry, Unit},
};

use self::books::Books;
use crate::{
    document::change::Counts,
    durability::Writes,
    http::state::{App, BooksInDoubt},
    observe::log,
    quota::RateLimited,
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
    Books(BooksInDoubt),
    Text(fmt::Error),
}

impl From<RateLimited> for Unreadable {
    fn from(limited: RateLimited) -> Self {
        Self::RateLimited(limited)
    }
}

impl From<BooksInDoubt> for Unreadable {
    fn from(in_doubt: BooksInDoubt) -> Self {
        Self::Books(in_doubt)
    }
}

/// All metrics as they are now.
///
/// # Cancel safety
/// Nothing is lost when it is dropped.
pub(crate) async fn scrape(app: &App) -> Result<String, Unreadable> {
    let books = Books::read(app, MOST_RESOURCES).await?;
    let mut registry = Registry::with_prefix("doorman");
    registry.register(
        "build",
        "The program",
        Info::new([("version", env!("CARGO_PKG_VERSION"))]),
    );
    // An epoch is below 2^53, so it fits.
    let epoch = i64::try_from(app.about().epoch.get()).unwrap_or(i64::MAX);
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
    app.requests().register(&mut registry);
    app.connections().register(&mut registry);
    books.register(&mut registry, app.about().taken_for_the_first);
    register_document(&mut registry, app);
    if let Some(tls) = app.tls() {
        tls::register(&mut registry, tls);
    }
    register_bound(&mut registry, app);
    limits::register(&mut registry, app);
    let mut text = String::new();
    text::encode(&mut text, &registry).map_err(Unreadable::Text)?;
    Ok(text)
}

fn register_bound(registry: &mut Registry, app: &App) {
    let Writes { written, failed } = app.bound_writes();
    registry.register(
        "bound_writes",
        "Writings of the bound that the next start learns until, by what became of them; while they fail, leases become shorter, and end",
        books::by_label("outcome", [("written", written), ("failed", failed)]),
    );
}

fn register_document(registry: &mut Registry, app: &App) {
    let in_force = app.in_force();
    let reloads = in_force.reloads();
    let counted = books::by_label(
        "outcome",
        [("applied", reloads.applied), ("refused", reloads.refused)],
    );
    registry.register(
        "config_reloads",
        "Changes of the document, by what became of them",
        counted,
    );
    let Counts { written, failed } = app.changes().counts();
    registry.register(
        "config_writes",
        "Changes of the document over HTTP, by what became of them on the disk; those that failed were refused",
        books::by_label("outcome", [("written", written), ("failed", failed)]),
    );
    registry.register(
        "config_last_reload_successful",
        "Whether the document in force is that of its source",
        ConstGauge::new(i64::from(in_force.error().is_none())),
    );
    registry.register_with_unit(
        "config_in_force_since_timestamp",
        "When the document in force came into force",
        Unit::Seconds,
        ConstGauge::new(reloads.since),
    );
}
