//! The example on plain hyper: the layer without a framework, over real connections of both kinds.

use std::time::Duration;

use crate::support::{ControlPlane, Service, curl};

const DOCUMENT: &str = "
resources:
  - {identifier_glob: '*', capacity: 1000, algorithm: {kind: FAIR_SHARE, lease_length: 300, refresh_interval: 1}}
";

#[test]
fn a_caller_is_limited_over_all_of_its_connections_and_told_in_the_fields_of_both_limits() {
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::on_hyper(server.address());
    while service.limit("api").is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let first = curl(&[service.address()]);
    assert_eq!((first.status, first.body.as_str()), (200, "ok"));
    for header in [
        "ratelimit-policy: \"api\";q=1000;w=1, \"peer\";q=60;w=60",
        "ratelimit: \"api\";r=",
    ] {
        assert!(first.headers.contains(header), "{header} in {first:?}");
    }
    // Ten at once, and one a second: on a connection each, some by HTTP/2. One refusal in forty is sure.
    let mut refused = None;
    for number in 0..40 {
        let protocol = ["--http1.1", "--http2-prior-knowledge"][number % 2];
        let answer = curl(&[protocol, service.address()]);
        if answer.status != 200 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("a caller is limited");
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.headers.contains("retry-after: 1"), "{refused:?}");
    assert!(refused.body.contains("quota-exceeded"), "{refused:?}");

    assert!(service.resources().iter().any(|id| id == "peer/127.0.0.1"));
    assert!(service.terminate().success());
}
