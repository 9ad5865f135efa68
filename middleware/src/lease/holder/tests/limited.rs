//! A server that does no more for one caller, or for all: 429.

use super::*;

const LIMITED: Failure = Failure::Limited {
    retry_after: Some(Duration::from_secs(3)),
};

/// One that holds `db` for 20 s, and comes to renew it together with `new`.
fn renewing_with_a_newcomer() -> (Table, Sent) {
    let mut table = Table::leased(2);
    while table.pause() > 0.02 {
        table.pass(0.01);
    }
    table.want("new", 1.0);
    let sent = table.next_request();
    let mut both = names(&sent);
    both.sort_unstable();
    assert_eq!(both, ["db", "new"]);
    (table, sent)
}

#[test]
fn renews_alone_and_at_once_what_was_refused_for_a_newcomer() {
    let (mut table, both) = renewing_with_a_newcomer();
    table.fail(&both, LIMITED);
    let refused = table.now;
    assert_eq!(table.capacity("db"), Some(10.0), "no lease is dropped");
    let renewal = table.requests().pop().unwrap();
    assert_eq!(names(&renewal), ["db"]);
    assert_eq!(renewal.endpoint, both.endpoint, "another would do no more");
    table.answer(&renewal, grant_all(&renewal.request, 10.0));

    // The newcomer waits as it was told, and neither rides along nor holds up renewals.
    let mut newcomers = Vec::new();
    while table.now.seconds_since(refused) < 30.0 {
        let sent = table.next_request();
        match names(&sent)[..] {
            ["db"] => table.answer(&sent, grant_all(&sent.request, 10.0)),
            ["new"] => {
                newcomers.push(table.now);
                table.fail(&sent, LIMITED);
            }
            ref mixed => panic!("{mixed:?}"),
        }
        assert_eq!(table.capacity("db"), Some(10.0));
    }
    let mut before = refused;
    for came in newcomers {
        let waited = came.seconds_since(before);
        assert!((3.0..=4.6).contains(&waited), "{waited}");
        before = came;
    }
    assert!(before > refused);
    assert!(table.warnings().is_empty());
}

#[test]
fn asks_for_all_together_again_once_something_new_is_served() {
    let (mut table, both) = renewing_with_a_newcomer();
    table.fail(&both, LIMITED);
    loop {
        let sent = table.next_request();
        table.answer(&sent, grant_all(&sent.request, 10.0));
        if names(&sent) == ["new"] {
            break;
        }
    }
    for _ in 0..20 {
        let sent = table.next_request();
        if names(&sent).len() == 2 {
            return;
        }
        table.answer(&sent, grant_all(&sent.request, 10.0));
    }
    panic!("it goes on asking apart");
}

#[test]
fn what_is_wanted_meanwhile_waits_with_the_others() {
    let mut table = Table::new(1);
    table.want("a", 1.0);
    let sent = table.next_request();
    table.fail(&sent, LIMITED);
    let refused = table.now;
    let mut requests = 0;
    while table.now.seconds_since(refused) < 30.0 {
        // More and more is wanted, of ever more resources.
        table.pass(0.1);
        let step = table.now.seconds_since(refused);
        table.want("a", 1.0 + step * step);
        table.want(&format!("key/{step}"), 1.0);
        for sent in table.requests() {
            requests += 1;
            table.fail(&sent, LIMITED);
        }
    }
    assert!((5..=10).contains(&requests), "{requests}");
}

#[test]
fn a_renewal_that_is_refused_is_tried_again_before_its_lease_ends() {
    for newcomer in [false, true] {
        let mut table = Table::leased(1);
        if newcomer {
            table.want("new", 1.0);
        }
        let hour = Failure::Limited {
            retry_after: Some(Duration::from_secs(3600)),
        };
        let mut tries = 0;
        while table.capacity("db").is_some() && tries < 100 {
            let sent = table.next_request();
            let ends = table.holding("db").lease.map(|lease| lease.ends);
            tries += usize::from(names(&sent).contains(&"db") && ends > Some(table.now));
            table.fail(&sent, hour.clone());
        }
        assert!((3..100).contains(&tries), "{newcomer} {tries}");
    }
}

