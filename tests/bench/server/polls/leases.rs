//! Clients that refresh their leases at fixed times.

use std::time::Duration;

use doorman_bench::PacedRequests;
use doorman_openapi::paths;
use serde_json::json;

const RESOURCES: usize = 100;

/// The time from one request to the next, of all clients.
const INTERVAL: Duration = Duration::from_millis(1);

/// The requests of clients that lease one resource each.
pub(crate) fn of_clients(clients: &[String]) -> PacedRequests {
    let requests = clients.iter().enumerate();
    PacedRequests {
        requests: requests.map(|(n, client)| request(client, n)).collect(),
        interval: INTERVAL,
    }
}

fn request(client: &str, number: usize) -> Vec<u8> {
    let resource = format!("tenant/{:04}", number % RESOURCES);
    let resources = [json!({"resource_id": resource, "wants": 20, "has": {"capacity": 10}})];
    let body = json!({"client_id": client, "resources": resources}).to_string();
    format!(
        "POST {} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        paths::CAPACITY,
        body.len()
    )
    .into_bytes()
}
