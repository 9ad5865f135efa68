//! How soon services learn of changes, by hints instead of at their next refresh.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::support::{ControlPlane, Service, TIMEOUT, exclusive_load, now};

const SERVICES: usize = 3;

/// Changes that are measured.
const CHANGES: usize = 7;

/// Interval at which a service is asked for its state.
const POLL: Duration = Duration::from_millis(5);

/// Leases are refreshed every five seconds.
const RESOURCES: &str = r#"{"resources": [
    {"identifier_glob": "closed", "capacity": 0, "algorithm": {"kind": "FAIR_SHARE"}},
    {"identifier_glob": "*", "capacity": 1000,
     "algorithm": {"kind": "FAIR_SHARE", "lease_length": 60, "refresh_interval": 5}}
]}"#;

/// A control plane with a store, so that a change is active once it is acknowledged.
fn control_plane() -> ControlPlane {
    let home = TempDir::new().expect("a temporary directory");
    let store = home.path().join("document.db");
    let server = ControlPlane::start_on(home, &store);
    put(&server, "/v1/templates", RESOURCES);
    server
}

fn put(server: &ControlPlane, path: &str, body: &str) {
    let response = server.put(path, body);
    assert!(
        [200, 201, 204].contains(&response.status),
        "{path}: {response:?}"
    );
}

/// A service, and connections to it.
struct Watched {
    service: Service,
    client: Client,
}

impl Watched {
    fn new(service: Service) -> Self {
        let client = Client::new();
        Self { service, client }
    }

    async fn get(&self, path: &str) -> reqwest::Response {
        let url = format!("{}{path}", self.service.address());
        let response = self.client.get(url).send().await;
        response.expect("the service responds")
    }

    /// Whether the rule with the closed resource is in force.
    async fn is_closed(&self) -> bool {
        self.get("/orders/7").await.status() == 429
    }

    async fn limit(&self) -> Option<f64> {
        let text = self.get("/doorman").await.text().await;
        let snapshot: Value = serde_json::from_str(&text.expect("a body")).expect("JSON");
        snapshot["limits"][0]["limit"].as_f64()
    }

    /// Waits until `condition` holds, and returns the time since `start`.
    async fn wait(&self, start: Duration, condition: impl AsyncFn(&Self) -> bool) -> Duration {
        while !condition(self).await {
            assert!(now() - start < TIMEOUT, "the change is not seen");
            sleep(POLL).await;
        }
        now() - start
    }
}

/// The longest wait until a condition holds for each service.
async fn wait_for_all(
    services: &[Watched],
    start: Duration,
    condition: impl AsyncFn(&Watched) -> bool,
) -> Duration {
    let waits = services.iter().map(|it| it.wait(start, &condition));
    join_all(waits).await.into_iter().max().unwrap_or_default()
}

/// The median and the longest.
fn summarize(mut delays: Vec<Duration>) -> (Duration, Duration) {
    delays.sort_unstable();
    (delays[delays.len() / 2], delays[delays.len() - 1])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_limit_is_seen_by_every_service_within_200_ms() {
    let _exclusive = exclusive_load().await;
    let server = control_plane();
    let services = [(); SERVICES].map(|()| Watched::new(Service::start(server.address(), &[])));
    let sees = async |limit: f64, it: &Watched| it.limit().await == Some(limit);
    wait_for_all(&services, now(), async |it: &Watched| {
        sees(1000.0, it).await
    })
    .await;

    let mut delays = Vec::new();
    for change in 0..CHANGES {
        // At different times since the last refreshes.
        sleep(Duration::from_millis(300 + 450 * change as u64)).await;
        let limit = if change % 2 == 0 { 500.0 } else { 2000.0 };
        let start = now();
        put(
            &server,
            "/v1/templates/api",
            &json!({"capacity": limit}).to_string(),
        );
        let is_seen = async |it: &Watched| sees(limit, it).await;
        delays.push(wait_for_all(&services, start, is_seen).await);
    }
    let (median, longest) = summarize(delays.clone());
    println!("{delays:?}");
    assert!(median <= Duration::from_millis(200), "{median:?}");
    // A busy machine may be slower, but nobody waits for a refresh.
    assert!(longest <= Duration::from_secs(1), "{longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_rule_is_in_force_in_every_service_within_a_second() {
    let _exclusive = exclusive_load().await;
    let server = control_plane();
    let limit_orders_by = |resource: &str| {
        let rule = json!({
            "name": "orders", "service": "orders", "path": "/orders/{id}", "resource": resource
        });
        put(&server, "/v1/rules/orders", &rule.to_string());
    };
    limit_orders_by("closed");
    let services =
        [(); SERVICES].map(|()| Watched::new(Service::follow_rules(server.address(), &[])));
    let is_closed = async |it: &Watched| it.is_closed().await;
    let is_open = async |it: &Watched| !it.is_closed().await;
    wait_for_all(&services, now(), is_closed).await;

    let mut delays = Vec::new();
    for change in 0..CHANGES {
        sleep(Duration::from_millis(700 + 450 * change as u64)).await;
        let start = now();
        delays.push(if change % 2 == 0 {
            limit_orders_by("open");
            wait_for_all(&services, start, is_open).await
        } else {
            limit_orders_by("closed");
            wait_for_all(&services, start, is_closed).await
        });
    }
    let (_, longest) = summarize(delays.clone());
    println!("{delays:?}");
    assert!(longest <= Duration::from_secs(1), "{longest:?}");
}
