//! Rate limited requests: 429.

use super::*;

const LIMITED: Failure = Failure::RateLimited {
    retry_after: Some(Duration::from_secs(3)),
};

/// Holds `db` for 20 s and renews it together with `new`.
fn renewing_with_new_lease() -> (Script, Sent) {
    let mut script = Script::leased(2);
    while script.pause() > 0.02 {
        script.pass(0.01);
    }
    script.want("new", 1.0);
    let sent = script.next_request();
    let mut both = names(&sent);
    both.sort_unstable();
    assert_eq!(both, ["db", "new"]);
    (script, sent)
}

#[test]
fn renewal_limited_by_new_lease_is_retried_alone() {
    let (mut script, both) = renewing_with_new_lease();
    script.fail(&both, LIMITED);
    let limited = script.now;
    assert_eq!(script.capacity("db"), Some(10.0), "the lease stays");
    let renewal = script.requests().pop().unwrap();
    assert_eq!(names(&renewal), ["db"]);
    assert_eq!(renewal.endpoint, both.endpoint, "the same server");
    script.answer(&renewal, grant_all(&renewal.request, 10.0));

    // The new lease waits as the server says and neither joins nor delays renewals.
    let mut new_leases = Vec::new();
    while script.now.seconds_since(limited) < 30.0 {
        let sent = script.next_request();
        match names(&sent)[..] {
            ["db"] => script.answer(&sent, grant_all(&sent.request, 10.0)),
            ["new"] => {
                new_leases.push(script.now);
                script.fail(&sent, LIMITED);
            }
            ref mixed => panic!("{mixed:?}"),
        }
        assert_eq!(script.capacity("db"), Some(10.0));
    }
    let mut before = limited;
    for came in new_leases {
        let waited = came.seconds_since(before);
        assert!((3.0..=4.6).contains(&waited), "{waited}");
        before = came;
    }
    assert!(before > limited);
    assert!(script.warnings().is_empty());
}

#[test]
fn requests_are_joined_again_after_a_new_lease() {
    let (mut script, both) = renewing_with_new_lease();
    script.fail(&both, LIMITED);
    loop {
        let sent = script.next_request();
        script.answer(&sent, grant_all(&sent.request, 10.0));
        if names(&sent) == ["new"] {
            break;
        }
    }
    while script.pause() > 0.02 {
        script.pass(0.01);
    }
    script.want("newer", 1.0);
    let sent = script.next_request();
    assert!(names(&sent).len() > 1, "{:?}", names(&sent));
    assert!(names(&sent).contains(&"newer"));
}

#[test]
fn resources_added_meanwhile_wait_too() {
    let mut script = Script::new(1);
    script.want("a", 1.0);
    let sent = script.next_request();
    script.fail(&sent, LIMITED);
    let limited = script.now;
    let mut requests = 0;
    while script.now.seconds_since(limited) < 30.0 {
        // Growing demand for ever more resources.
        script.pass(0.1);
        let step = script.now.seconds_since(limited);
        script.want("a", 1.0 + step * step);
        script.want(&format!("key/{step}"), 1.0);
        for sent in script.requests() {
            requests += 1;
            script.fail(&sent, LIMITED);
        }
    }
    assert!((5..=10).contains(&requests), "{requests}");
}

#[test]
fn limited_renewal_is_retried_before_lease_ends() {
    for new_lease in [false, true] {
        let mut script = Script::leased(1);
        if new_lease {
            script.want("new", 1.0);
        }
        let hour = Failure::RateLimited {
            retry_after: Some(Duration::from_secs(3600)),
        };
        let mut tries = 0;
        while script.capacity("db").is_some() && tries < 100 {
            let sent = script.next_request();
            let ends = script.status("db").lease.map(|lease| lease.ends);
            tries += usize::from(names(&sent).contains(&"db") && ends > Some(script.now));
            script.fail(&sent, hour.clone());
        }
        assert!((3..100).contains(&tries), "{new_lease} {tries}");
    }
}

#[test]
fn missing_retry_after_means_one_second() {
    let mut script = Script::new(1);
    script.want("a", 1.0);
    let sent = script.next_request();
    script.fail(&sent, Failure::RateLimited { retry_after: None });
    assert!((1.0..=1.5).contains(&script.pause()), "{}", script.pause());
}

#[test]
fn renewals_precede_any_number_of_new_leases() {
    let mut script = Script::leased(1);
    for key in 0..5_000 {
        script.want(&format!("key/{key}"), 1.0);
    }
    let sent = script.next_request();
    script.fail(&sent, LIMITED);
    // Requests in flight are rate limited, too.
    for sent in script.requests() {
        if names(&sent).contains(&"db") {
            script.answer(&sent, grant_all(&sent.request, 10.0));
        } else {
            script.fail(&sent, LIMITED);
        }
    }
    let limited = script.now;
    let mut new_leases = 0;
    while script.now.seconds_since(limited) < 20.0 {
        let sent = script.next_request();
        if names(&sent).contains(&"db") {
            assert_eq!(names(&sent), ["db"]);
            script.answer(&sent, grant_all(&sent.request, 10.0));
        } else {
            new_leases += 1;
            let due = script.holder.resources.renewals().next();
            assert!(due.is_none_or(|(due, ..)| due > script.now));
            assert!(script.now.seconds_since(limited) >= 3.0);
            script.fail(&sent, LIMITED);
        }
        assert_eq!(script.capacity("db"), Some(10.0));
    }
    assert!((3..=7).contains(&new_leases), "{new_leases}");
}

#[test]
fn one_request_probes_for_new_leases() {
    let mut script = Script::new(1);
    for key in 0..5_000 {
        script.want(&format!("key/{key}"), 1.0);
    }
    let first = script.next_request();
    for sent in script.requests().iter().chain([&first]) {
        script.fail(sent, LIMITED);
    }
    while script.in_flight() > 0 {
        script.pass(0.5);
        script.requests();
    }
    while script.in_flight() == 0 {
        script.pass(0.01);
        script.requests();
    }
    assert_eq!(script.in_flight(), 1);
    let probe = script.effects.iter().rev().find_map(sent).unwrap();
    script.answer(&probe, grant_all(&probe.request, 1.0));
    // After its success none of the others waits any longer.
    assert!(script.requests().len() > 1);
}

#[test]
fn limited_renewal_does_not_speed_up() {
    let mut script = Script::leased(1);
    let second = Failure::RateLimited {
        retry_after: Some(Duration::from_secs(1)),
    };
    let mut before = None;
    while let Some(lease) = script.status("db").lease {
        let sent = script.next_request();
        if let Some(before) = before
            && lease.ends.seconds_since(before) > 3.0
        {
            assert!(script.now.seconds_since(before) >= 1.0);
        }
        before = Some(script.now);
        script.fail(&sent, second.clone());
    }
}

#[test]
fn rejected_renewal_precedes_new_leases() {
    let mut script = Script::new(1);
    script.want("db", 10.0);
    let sent = script.next_request();
    let mut granted = grant_all(&sent.request, 10.0);
    granted.resources[0].gets.lease_length = seconds(600.0);
    script.answer(&sent, granted);
    let sent = script.next_request();
    script.fail(&sent, Failure::Rejected { positions: vec![0] });
    let limited = script.now;
    script.want("new", 1.0);
    loop {
        let sent = script.next_request();
        if names(&sent) == ["db"] {
            break;
        }
        assert_eq!(names(&sent), ["new"]);
        script.fail(&sent, LIMITED);
        assert!(script.now.seconds_since(limited) < 90.0);
    }
}
