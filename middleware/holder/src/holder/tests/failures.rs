//! Failed requests.

use super::*;

#[test]
fn every_server_is_tried_before_a_pause() {
    let mut script = Script::leased(3);
    let first = script.next_request();
    script.unavailable(&first);
    let second = script.requests().pop().unwrap();
    script.unavailable(&second);
    let third = script.requests().pop().unwrap();
    assert_eq!([first.endpoint, second.endpoint, third.endpoint], [0, 1, 2]);
    assert!(script.warnings().is_empty());
    script.unavailable(&third);
    assert!(script.pause() > 0.0);
    assert_eq!(script.warnings(), [&Warning::Unreachable]);
    let again = script.next_request();
    script.answer(&again, grant_all(&again.request, 10.0));
    assert_eq!(script.warnings()[1..], [&Warning::Recovered]);
}

#[test]
fn pause_with_leases_is_at_most_one_and_a_half_intervals() {
    let mut longest = 0_f64;
    let mut pauses = Vec::new();
    for seed in 0..200 {
        let mut script = Script::new(1);
        script.holder.rng.seed(seed);
        lease_for_long(&mut script, "db", 60.0, 5.0);
        let ends = script.status("db").lease.unwrap().ends;
        let mut sent = script.next_request();
        while script.now < ends {
            script.unavailable(&sent);
            let rest = ends.seconds_since(script.now);
            assert!(script.pause() <= f64::min(7.5, rest / 2.0).max(0.1));
            longest = longest.max(script.pause());
            pauses.push(script.pause());
            sent = script.next_request();
        }
        assert_eq!(has(&sent), None, "the lease has ended");
    }
    assert!(longest > 7.0, "{longest}");
    assert!(pauses.iter().any(|pause| *pause < 0.1), "from 0 on");
}

#[test]
fn new_resource_does_not_wait_for_the_pause_of_renewals() {
    let mut script = Script::new(1);
    lease_for_long(&mut script, "db", 600.0, 60.0);
    let renewal = script.next_request();
    script.unavailable(&renewal);
    assert!(script.pause() > 4.0, "{}", script.pause());
    script.want("new", 1.0);
    assert!(script.pause() <= 0.1, "{}", script.pause());
    let mut sent = script.next_request();
    assert!(names(&sent).contains(&"new"));
    for ceiling in [0.2, 0.4, 0.8] {
        script.unavailable(&sent);
        assert!(script.pause() <= ceiling, "{}", script.pause());
        sent = script.next_request();
    }
}

#[test]
fn single_address_that_is_not_the_master_is_asked_again_soon() {
    let mut script = Script::leased(1);
    for _ in 0..3 {
        let mut sent = script.next_request();
        for _ in 0..4 {
            script.fail(&sent, Failure::Redirected { to: None });
            assert!(script.pause() <= 0.2, "{}", script.pause());
            sent = script.next_request();
        }
        script.fail(&sent, Failure::Redirected { to: None });
        assert_eq!(script.warnings(), [&Warning::Unreachable]);
    }
    let sent = script.next_request();
    script.answer(&sent, grant_all(&sent.request, 10.0));
    assert_eq!(script.capacity("db"), Some(10.0));
}

#[test]
fn confirmation_at_a_new_master_keeps_the_interval() {
    let pending = |epoch| {
        let mut response = response(vec![with(grant("db", 10.0), |answer| {
            answer.gets.lease_length = seconds(60.0);
            answer.gets.refresh_interval = seconds(1.0);
            answer.reason = Reason::Pending;
        })]);
        response.epoch = Epoch::new(epoch).unwrap();
        response
    };
    let (mut shortest, mut longest) = (f64::INFINITY, 0_f64);
    for seed in 0..200 {
        let mut script = Script::new(1);
        script.holder.rng.seed(seed);
        let ends = lease_for_long(&mut script, "db", 60.0, 5.0);
        let first = script.next_request();
        script.answer(&first, pending(8));
        while script.now < ends {
            let before = script.now;
            let sent = script.next_request();
            let wait = script.now.seconds_since(before);
            (shortest, longest) = (shortest.min(wait), longest.max(wait));
            script.answer(&sent, pending(8));
        }
        // Afterwards the master does not learn of leases any more.
        assert!(script.pause() <= 1.0);
    }
    assert!((4.75..4.8).contains(&shortest), "{shortest}");
    assert!((4.9..=5.0).contains(&longest), "{longest}");
}

