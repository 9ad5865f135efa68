//! Rules down a tree of servers: services follow those of the root at their nearest node. And the
//! example `tree`.

use std::{fs, time::Duration};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{ControlPlane, Process, Service, example, now, until};

const RESOURCES: &str = "
resources:
  - identifier_glob: closed
    capacity: 0
    algorithm: {kind: FAIR_SHARE, lease_length: 60}
rules:
  - {name: others, service: 'shop*', resource: closed}
";

const CLOSED: &str = "
  - {name: closed, service: 'orders*', path: '/orders/{id}', resource: closed}
";

fn start_below(parent: &str, node: &str) -> ControlPlane {
    let home = TempDir::new().expect("a temporary directory");
    ControlPlane::start_with_flags(home, &["--parent", parent, "--node", node])
}

/// The names of the rules that a server has for a service; `None` while it answers 503.
fn rules_at(server: &ControlPlane, service: &str) -> Option<Vec<String>> {
    let response = server.curl(&format!("/v1/rules?service={service}"), &[]);
    if response.status == 503 {
        return None;
    }
    assert_eq!(response.status, 200, "{response:?}");
    let body: Value = serde_json::from_str(&response.body).expect("it is JSON");
    let rules = body["rules"].as_array().expect("a list of rules");
    let names = rules.iter().map(|it| it["name"].as_str().expect("a name"));
    Some(names.map(str::to_owned).collect())
}

/// The number of open polls at a server.
fn polls(server: &ControlPlane) -> usize {
    let metrics = server.curl("/metrics", &[]).body;
    let mut lines = metrics.lines();
    let count = lines.find_map(|line| line.strip_prefix("doorman_polls "));
    count
        .expect("it is a metric")
        .parse::<f64>()
        .expect("a number") as usize
}

#[test]
fn services_follow_the_rules_of_the_root_at_a_leaf() {
    let root = ControlPlane::start(RESOURCES);
    let region = start_below(root.address(), "eu");
    let leaf = start_below(region.address(), "eu-1");
    until("the leaf has rules", || {
        rules_at(&leaf, "shop").is_some_and(|it| it == ["others"])
    });
    let service = Service::follow_rules(leaf.address(), &["--service", "orders-eu"]);
    until("the service has its rules", || {
        service.snapshot()["rules"]["version"].is_string()
    });
    // A change that no poll waits for is found ten seconds later at each level.
    until("each level polls for hints", || {
        let servers = [&root, &region, &leaf];
        servers.iter().all(|it| polls(it) == 1)
    });
    let file = root.home().join("limits.yaml");
    let changed = now();
    fs::write(&file, format!("{RESOURCES}{CLOSED}")).expect("the file exists");
    until("the service is limited", || {
        service.lease("closed").is_some()
    });
    let took = now() - changed;
    assert!(took < Duration::from_secs(5), "{took:?}");

    // The document is changed at the root only.
    until("the leaf knows the root", || {
        leaf.get("/v1/discovery")["root"] == root.address()
    });
    let put = leaf.put("/v1/templates/closed", r#"{"capacity": 5}"#);
    assert_eq!(put.status, 409, "{put:?}");
    assert!(put.body.contains(root.address()), "{put:?}");
    assert_eq!(leaf.curl("/v1/templates", &[]).status, 404);
    assert_eq!(leaf.get("/v1/status")["level"], 2);

    // The last rules survive the loss of all that is above, and a restart.
    let _root = root.kill();
    let _region = region.kill();
    let expected = Some(vec!["closed".to_owned()]);
    let leaf = leaf.kill().restart();
    assert_eq!(rules_at(&leaf, "orders-eu"), expected);
    until("the leaf reports that", || {
        leaf.get("/v1/status")["parent"]["error"].is_string()
    });
    // A new one has none, and does not say that there is none.
    let new = start_below("http://127.0.0.1:1", "eu-2");
    assert_eq!(rules_at(&new, "orders-eu"), None);
}

#[test]
fn example_shares_the_capacity_of_the_root() {
    let mut tree = Process::start(&example("tree"), &["--port", "0", "--seconds", "60"]);
    let root = tree.wait_for(|line| line.strip_prefix("root").map(|it| it.trim().to_owned()));
    tree.wait_for(|line| line.ends_with("1200 of 1600").then_some(()));
    let output = std::process::Command::new(crate::support::doorman())
        .args(["show", "api", "--tree", "--server", &root])
        .output()
        .expect("it runs");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let clients = shown.lines().filter(|it| it.starts_with("    shop-"));
    assert_eq!(clients.count(), 8, "{shown}");
    for node in ["eu\t", "  eu-1\t", "  us-2\t"] {
        assert!(shown.lines().any(|it| it.starts_with(node)), "{shown}");
    }
    tree.terminate();
    tree.wait_for_success();
}
