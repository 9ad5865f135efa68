//! Which answers count.

use super::*;

#[test]
fn only_the_answer_to_the_newest_request_counts() {
    let mut table = Table::leased(2);
    let slow = table.next_request();
    table.pass(slow.timeout.as_secs_f64());
    let again = table.requests().pop().unwrap();
    assert_eq!((names(&again), again.endpoint), (vec!["db"], 1));
    table.answer(&slow, grant_all(&slow.request, 99.0));
    assert_eq!(table.capacity("db"), Some(10.0));
    table.answer(&again, grant_all(&again.request, 11.0));
    assert_eq!(table.capacity("db"), Some(11.0));
    table.answer(&again, grant_all(&again.request, 99.0));
    assert_eq!(table.capacity("db"), Some(11.0));
}

#[test]
fn takes_answers_in_any_order_and_only_those_it_asked_for() {
    let mut table = Table::new(1);
    for resource in ["a", "b", "c"] {
        table.want(resource, 1.0);
    }
    let sent = table.next_request();
    let answers = vec![
        grant("stranger", 5.0),
        grant("c", 3.0),
        grant("a", 1.0),
        grant("a", 99.0),
    ];
    table.answer(&sent, response(answers));
    assert_eq!(table.capacity("a"), Some(1.0));
    assert_eq!(table.capacity("c"), Some(3.0));
    assert_eq!(table.capacity("b"), None, "it was left out");
    let again = table.next_request();
    assert!(!names(&again).contains(&"stranger"));
    while table.now.seconds_since(Moment::ORIGIN) < 4.1 {
        let sent = table.next_request();
        if names(&sent).contains(&"b") {
            return;
        }
        table.answer(&sent, grant_all(&sent.request, 1.0));
    }
    panic!("what was left out is asked for again within four seconds");
}

#[test]
fn refuses_another_node_until_nothing_of_the_known_one_is_left() {
    let mut table = Table::leased(2);
    let foreign = |sent: &Sent| CapacityResponse {
        node: NodeId::new("other").unwrap(),
        ..grant_all(&sent.request, 99.0)
    };
    let sent = table.next_request();
    table.answer(&sent, foreign(&sent));
    assert_eq!(table.capacity("db"), Some(10.0));
    assert!(matches!(
        table.warnings()[..],
        [Warning::ForeignNode { endpoint: 0, .. }]
    ));
    let next = table.next_request();
    assert_eq!(next.endpoint, 1, "the endpoint counts as failed");
    table.unavailable(&next);
    table.pass(30.0);
    let sent = table.next_request();
    table.answer(&sent, foreign(&sent));
    assert_eq!(table.capacity("db"), Some(99.0));
}

#[test]
fn drops_answers_of_a_lower_epoch() {
    let mut table = Table::leased(1);
    let sent = table.next_request();
    let old = CapacityResponse {
        epoch: Epoch::new(6).unwrap(),
        ..grant_all(&sent.request, 99.0)
    };
    table.answer(&sent, old);
    assert_eq!(table.capacity("db"), Some(10.0));
    assert!(
        table
            .warnings()
            .iter()
            .any(|warning| matches!(warning, Warning::StaleEpoch { .. }))
    );
    let sent = table.next_request();
    let new = CapacityResponse {
        epoch: Epoch::new(8).unwrap(),
        ..grant_all(&sent.request, 11.0)
    };
    table.answer(&sent, new);
    assert_eq!(table.capacity("db"), Some(11.0));
}