#[test]
fn one_of_few_holders_returns_and_confirms_soon() {
    for seed in 0..50 {
        let mut script = Script::new(1);
        script.holder = script.holder.one_of_few();
        script.holder.rng.seed(seed);
        lease_for_long(&mut script, "db", 60.0, 5.0);
        let mut sent = script.next_request();
        for _ in 0..10 {
            script.unavailable(&sent);
            assert!(script.pause() <= 0.25, "{}", script.pause());
            sent = script.next_request();
        }
        let mut pending = response(vec![with(grant("db", 10.0), |answer| {
            answer.gets.lease_length = seconds(60.0);
            answer.gets.refresh_interval = seconds(0.1);
            answer.reason = Reason::Pending;
        })]);
        pending.epoch = Epoch::new(8).unwrap();
        script.answer(&sent, pending);
        assert!(script.pause() <= 0.1, "{}", script.pause());
    }
}

#[test]
fn pause_without_lease_is_at_most_four_seconds() {
    let mut script = Script::new(1);
    script.want("db", 1.0);
    let mut sent = script.next_request();
    for _ in 0..50 {
        let retry_after = Some(Duration::from_secs(3600));
        script.fail(&sent, Failure::Unavailable { retry_after });
        let from = script.now;
        sent = script.next_request();
        let pause = script.now.seconds_since(from);
        assert!((2.0..=4.0).contains(&pause), "{pause}");
    }
    assert_eq!(
        script.warnings().len(),
        2 + (script.now.seconds_since(Moment::ORIGIN) / 60.0) as usize - 1,
        "one warning a minute"
    );
}

#[test]
fn timeout_leaves_time_to_renew_elsewhere() {
    let mut script = Script::leased(2);
    let refresh = script.next_request();
    assert_eq!(refresh.timeout, Duration::from_secs(2));
    script.answer(
        &refresh,
        response(vec![with(grant("db", 10.0), |answer| {
            answer.gets.lease_length = seconds(2.0);
            answer.gets.refresh_interval = seconds(1.5);
        })]),
    );
    let ends = script.status("db").lease.unwrap().ends;
    let refresh = script.next_request();
    assert_eq!(refresh.timeout, ends.since(script.now));

    let mut script = Script::leased(2);
    let slow = script.next_request();
    script.answer(
        &slow,
        response(vec![with(grant("db", 10.0), |answer| {
            answer.gets.lease_length = seconds(300.0);
            answer.gets.refresh_interval = seconds(10.0);
        })]),
    );
    assert_eq!(script.next_request().timeout, Duration::from_secs(5));
}

#[test]
fn hanging_server_is_retried_every_four_seconds() {
    let mut script = Script::new(1);
    let ends = lease_for_long(&mut script, "db", 120.0, 60.0);
    let mut last = script.now;
    while script.now.seconds_since(ends) < 120.0 {
        script.next_request();
        let pause = script.now.since(last.max(ends));
        assert!(pause <= Duration::from_secs(4), "{pause:?}");
        last = script.now;
    }
}

#[test]
fn slow_renewal_does_not_delay_missing_lease() {
    let mut script = Script::new(1);
    lease_for_long(&mut script, "long", 6000.0, 60.0);
    let slow = script.next_request();
    assert_eq!(slow.timeout, Duration::from_secs(30));
    script.want("new", 1.0);
    let start = script.now;
    let fails = script.next_request();
    assert_eq!(names(&fails), ["new"]);
    script.unavailable(&fails);
    let again = script.next_request();
    assert_eq!(names(&again), ["new"]);
    assert!(script.now.since(start) <= Duration::from_secs(5));
}