#[test]
fn who_is_not_told_how_long_waits_for_a_second() {
    let mut table = Table::new(1);
    table.want("a", 1.0);
    let sent = table.next_request();
    table.fail(&sent, Failure::Limited { retry_after: None });
    assert!((1.0..=1.5).contains(&table.pause()), "{}", table.pause());
}

#[test]
fn however_many_newcomers_wait_none_goes_before_its_time_and_renewals_go_first() {
    let mut table = Table::leased(1);
    for key in 0..5_000 {
        table.want(&format!("key/{key}"), 1.0);
    }
    let sent = table.next_request();
    table.fail(&sent, LIMITED);
    // What was under way already is refused, too.
    for sent in table.requests() {
        if names(&sent).contains(&"db") {
            table.answer(&sent, grant_all(&sent.request, 10.0));
        } else {
            table.fail(&sent, LIMITED);
        }
    }
    let refused = table.now;
    let mut newcomers = 0;
    while table.now.seconds_since(refused) < 20.0 {
        let sent = table.next_request();
        if names(&sent).contains(&"db") {
            assert_eq!(names(&sent), ["db"]);
            table.answer(&sent, grant_all(&sent.request, 10.0));
        } else {
            newcomers += 1;
            let due = table.holder.resources.renewals().next();
            assert!(due.is_none_or(|(due, _)| due > table.now));
            assert!(table.now.seconds_since(refused) >= 3.0);
            table.fail(&sent, LIMITED);
        }
        assert_eq!(table.capacity("db"), Some(10.0));
    }
    assert!((3..=7).contains(&newcomers), "{newcomers}");
}

#[test]
fn one_request_finds_out_whether_newcomers_are_still_refused() {
    let mut table = Table::new(1);
    for key in 0..5_000 {
        table.want(&format!("key/{key}"), 1.0);
    }
    let first = table.next_request();
    for sent in table.requests().iter().chain([&first]) {
        table.fail(sent, LIMITED);
    }
    while table.under_way() > 0 {
        table.pass(0.5);
        table.requests();
    }
    while table.under_way() == 0 {
        table.pass(0.01);
        table.requests();
    }
    assert_eq!(table.under_way(), 1);
    let probe = table.effects.iter().rev().find_map(sent).unwrap();
    table.answer(&probe, grant_all(&probe.request, 1.0));
    // It is served, and so nobody waits any longer for what was said before.
    assert!(table.requests().len() > 1);
}

#[test]
fn a_limited_renewal_is_not_tried_faster_and_faster() {
    let mut table = Table::leased(1);
    let second = Failure::Limited {
        retry_after: Some(Duration::from_secs(1)),
    };
    let mut before = None;
    while let Some(lease) = table.holding("db").lease {
        let sent = table.next_request();
        if let Some(before) = before
            && lease.ends.seconds_since(before) > 3.0
        {
            assert!(table.now.seconds_since(before) >= 1.0);
        }
        before = Some(table.now);
        table.fail(&sent, second.clone());
    }
}

#[test]
fn one_that_was_refused_and_still_has_its_lease_does_not_wait_behind_newcomers() {
    let mut table = Table::new(1);
    table.want("db", 10.0);
    let sent = table.next_request();
    let mut granted = grant_all(&sent.request, 10.0);
    granted.resources[0].gets.lease_length = seconds(600.0);
    table.answer(&sent, granted);
    let sent = table.next_request();
    table.fail(&sent, Failure::Refused { positions: vec![0] });
    let refused = table.now;
    table.want("new", 1.0);
    loop {
        let sent = table.next_request();
        if names(&sent) == ["db"] {
            break;
        }
        assert_eq!(names(&sent), ["new"]);
        table.fail(&sent, LIMITED);
        assert!(table.now.seconds_since(refused) < 90.0);
    }
}
