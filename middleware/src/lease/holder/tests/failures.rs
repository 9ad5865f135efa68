//! What goes wrong.

use super::*;

#[test]
fn goes_to_the_next_server_at_once_and_then_pauses() {
    let mut table = Table::leased(3);
    let first = table.next_request();
    table.unavailable(&first);
    let second = table.requests().pop().unwrap();
    table.unavailable(&second);
    let third = table.requests().pop().unwrap();
    assert_eq!([first.endpoint, second.endpoint, third.endpoint], [0, 1, 2]);
    assert!(table.warnings().is_empty());
    table.unavailable(&third);
    assert!(table.pause() >= 0.05);
    assert_eq!(table.warnings(), [&Warning::Unreachable]);
    let again = table.next_request();
    table.answer(&again, grant_all(&again.request, 10.0));
    assert_eq!(table.warnings()[1..], [&Warning::Reached]);
}

#[test]
fn tries_every_four_seconds_at_least_while_anything_is_lapsed() {
    let mut table = Table::new(1);
    table.want("db", 1.0);
    let mut sent = table.next_request();
    for _ in 0..50 {
        let retry_after = Some(Duration::from_secs(3600));
        table.fail(&sent, Failure::Unavailable { retry_after });
        let from = table.now;
        sent = table.next_request();
        let pause = table.now.seconds_since(from);
        assert!((0.05..=4.0).contains(&pause), "{pause}");
    }
    assert_eq!(
        table.warnings().len(),
        2 + (table.now.seconds_since(Moment::ORIGIN) / 60.0) as usize - 1,
        "one warning a minute"
    );
}

#[test]
fn gives_a_request_up_in_time_to_renew_elsewhere() {
    let mut table = Table::leased(2);
    let refresh = table.next_request();
    assert_eq!(refresh.timeout, Duration::from_secs(2));
    table.answer(
        &refresh,
        response(vec![with(grant("db", 10.0), |answer| {
            answer.gets.lease_length = seconds(2.0);
            answer.gets.refresh_interval = seconds(1.5);
        })]),
    );
    let ends = table.holding("db").lease.unwrap().ends;
    let refresh = table.next_request();
    assert_eq!(refresh.timeout, ends.since(table.now));

    let mut table = Table::leased(2);
    let slow = table.next_request();
    table.answer(
        &slow,
        response(vec![with(grant("db", 10.0), |answer| {
            answer.gets.lease_length = seconds(300.0);
            answer.gets.refresh_interval = seconds(10.0);
        })]),
    );
    assert_eq!(table.next_request().timeout, Duration::from_secs(5));
}

#[test]
fn a_server_that_hangs_is_tried_every_four_seconds_once_the_lease_is_lapsed() {
    let mut table = Table::new(1);
    let ends = lease_for_long(&mut table, "db", 120.0, 60.0);
    let mut last = table.now;
    while table.now.seconds_since(ends) < 120.0 {
        table.next_request();
        let pause = table.now.since(last.max(ends));
        assert!(pause <= Duration::from_secs(4), "{pause:?}");
        last = table.now;
    }
}

#[test]
fn a_request_with_much_time_does_not_hold_up_what_is_lapsed() {
    let mut table = Table::new(1);
    lease_for_long(&mut table, "long", 6000.0, 60.0);
    let slow = table.next_request();
    assert_eq!(slow.timeout, Duration::from_secs(30));
    table.want("new", 1.0);
    let start = table.now;
    let fails = table.next_request();
    assert_eq!(names(&fails), ["new"]);
    table.unavailable(&fails);
    let again = table.next_request();
    assert_eq!(names(&again), ["new"]);
    assert!(table.now.since(start) <= Duration::from_secs(5));
}

/// Leases 10 of a resource; when it ends.
fn lease_for_long(table: &mut Table, resource: &str, length: f64, refresh: f64) -> Moment {
    table.want(resource, 10.0);
    let sent = table.next_request();
    let grant = with(grant(resource, 10.0), |answer| {
        answer.gets.lease_length = seconds(length);
        answer.gets.refresh_interval = seconds(refresh);
    });
    table.answer(&sent, response(vec![grant]));
    table.holding(resource).lease.unwrap().ends
}