/// Leases 10 of a resource and returns the end of the lease.
fn lease_for_long(script: &mut Script, resource: &str, length: f64, refresh: f64) -> Moment {
    script.want(resource, 10.0);
    let sent = script.next_request();
    let grant = with(grant(resource, 10.0), |answer| {
        answer.gets.lease_length = seconds(length);
        answer.gets.refresh_interval = seconds(refresh);
    });
    script.answer(&sent, response(vec![grant]));
    script.status(resource).lease.unwrap().ends
}

#[test]
fn redirects_are_followed_but_never_in_a_loop() {
    let mut script = Script::leased(2);
    let first = script.next_request();
    script.fail(&first, Failure::Redirected { to: Some(1) });
    let hop = script.requests().pop().unwrap();
    assert_eq!(hop.endpoint, 1);
    script.answer(&hop, grant_all(&hop.request, 10.0));
    assert_eq!(script.next_request().endpoint, 1, "stays at the master");

    let mut script = Script::leased(2);
    let mut sent = script.next_request();
    let start = script.now;
    for _ in 0..3 {
        let to = Some(1 - sent.endpoint);
        script.fail(&sent, Failure::Redirected { to });
        sent = script.next_request();
    }
    assert!(script.now > start, "there is a pause");
}

#[test]
fn rejected_resource_does_not_affect_others() {
    let mut script = Script::new(1);
    for resource in ["a", "b", "c"] {
        script.want(resource, 1.0);
    }
    let sent = script.next_request();
    let position = names(&sent).iter().position(|name| *name == "b").unwrap();
    let positions = vec![position, 77];
    script.fail(&sent, Failure::Rejected { positions });
    let again = script.requests().pop().unwrap();
    assert_eq!(names(&again), ["a", "c"]);
    script.answer(&again, grant_all(&again.request, 1.0));
    assert_eq!(
        script.warnings(),
        [&Warning::Rejected { resource: id("b") }]
    );

    // It is requested again, rarely, alone and without another warning.
    let rejected = script.now;
    let mut alone = Vec::new();
    while script.now.seconds_since(rejected) < 200.0 {
        let sent = script.next_request();
        if names(&sent).contains(&"b") {
            assert_eq!(names(&sent), ["b"]);
            alone.push(script.now);
            let positions = vec![0];
            script.fail(&sent, Failure::Rejected { positions });
        } else {
            script.answer(&sent, grant_all(&sent.request, 1.0));
        }
    }
    assert!((2..=4).contains(&alone.len()), "{alone:?}");
    assert_eq!(script.warnings().len(), 1);
}

#[test]
fn rejected_resources_are_retried_together_and_apart() {
    let mut script = Script::new(1);
    for number in 0..1_000 {
        script.want(&format!("bad/{number}"), 1.0);
        script.want(&format!("good/{number}"), 1.0);
    }
    let (mut again, mut with_good) = (0, 0);
    while script.now.seconds_since(Moment::ORIGIN) < 300.0 {
        script.now = script.now.max(script.holder.wake_at());
        for sent in script.requests() {
            let all = names(&sent);
            let bad = |position: &usize| all[*position].starts_with("bad/");
            // A server names at most a hundred.
            let positions: Vec<_> = (0..all.len()).filter(bad).take(100).collect();
            if positions.is_empty() {
                script.answer(&sent, grant_all(&sent.request, 1.0));
                continue;
            }
            if script.now.seconds_since(Moment::ORIGIN) > 10.0 {
                again += 1;
                with_good += usize::from(positions.len() < all.len());
            }
            script.fail(&sent, Failure::Rejected { positions });
        }
    }
    assert_eq!(with_good, 0);
    // Four or five times a thousand, a hundred at a time, sometimes fewer.
    assert!(again <= 80, "{again}");
    assert_eq!(script.warnings().len(), 1_000, "one for each");
}

