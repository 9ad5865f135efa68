//! Costs that are corrected afterwards, in an example service.

use crate::support::{ControlPlane, Response, Service, curl, until};

/// One token a second, whatever the demand: a slow machine changes nothing.
const DOCUMENT: &str = "
resources:
  - {identifier_glob: api, capacity: 10, per: 10}
  - {identifier_glob: messages, capacity: 10, per: 10}
  - identifier_glob: '*'
    capacity: 0
    algorithm: {kind: STATIC, lease_length: 20, refresh_interval: 1}
";

fn retry_after(response: &Response) -> u64 {
    let headers = response.headers.to_ascii_lowercase();
    let mut lines = headers.lines();
    let value = lines.find_map(|line| line.strip_prefix("retry-after:"));
    value.expect("a rejection").trim().parse().expect("seconds")
}

#[test]
fn response_and_fan_out_correct_their_costs() {
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::costs(server.address());
    until("there are leases", || {
        ["api", "messages"]
            .iter()
            .all(|it| service.lease(it).is_some())
    });
    let report = format!("{}/report", service.address());
    for _ in 0..5 {
        // Each needs a full bucket, and gives it back.
        let unchanged = curl(&["-H", "if-none-match: \"1\"", &report]);
        assert_eq!(unchanged.status, 304, "{}", unchanged.headers);
    }
    assert_eq!(curl(&[&report]).status, 200);
    let refused = curl(&[service.address()]);
    assert_eq!(refused.status, 429);
    assert!(retry_after(&refused) >= 40, "{}", refused.headers);

    let publish = |subscribers: u32| {
        curl(&[
            "-X",
            "POST",
            &format!("{}/publish/{subscribers}", service.address()),
        ])
    };
    assert_eq!(publish(0).status, 202);
    // The refund comes after the response.
    until("the refund", || publish(500).status == 202);
    // The delivery ends after the response.
    let mut refused = publish(0);
    until("the delivery is charged", || {
        refused = publish(0);
        refused.status == 429
    });
    assert!(retry_after(&refused) >= 400, "{}", refused.headers);
}