#[test]
fn follows_the_name_of_a_master_but_never_in_circles() {
    let mut table = Table::leased(2);
    let first = table.next_request();
    table.fail(&first, Failure::Redirected { to: Some(1) });
    let hop = table.requests().pop().unwrap();
    assert_eq!(hop.endpoint, 1);
    table.answer(&hop, grant_all(&hop.request, 10.0));
    assert_eq!(table.next_request().endpoint, 1, "it stays there");

    let mut table = Table::leased(2);
    let mut sent = table.next_request();
    let start = table.now;
    for _ in 0..3 {
        let to = Some(1 - sent.endpoint);
        table.fail(&sent, Failure::Redirected { to });
        sent = table.next_request();
    }
    assert!(table.now > start, "they name each other: it rests");
}

#[test]
fn renews_the_others_without_a_refused_resource() {
    let mut table = Table::new(1);
    for resource in ["a", "b", "c"] {
        table.want(resource, 1.0);
    }
    let sent = table.next_request();
    let position = names(&sent).iter().position(|name| *name == "b").unwrap();
    let positions = vec![position, 77];
    table.fail(&sent, Failure::Refused { positions });
    let again = table.requests().pop().unwrap();
    assert_eq!(names(&again), ["a", "c"]);
    table.answer(&again, grant_all(&again.request, 1.0));
    assert_eq!(table.warnings(), [&Warning::Refused { resource: id("b") }]);

    // It is asked for again, rarely, alone, and without another warning.
    let refused = table.now;
    let mut alone = Vec::new();
    while table.now.seconds_since(refused) < 200.0 {
        let sent = table.next_request();
        if names(&sent).contains(&"b") {
            assert_eq!(names(&sent), ["b"]);
            alone.push(table.now);
            let positions = vec![0];
            table.fail(&sent, Failure::Refused { positions });
        } else {
            table.answer(&sent, grant_all(&sent.request, 1.0));
        }
    }
    assert!((2..=4).contains(&alone.len()), "{alone:?}");
    assert_eq!(table.warnings().len(), 1);
}

#[test]
fn refused_resources_come_back_together_and_apart_from_the_others() {
    let mut table = Table::new(1);
    for number in 0..1_000 {
        table.want(&format!("bad/{number}"), 1.0);
        table.want(&format!("good/{number}"), 1.0);
    }
    let (mut again, mut with_good) = (0, 0);
    while table.now.seconds_since(Moment::ORIGIN) < 300.0 {
        table.now = table.now.max(table.holder.wake_at());
        for sent in table.requests() {
            let all = names(&sent);
            let bad = |position: &usize| all[*position].starts_with("bad/");
            // As a server does, which names no more than a hundred.
            let positions: Vec<_> = (0..all.len()).filter(bad).take(100).collect();
            if positions.is_empty() {
                table.answer(&sent, grant_all(&sent.request, 1.0));
                continue;
            }
            if table.now.seconds_since(Moment::ORIGIN) > 10.0 {
                again += 1;
                with_good += usize::from(positions.len() < all.len());
            }
            table.fail(&sent, Failure::Refused { positions });
        }
    }
    assert_eq!(with_good, 0);
    // Four or five times a thousand, a hundred at a time, and here and there a few less.
    assert!(again <= 80, "{again}");
    assert_eq!(table.warnings().len(), 1_000, "each of them once");
}

