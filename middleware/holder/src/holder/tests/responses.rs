//! Which responses are accepted.

use super::*;

#[test]
fn stale_response_is_ignored() {
    let mut script = Script::leased(2);
    let slow = script.next_request();
    script.pass(slow.timeout.as_secs_f64());
    let again = script.requests().pop().unwrap();
    assert_eq!((names(&again), again.endpoint), (vec!["db"], 1));
    script.answer(&slow, grant_all(&slow.request, 99.0));
    assert_eq!(script.capacity("db"), Some(10.0));
    script.answer(&again, grant_all(&again.request, 11.0));
    assert_eq!(script.capacity("db"), Some(11.0));
    script.answer(&again, grant_all(&again.request, 99.0));
    assert_eq!(script.capacity("db"), Some(11.0));
}

#[test]
fn unrequested_and_duplicate_resources_are_ignored() {
    let mut script = Script::new(1);
    for resource in ["a", "b", "c"] {
        script.want(resource, 1.0);
    }
    let sent = script.next_request();
    let answers = vec![
        grant("stranger", 5.0),
        grant("c", 3.0),
        grant("a", 1.0),
        grant("a", 99.0),
    ];
    script.answer(&sent, response(answers));
    assert_eq!(script.capacity("a"), Some(1.0));
    assert_eq!(script.capacity("c"), Some(3.0));
    assert_eq!(script.capacity("b"), None, "left out of the response");
    let again = script.next_request();
    assert!(!names(&again).contains(&"stranger"));
    while script.now.seconds_since(Moment::ORIGIN) < 4.1 {
        let sent = script.next_request();
        if names(&sent).contains(&"b") {
            return;
        }
        script.answer(&sent, grant_all(&sent.request, 1.0));
    }
    panic!("a missing resource is requested again within four seconds");
}

#[test]
fn other_node_is_ignored_until_all_leases_expire() {
    let mut script = Script::leased(2);
    let foreign = |sent: &Sent| CapacityResponse {
        warnings: Vec::new(),
        node: NodeId::new("other").unwrap(),
        ..grant_all(&sent.request, 99.0)
    };
    let sent = script.next_request();
    script.answer(&sent, foreign(&sent));
    assert_eq!(script.capacity("db"), Some(10.0));
    assert!(matches!(
        script.warnings()[..],
        [Warning::ForeignNode { endpoint: 0, .. }]
    ));
    let next = script.next_request();
    assert_eq!(next.endpoint, 1, "as after a failure");
    script.unavailable(&next);
    script.pass(30.0);
    let sent = script.next_request();
    script.answer(&sent, foreign(&sent));
    assert_eq!(script.capacity("db"), Some(99.0));
}

#[test]
fn response_with_lower_epoch_is_ignored() {
    let mut script = Script::leased(1);
    let sent = script.next_request();
    let old = CapacityResponse {
        warnings: Vec::new(),
        epoch: Epoch::new(6).unwrap(),
        ..grant_all(&sent.request, 99.0)
    };
    script.answer(&sent, old);
    assert_eq!(script.capacity("db"), Some(10.0));
    assert!(
        script
            .warnings()
            .iter()
            .any(|warning| matches!(warning, Warning::StaleEpoch { .. }))
    );
    let sent = script.next_request();
    let new = CapacityResponse {
        warnings: Vec::new(),
        epoch: Epoch::new(8).unwrap(),
        ..grant_all(&sent.request, 11.0)
    };
    script.answer(&sent, new);
    assert_eq!(script.capacity("db"), Some(11.0));
}
