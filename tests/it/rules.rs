//! A service follows the rules of the control plane, with real processes.

use std::{fs, thread, time::Duration};

use serde_json::Value;

use crate::support::{ControlPlane, Response, Service, curl};

/// Only what is broken takes longer: rules are asked for every ten seconds.
const TIMEOUT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);

const RESOURCES: &str = "
resources:
  - {identifier_glob: shut, capacity: 0, algorithm: {kind: FAIR_SHARE, lease_length: 300}}
rules:
  - {name: others, service: 'shop*', resource: shut}
";

const SHUT: &str = "
  - {name: probes, service: '*', path: /healthz, on_limit: {action: exempt}}
  - {name: shut, service: 'orders*', methods: [GET], path: '/orders/{id}', resource: shut}
";

fn ask(service: &Service, path: &str) -> Response {
    curl(&[&format!("{}{path}", service.address())])
}

/// Looks at the rules that the service follows until they are what is waited for.
fn until(service: &Service, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let mut rules = Value::Null;
    for _ in 0..TIMEOUT.as_millis() / LOOK.as_millis() {
        rules = service.snapshot()["rules"].clone();
        if is(&rules) {
            return rules;
        }
        thread::sleep(LOOK);
    }
    panic!("never: {what}; {rules}");
}

#[test]
fn an_edit_of_the_document_changes_a_running_service_and_an_outage_does_not() {
    let server = ControlPlane::start(RESOURCES);
    let service = Service::follow_rules(server.address(), &["--service", "orders-eu"]);
    let first = until(&service, "the first rules", |rules| {
        rules["version"].is_string()
    });
    let answer = ask(&service, "/orders/7");
    assert_eq!(answer.status, 200, "{answer:?}");

    let file = server.home().join("limits.yaml");
    fs::write(&file, format!("{RESOURCES}{SHUT}")).expect("it can be edited");
    let second = until(&service, "the rules of the edit", |rules| {
        rules["version"] != first["version"]
    });
    // Until its first lease the resource is not known to be shut.
    while service.lease("shut").is_none() {
        thread::sleep(LOOK);
    }
    let refused = |service: &Service| {
        let answer = ask(service, "/orders/7");
        let problem: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        answer.status == 429 && problem["violated-policies"][0] == "shut"
    };
    assert!(refused(&service));
    assert_eq!(ask(&service, "/healthz").status, 200);

    let _down = server.kill();
    let third = until(&service, "it notices the outage", |rules| {
        rules["error"].is_string()
    });
    assert_eq!(third["version"], second["version"]);
    assert!(refused(&service));
    assert_eq!(ask(&service, "/healthz").status, 200);
}

#[test]
fn the_document_of_the_example_is_a_good_one() {
    let text = include_str!("../../examples/rules.yaml");
    let server = ControlPlane::start(text);
    let service = Service::follow_rules(server.address(), &[]);
    until(&service, "its rules", |rules| rules["version"].is_string());
    let tenant = ["-H", "x-tenant: a"];
    let url = format!("{}/orders/7", service.address());
    let answer = curl(&[&url, tenant[0], tenant[1]]);
    assert_eq!(answer.status, 200, "{answer:?}");
    let limited = service.resources();
    for resource in ["orders", "tenant/a"] {
        assert!(limited.iter().any(|it| it == resource), "{limited:?}");
    }
    let probe = ask(&service, "/healthz");
    assert!(!probe.headers.contains("ratelimit"), "{probe:?}");
}
