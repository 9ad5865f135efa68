//! TLS: what became of handshakes, until when the certificate counts, and whether it is that of its files.

use prometheus_client::{
    metrics::gauge::ConstGauge,
    registry::{Registry, Unit},
};

use super::books::by_label;
use crate::net::tls::{Outcomes, Reloads, Tls};

pub(super) fn register(registry: &mut Registry, tls: &Tls) {
    let Outcomes {
        completed,
        failed,
        abandoned,
    } = tls.handshakes().outcomes();
    registry.register(
        "tls_handshakes",
        "TLS handshakes, by what became of them: a connection (completed), a refusal of one side or a broken connection (failed), time was \
         up or the place needed (abandoned)",
        by_label(
            "outcome",
            [
                ("completed", completed),
                ("failed", failed),
                ("abandoned", abandoned),
            ],
        ),
    );
    let Reloads {
        applied,
        refused,
        is_current,
    } = tls.reloads();
    registry.register(
        "tls_reloads",
        "Changes of the certificate's files, by what became of them",
        by_label("outcome", [("applied", applied), ("refused", refused)]),
    );
    registry.register(
        "tls_last_reload_successful",
        "Whether the certificate in force is that of its files",
        ConstGauge::new(i64::from(is_current)),
    );
    registry.register_with_unit(
        "tls_certificate_expiry_timestamp",
        "When the certificate in force ends",
        Unit::Seconds,
        ConstGauge::new(tls.not_after()),
    );
}
