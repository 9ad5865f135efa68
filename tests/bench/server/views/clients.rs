//! Clients that refresh their leases at fixed times.

use std::time::Duration;

use doorman_bench::PacedRequests;
use doorman_openapi::paths;
use serde_json::json;

/// Holders per resource.
pub(crate) const HOLDERS: usize = 3;
/// Resources per request.
const BATCH: usize = 100;
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// The id of a resource.
pub(crate) fn resource_id(number: usize) -> String {
    format!("tenant/{:04}/per-second/{number:07}", number / 100)
}

/// The requests of all clients, which have this token.
pub(crate) fn requests(token: &str, resources: usize) -> PacedRequests {
    let request = |request: usize| {
        let (first, holder) = (request / HOLDERS * BATCH, request % HOLDERS);
        let resources = (first..resources.min(first + BATCH)).map(|number| {
            let wants = 20 + (number * 7 + holder * 31) % 60;
            json!({"resource_id": resource_id(number), "wants": wants, "has": {"capacity": 10}})
        });
        let client = format!("orders-{:04}-{holder}", first / BATCH);
        let body = json!({"client_id": client, "resources": resources.collect::<Vec<_>>()});
        let body = body.to_string();
        format!(
            "POST {} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            paths::CAPACITY,
            body.len()
        )
        .into_bytes()
    };
    let count = resources.div_ceil(BATCH) * HOLDERS;
    PacedRequests {
        requests: (0..count).map(request).collect(),
        interval: REFRESH_INTERVAL.div_f64(count as f64),
    }
}
