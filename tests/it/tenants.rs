//! The example whose tenants are told apart by their tokens.

use std::time::Duration;

use crate::support::{Answer, ControlPlane, Process, curl, example};

const DOCUMENT: &str = include_str!("../../examples/tenants.yaml");

struct Instance {
    _process: Process,
    address: String,
    acme: String,
    globex: String,
}

impl Instance {
    fn start(server: &ControlPlane) -> Self {
        let args = ["--listen", "127.0.0.1:0", "--server", server.address()];
        let mut process = Process::start(&example("tenants"), &args);
        let address = process.wait_for_address();
        let mut token = |tenant: &str| {
            let said = format!("{tenant}: ");
            process.wait_for(|line| line.strip_prefix(&said).map(str::to_owned))
        };
        Self {
            acme: token("acme"),
            globex: token("globex"),
            address,
            _process: process,
        }
    }

    fn ask(&self, token: Option<&str>, path: &str) -> Answer {
        let url = format!("{}{path}", self.address);
        let header = token.map(|token| format!("authorization: Bearer {token}"));
        match &header {
            Some(header) => curl(&[&url, "-H", header]),
            None => curl(&[&url]),
        }
    }
}

#[test]
fn tenants_are_told_apart_by_their_tokens_and_limited_over_all_instances() {
    let server = ControlPlane::start(DOCUMENT);
    let instances = [Instance::start(&server), Instance::start(&server)];
    let [first, second] = &instances;

    let unknown = first.ask(None, "/orders");
    assert_eq!(unknown.status, 401, "{unknown:?}");
    let forged = format!("{}x", first.acme);
    assert_eq!(first.ask(Some(&forged), "/orders").status, 401);

    // A token counts on every instance, and a tenant that floods one of them is known to the other.
    let flood = (0..40).map(|_| first.ask(Some(&second.acme), "/orders").status);
    let statuses: Vec<_> = flood.collect();
    assert!(
        statuses.contains(&200) && statuses.contains(&429),
        "{statuses:?}"
    );
    let balance = || {
        let view = server.get("/v1/resources/tenant-route%2Facme%2F%252Forders");
        view["balance"].as_f64()
    };
    // The bucket is that of the control plane.
    while balance().is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }

    // Others, and other routes, are not touched by it.
    for instance in &instances {
        assert_eq!(instance.ask(Some(&instance.globex), "/orders").status, 200);
    }
    assert_eq!(second.ask(Some(&first.acme), "/orders/7").status, 200);
}
