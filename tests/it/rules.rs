//! Services that follow the rules of the control plane.

use std::fs;

use serde_json::Value;

use crate::support::{ControlPlane, Response, Service, curl, until};

const RESOURCES: &str = "
resources:
  - identifier_glob: closed
    capacity: 0
    algorithm: {kind: FAIR_SHARE, lease_length: 300}
rules:
  - {name: others, service: 'shop*', resource: closed}
";

const CLOSED: &str = "
  - {name: probes, service: '*', path: /healthz, on_limit: {action: exempt}}
  - name: closed
    service: 'orders*'
    methods: [GET]
    path: '/orders/{id}'
    resource: closed
";

fn get(service: &Service, path: &str) -> Response {
    curl(&[&format!("{}{path}", service.address())])
}

/// Waits until a condition holds for the rules of a service, and returns them.
fn wait_for_rules(service: &Service, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
    let rules = || service.snapshot()["rules"].clone();
    until(what, || condition(&rules()));
    rules()
}

fn is_rejected(service: &Service) -> bool {
    let response = get(service, "/orders/7");
    let problem: Value = serde_json::from_str(&response.body).unwrap_or_default();
    response.status == 429 && problem["violated-policies"][0] == "closed"
}

#[test]
fn service_follows_edited_rules_even_through_outage() {
    let server = ControlPlane::start(RESOURCES);
    let service = Service::follow_rules(server.address(), &["--service", "orders-eu"]);
    let first = wait_for_rules(&service, "the first rules", |rules| {
        rules["version"].is_string()
    });
    let response = get(&service, "/orders/7");
    assert_eq!(response.status, 200, "{response:?}");

    let file = server.home().join("limits.yaml");
    fs::write(&file, format!("{RESOURCES}{CLOSED}")).expect("the file exists");
    let second = wait_for_rules(&service, "the edited rules", |rules| {
        rules["version"] != first["version"]
    });
    // Before the first lease the resource is not known to be closed.
    until("it has a lease", || service.lease("closed").is_some());
    assert!(is_rejected(&service));
    assert_eq!(get(&service, "/healthz").status, 200);

    let _stopped = server.kill();
    let third = wait_for_rules(&service, "it notices the outage", |rules| {
        rules["error"].is_string()
    });
    assert_eq!(third["version"], second["version"]);
    assert!(is_rejected(&service));
    assert_eq!(get(&service, "/healthz").status, 200);
}

#[test]
fn rules_of_the_example_document_apply() {
    let document = include_str!("../../examples/rules.yaml");
    let server = ControlPlane::start(document);
    let service = Service::follow_rules(server.address(), &[]);
    wait_for_rules(&service, "its rules", |rules| rules["version"].is_string());
    let url = format!("{}/orders/7", service.address());
    let response = curl(&[&url, "-H", "x-tenant: a"]);
    assert_eq!(response.status, 200, "{response:?}");
    let limited = service.resources();
    for resource in ["orders", "tenant/a", "database"] {
        assert!(limited.iter().any(|it| it == resource), "{limited:?}");
    }
    let probe = get(&service, "/healthz");
    assert!(!probe.headers.contains("ratelimit"), "{probe:?}");
}
