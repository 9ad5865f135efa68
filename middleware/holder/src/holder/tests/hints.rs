//! Which hints are followed, and when.

use doorman_openapi::{Hint, HintsResponse, MAX_HINTS};

use super::*;

fn none() -> HintsResponse {
    HintsResponse {
        node: NodeId::new("root").unwrap(),
        epoch: Epoch::new(7).unwrap(),
        after: 1,
        refresh: Vec::new(),
        all: false,
        rules: false,
        leaving: false,
    }
}

fn to_refresh(resource: &str, seq: Seq) -> HintsResponse {
    HintsResponse {
        refresh: vec![Hint {
            resource_id: id(resource),
            seq: Some(seq),
        }],
        ..none()
    }
}

impl Script {
    fn hint(&mut self, endpoint: usize, hints: HintsResponse) {
        self.handle(Event::Hinted { endpoint, hints });
    }
}

/// Wants and has `db`; also returns the request that leased it.
fn leased(endpoints: usize) -> (Script, Sent) {
    let mut script = Script::new(endpoints);
    script.want("db", 10.0);
    let sent = script.next_request();
    script.answer(&sent, grant_all(&sent.request, 10.0));
    (script, sent)
}

#[test]
fn hinted_resource_is_refreshed_immediately() {
    let (mut script, sent) = leased(1);
    // Sooner than an early request would be.
    script.pass(0.001);
    assert!(script.requests().is_empty());
    script.hint(0, to_refresh("db", sent.seq));
    let again = script.requests().pop().unwrap();
    assert_eq!((names(&again), has(&again)), (vec!["db"], Some(10.0)));
}

#[test]
fn first_report_of_returns_leaves_immediately() {
    let (mut script, sent) = leased(1);
    let report = |script: &mut Script| {
        script.handle(Event::Report { resource: id("db") });
        script.requests().pop()
    };
    // Immediately after a request that reported no returns.
    let first = report(&mut script).unwrap();
    assert!(first.seq > sent.seq);
    script.answer(&first, grant_all(&first.request, 10.0));
    // Later reports are sent together.
    assert!(report(&mut script).is_none());
    script.pass(0.01);
    assert!(report(&mut script).is_none());
    script.pass(0.01);
    let second = script.requests().pop().unwrap();
    script.answer(&second, grant_all(&second.request, 10.0));
    script.hint(0, to_refresh("db", second.seq));
    let hinted = script.requests().pop().unwrap();
    script.answer(&hinted, grant_all(&hinted.request, 10.0));
    assert!(report(&mut script).is_some());
}

#[test]
fn hint_of_before_the_newest_request_is_void() {
    let (mut script, first) = leased(1);
    script.hint(0, to_refresh("db", first.seq));
    let second = script.requests().pop().unwrap();
    script.hint(0, to_refresh("db", first.seq));
    assert!(script.requests().is_empty(), "one is in flight");
    script.answer(&second, grant_all(&second.request, 10.0));
    script.hint(0, to_refresh("db", first.seq));
    script.hint(0, to_refresh("db", second.seq.next()));
    script.hint(0, to_refresh("stranger", second.seq));
    assert!(script.requests().is_empty());
    script.hint(0, to_refresh("db", second.seq));
    assert_eq!(script.requests().len(), 1);
}

#[test]
fn hint_that_overtakes_a_response_is_followed_after_it() {
    let (mut script, first) = leased(1);
    script.hint(0, to_refresh("db", first.seq));
    let second = script.requests().pop().unwrap();
    script.hint(0, to_refresh("db", second.seq));
    assert!(script.requests().is_empty(), "one is in flight");
    script.answer(&second, grant_all(&second.request, 10.0));
    assert_eq!(script.requests().len(), 1);
}

#[test]
fn hint_of_other_node_or_lower_epoch_is_ignored() {
    let (mut script, sent) = leased(2);
    let hints = to_refresh("db", sent.seq);
    let foreign = NodeId::new("other").unwrap();
    script.hint(
        0,
        HintsResponse {
            node: foreign,
            ..hints.clone()
        },
    );
    let stale = Epoch::new(6).unwrap();
    script.hint(
        0,
        HintsResponse {
            epoch: stale,
            ..hints
        },
    );
    assert!(script.requests().is_empty());
    assert_eq!(script.warnings().len(), 2);
}

#[test]
fn poll_of_a_standby_changes_nothing() {
    let standby = HintsResponse {
        epoch: Epoch::new(6).unwrap(),
        leaving: true,
        all: true,
        rules: true,
        ..none()
    };
    for endpoint in [0, 1] {
        let (mut script, _) = leased(2);
        let due = script.holder.wake_at();
        script.hint(endpoint, standby.clone());
        assert_eq!(script.holder.wake_at(), due);
        assert!(script.warnings().is_empty());
        assert_eq!(script.next_request().endpoint, 0);
    }
}

#[test]
fn poll_does_not_raise_the_echoed_epoch() {
    let (mut script, sent) = leased(1);
    let hints = HintsResponse {
        epoch: Epoch::new(9).unwrap(),
        ..to_refresh("db", sent.seq)
    };
    script.hint(0, hints);
    let hinted = script.requests().pop().unwrap();
    assert_eq!(hinted.request.heard_epoch, Epoch::new(7).ok());

    // Before the first response nothing is echoed.
    let mut script = Script::new(1);
    let unanswered = HintsResponse {
        all: true,
        ..none()
    };
    script.hint(0, unanswered);
    script.want("db", 10.0);
    assert_eq!(script.next_request().request.heard_epoch, None);
}

#[test]
fn hint_for_rejected_resource_is_ignored() {
    let mut script = Script::new(1);
    script.want("db", 1.0);
    let sent = script.next_request();
    let positions = vec![0];
    script.fail(&sent, Failure::Rejected { positions });
    let all = HintsResponse {
        all: true,
        ..none()
    };
    script.hint(0, all);
    script.hint(0, to_refresh("db", sent.seq));
    assert!(script.requests().is_empty());
}

#[test]
fn hint_to_refresh_all_reaches_every_resource() {
    for (resources, within) in [(3, 0.0), (MAX_HINTS + 1, 0.2)] {
        let mut script = Script::new(1);
        for number in 0..resources {
            script.want(&format!("db{number}"), 1.0);
        }
        let sent = script.next_request();
        script.answer(&sent, grant_all(&sent.request, 1.0));
        script.pass(0.01);
        assert!(script.requests().is_empty());
        script.hint(
            0,
            HintsResponse {
                all: true,
                ..none()
            },
        );
        assert!(script.pause() <= within);
        let sent = script.next_request();
        assert_eq!(sent.request.resources.len(), resources);
    }
}

#[test]
fn leases_of_leaving_server_are_refreshed_at_next_when_due() {
    let leaving = HintsResponse {
        leaving: true,
        ..none()
    };
    for (leaves, next) in [(1, 0), (0, 1)] {
        let (mut script, _) = leased(2);
        let due = script.holder.wake_at();
        script.hint(leaves, leaving.clone());
        assert_eq!(script.holder.wake_at(), due, "nobody is in a hurry");
        assert_eq!(script.next_request().endpoint, next);
    }

    let (mut alone, _) = leased(1);
    alone.hint(0, leaving);
    assert_eq!(alone.next_request().endpoint, 0, "there is no other server");
}
