//! Collection of all metrics. See [`crate::observe::metrics`] for how to add one.

use doorman_openapi::Epoch;
use prometheus_client::{
    metrics::gauge::ConstGauge,
    registry::{Registry, Unit},
};

use super::ledger::LedgerMetrics;
use crate::{
    document::ActiveDocument, document::DocumentEditor, http::error::ApiError,
    http::state::AppParts, leasing::SharedLedger, net::tls::Tls, observe::metrics::counters,
    util::clock,
};
use doorman_core::reign::BoundWrites;

/// Registers the metrics of the server.
///
/// # Cancel safety
/// Nothing is lost when it is dropped.
pub(super) async fn register(registry: &mut Registry, app: &AppParts) -> Result<(), ApiError> {
    // An epoch is below 2^53.
    let epoch = app.master.borrow().epoch.unwrap_or(Epoch::ZERO);
    registry.register(
        "epoch",
        "Highest epoch of the node of which the server knows that it has begun",
        ConstGauge::new(i64::try_from(epoch.get()).unwrap_or(i64::MAX)),
    );
    registry.register(
        "is_master",
        "1 if the server is the master of its node, else 0",
        ConstGauge::new(i64::from(app.ledger.is_master())),
    );
    if app.server.etcd.is_some() {
        registry.register(
            "etcd_out_of_space",
            "1 if etcd has no space for writes, so that no server can become master, else 0",
            ConstGauge::new(i64::from(app.is_etcd_out_of_space())),
        );
    }
    let ledger = LedgerMetrics::read(&app.ledger, &app.quotas).await?;
    app.requests.register(registry);
    app.connections.register(registry);
    if let Some(ledger) = ledger {
        ledger.register(registry, &app.server);
    }
    register_document(registry, &app.document, &app.editor);
    if let Some(tls) = &app.tls {
        register_tls(registry, tls);
    }
    register_bound(registry, &app.ledger);
    app.handovers.register(
        registry,
        "handovers",
        "Ledgers that this server has fetched from the last master, by outcome; without one \
         (unreachable, stalled, broken) it learns the leases from their holders",
    );
    app.quotas.register(registry);
    if let Some(parent) = &app.server.parent {
        parent.register(registry, clock::now());
    }
    Ok(())
}

fn register_bound(registry: &mut Registry, ledger: &SharedLedger) {
    let [bound, terms] = ledger.writes();
    let outcomes = |writes: BoundWrites| {
        counters(
            "outcome",
            [("written", writes.written), ("failed", writes.failed)],
        )
    };
    registry.register(
        "bound_writes",
        "Writes of the bound on lease expiry, by outcome; while they fail, leases shorten, then \
         expire",
        outcomes(bound),
    );
    registry.register(
        "terms_writes",
        "Writes of the terms under which leases are granted, by outcome; while they fail, no \
         leases are granted in new units",
        outcomes(terms),
    );
}

fn register_document(registry: &mut Registry, active: &ActiveDocument, editor: &DocumentEditor) {
    active.reloads.register(
        registry,
        "config_reloads",
        "Changes of the document, by outcome",
    );
    editor.writes.register(
        registry,
        "config_writes",
        "Writes of document changes over HTTP, by outcome; a failed change is rejected",
    );
    registry.register(
        "config_last_reload_successful",
        "0 if the active document is older than its source, or the store cannot be written",
        ConstGauge::new(i64::from(active.error().is_none())),
    );
    registry.register_with_unit(
        "config_in_force_since_timestamp",
        "When the active document was activated",
        Unit::Seconds,
        ConstGauge::new(active.since()),
    );
}

fn register_tls(registry: &mut Registry, tls: &Tls) {
    tls.handshakes.register(
        registry,
        "tls_handshakes",
        "TLS handshakes, by outcome: a connection (completed), an error of either side or a \
         broken connection (failed), a timeout or eviction (abandoned)",
    );
    tls.reloads.register(
        registry,
        "tls_reloads",
        "Changes of the certificate files, by outcome",
    );
    registry.register(
        "tls_last_reload_successful",
        "Whether the active certificate is that of its files",
        ConstGauge::new(i64::from(tls.is_current())),
    );
    registry.register_with_unit(
        "tls_certificate_expiry_timestamp",
        "When the active certificate expires",
        Unit::Seconds,
        ConstGauge::new(tls.not_after()),
    );
}