#[test]
fn unnamed_rejection_of_retries_does_not_affect_others() {
    let mut script = Script::new(1);
    for number in 0..500 {
        script.want(&format!("bad/{number}"), 1.0);
        script.want(&format!("good/{number}"), 1.0);
    }
    let (mut named, mut renewals, mut again) = (0, 0, 0);
    while script.now.seconds_since(Moment::ORIGIN) < 600.0 {
        script.now = script.now.max(script.holder.wake_at());
        for sent in script.requests() {
            let all = names(&sent);
            let bad = |position: &usize| all[*position].starts_with("bad/");
            let positions: Vec<_> = (0..all.len()).filter(bad).collect();
            if positions.is_empty() {
                renewals += 1;
                script.answer(&sent, grant_all(&sent.request, 1.0));
            } else if named < 500 {
                named += positions.len();
                script.fail(&sent, Failure::Rejected { positions });
            } else {
                again += 1;
                let due = script.holder.resources.renewals().next();
                assert!(due.is_none_or(|(due, ..)| due > script.now));
                let positions = Vec::new();
                script.fail(&sent, Failure::Rejected { positions });
            }
        }
        if script.now.seconds_since(Moment::ORIGIN) > 5.0 {
            assert_eq!(script.capacity("good/0"), Some(1.0));
        }
    }
    // One per second for all.
    assert!(renewals <= 700, "{renewals}");
    assert!((50..=1_500).contains(&again), "{again}");
}

#[test]
fn resource_recovers_beside_a_rejected_one() {
    let mut script = Script::new(1);
    for resource in ["a", "b", "c"] {
        script.want(resource, 1.0);
    }
    let sent = script.next_request();
    let positions = vec![0, 1, 2];
    script.fail(&sent, Failure::Rejected { positions });
    while script.capacity("a").is_none() || script.capacity("c").is_none() {
        assert!(script.now.seconds_since(Moment::ORIGIN) < 3_600.0);
        script.now = script.now.max(script.holder.wake_at());
        for sent in script.requests() {
            if names(&sent).contains(&"b") {
                let positions = Vec::new();
                script.fail(&sent, Failure::Rejected { positions });
            } else {
                script.answer(&sent, grant_all(&sent.request, 1.0));
            }
        }
    }
    assert_eq!(script.capacity("b"), None);
}

/// Fails every request with this resource without naming it.
fn fail_with(script: &mut Script, poison: &str, failure: &Failure) -> usize {
    let mut requests = 0;
    while script.now.seconds_since(Moment::ORIGIN) < 0.9 {
        script.now = script.holder.wake_at();
        for sent in script.requests() {
            requests += 1;
            if names(&sent).contains(&poison) {
                script.fail(&sent, failure.clone());
            } else {
                script.answer(&sent, grant_all(&sent.request, 1.0));
            }
        }
    }
    requests
}

#[test]
fn bisecting_finds_the_resource_at_fault() {
    let positions = Vec::new();
    for failure in [Failure::Rejected { positions }, Failure::TooLarge] {
        let mut script = Script::new(1);
        for number in 0..1000 {
            script.want(&format!("key/{number}"), 1.0);
        }
        let requests = fail_with(&mut script, "key/500", &failure);
        assert!(requests < 100, "{failure:?}: {requests}");
        let resource = id("key/500");
        assert_eq!(script.warnings(), [&Warning::Rejected { resource }]);
        for number in (0..1000).filter(|number| *number != 500) {
            assert_eq!(script.capacity(&format!("key/{number}")), Some(1.0));
        }
    }
}

#[test]
fn rejection_of_everything_causes_no_storm() {
    let mut script = Script::new(1);
    for number in 0..1000 {
        script.want(&format!("key/{number}"), 1.0);
    }
    let mut requests = 0;
    while script.now.seconds_since(Moment::ORIGIN) < 60.0 {
        script.now = script.holder.wake_at();
        for sent in script.requests() {
            requests += 1;
            let positions = Vec::new();
            script.fail(&sent, Failure::Rejected { positions });
        }
    }
    assert!(requests < 60, "{requests}");
}

#[test]
fn events_of_unknown_requests_are_ignored() {
    let mut script = Script::leased(1);
    let seq = Seq::new(77).unwrap();
    let effects = script.effects.len();
    script.handle(Event::Failed {
        seq,
        failure: Failure::TooLarge,
    });
    let response = response(vec![grant("db", 99.0)]);
    script.handle(Event::Answered { seq, response });
    script.handle(Event::Forget {
        resource: ResourceId::new("unknown").unwrap(),
    });
    assert_eq!(script.effects.len(), effects);
}