#[test]
fn nobody_suffers_for_refused_resources_that_are_refused_again_without_a_name() {
    let mut table = Table::new(1);
    for number in 0..500 {
        table.want(&format!("bad/{number}"), 1.0);
        table.want(&format!("good/{number}"), 1.0);
    }
    let (mut named, mut renewals, mut again) = (0, 0, 0);
    while table.now.seconds_since(Moment::ORIGIN) < 600.0 {
        table.now = table.now.max(table.holder.wake_at());
        for sent in table.requests() {
            let all = names(&sent);
            let bad = |position: &usize| all[*position].starts_with("bad/");
            let positions: Vec<_> = (0..all.len()).filter(bad).collect();
            if positions.is_empty() {
                renewals += 1;
                table.answer(&sent, grant_all(&sent.request, 1.0));
            } else if named < 500 {
                named += positions.len();
                table.fail(&sent, Failure::Refused { positions });
            } else {
                again += 1;
                let due = table.holder.resources.renewals().next();
                assert!(due.is_none_or(|(due, _)| due > table.now));
                let positions = Vec::new();
                table.fail(&sent, Failure::Refused { positions });
            }
        }
        if table.now.seconds_since(Moment::ORIGIN) > 5.0 {
            assert_eq!(table.capacity("good/0"), Some(1.0));
        }
    }
    // One a second for all.
    assert!(renewals <= 700, "{renewals}");
    assert!((50..=1_500).contains(&again), "{again}");
}

#[test]
fn one_that_stays_refused_keeps_no_other_down_for_good() {
    let mut table = Table::new(1);
    for resource in ["a", "b", "c"] {
        table.want(resource, 1.0);
    }
    let sent = table.next_request();
    let positions = vec![0, 1, 2];
    table.fail(&sent, Failure::Refused { positions });
    while table.capacity("a").is_none() || table.capacity("c").is_none() {
        assert!(table.now.seconds_since(Moment::ORIGIN) < 3_600.0);
        table.now = table.now.max(table.holder.wake_at());
        for sent in table.requests() {
            if names(&sent).contains(&"b") {
                let positions = Vec::new();
                table.fail(&sent, Failure::Refused { positions });
            } else {
                table.answer(&sent, grant_all(&sent.request, 1.0));
            }
        }
    }
    assert_eq!(table.capacity("b"), None);
}

/// A server that refuses any request with this resource in it, without saying which is at fault.
fn refuse_whole(table: &mut Table, poison: &str, failure: &Failure) -> usize {
    let mut requests = 0;
    while table.now.seconds_since(Moment::ORIGIN) < 0.9 {
        table.now = table.holder.wake_at();
        for sent in table.requests() {
            requests += 1;
            if names(&sent).contains(&poison) {
                table.fail(&sent, failure.clone());
            } else {
                table.answer(&sent, grant_all(&sent.request, 1.0));
            }
        }
    }
    requests
}

#[test]
fn finds_the_one_resource_for_which_a_request_is_refused_or_too_large() {
    let positions = Vec::new();
    for failure in [Failure::Refused { positions }, Failure::TooLarge] {
        let mut table = Table::new(1);
        for number in 0..1000 {
            table.want(&format!("key/{number}"), 1.0);
        }
        let requests = refuse_whole(&mut table, "key/500", &failure);
        assert!(requests < 100, "{failure:?}: {requests}");
        let resource = id("key/500");
        assert_eq!(table.warnings(), [&Warning::Refused { resource }]);
        for number in (0..1000).filter(|number| *number != 500) {
            assert_eq!(table.capacity(&format!("key/{number}")), Some(1.0));
        }
    }
}

#[test]
fn does_not_storm_a_server_that_refuses_everything() {
    let mut table = Table::new(1);
    for number in 0..1000 {
        table.want(&format!("key/{number}"), 1.0);
    }
    let mut requests = 0;
    while table.now.seconds_since(Moment::ORIGIN) < 60.0 {
        table.now = table.holder.wake_at();
        for sent in table.requests() {
            requests += 1;
            let positions = Vec::new();
            table.fail(&sent, Failure::Refused { positions });
        }
    }
    assert!(requests < 60, "{requests}");
}

#[test]
fn events_of_unknown_requests_change_nothing() {
    let mut table = Table::leased(1);
    let seq = Seq::new(77).unwrap();
    let effects = table.effects.len();
    table.handle(Event::Failed {
        seq,
        failure: Failure::TooLarge,
    });
    let response = response(vec![grant("db", 99.0)]);
    table.handle(Event::Answered { seq, response });
    table.handle(Event::Forget {
        resource: ResourceId::new("unknown").unwrap(),
    });
    assert_eq!(table.effects.len(), effects);
}
