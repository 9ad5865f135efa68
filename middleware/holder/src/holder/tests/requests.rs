//! When requests are sent and what they contain.

use doorman_openapi::Unit;

use super::*;

#[test]
fn new_resources_share_one_request() {
    let mut script = Script::new(1);
    script.want("a", 1.0);
    assert!(script.requests().is_empty(), "waiting for others");
    script.pass(0.002);
    script.want("b", 2.0);
    script.pass(0.001);
    let requests = script.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(names(&requests[0]), ["a", "b"]);
}

#[test]
fn new_resource_does_not_wait_for_slow_response() {
    let mut script = Script::new(1);
    script.want("a", 1.0);
    let slow = script.next_request();
    script.want("b", 1.0);
    let next = script.next_request();
    assert_eq!(names(&next), ["b"]);
    assert!(next.seq > slow.seq);
}

#[test]
fn request_reports_lease_and_use() {
    let mut script = Script::new(1);
    let run = Run::new(7).ok();
    script.want("db", 10.0);
    let first = script.next_request();
    assert_eq!(has(&first), None);
    assert_eq!(first.request.client_id.as_str(), "shop-1");
    assert_eq!((first.request.run, script.holder.run()), (run, run));
    assert_eq!(first.request.seq, Some(first.seq));
    assert_eq!(first.request.heard_epoch, None);
    script.answer(&first, grant_all(&first.request, 10.0));
    let second = script.next_request();
    assert_eq!(has(&second), Some(10.0));
    assert_eq!(second.request.resources[0].used, Capacity::new(1.0).ok());
    assert_eq!(second.request.heard_epoch, Epoch::new(7).ok());
}

/// `unit` and `per` of the only resource of a request.
fn unit(sent: &Sent) -> (Option<Unit>, Option<f64>) {
    let resource = &sent.request.resources[0];
    (resource.unit, resource.per.map(Seconds::get))
}

#[test]
fn request_states_unit_of_last_response() {
    let mut script = Script::new(1);
    script.want("db", 10.0);
    let sent = script.next_request();
    assert_eq!(unit(&sent), (None, None), "before the first response");
    script.answer(&sent, grant_all(&sent.request, 10.0));
    let sent = script.next_request();
    assert_eq!(unit(&sent), (Some(Unit::Rate), Some(1.0)));
    let gauge = with(grant("db", 10.0), |answer| answer.unit = Some(Unit::Gauge));
    script.answer(&sent, response(vec![gauge]));
    let sent = script.next_request();
    assert_eq!(unit(&sent), (Some(Unit::Gauge), None));
    let unmatched = with(grant("db", 10.0), |answer| {
        answer.template = None;
        answer.unit = None;
        answer.per = None;
    });
    script.answer(&sent, response(vec![unmatched]));
    assert_eq!(unit(&script.next_request()), (None, None));
}

#[test]
fn another_resource_of_a_known_template_states_no_unit_at_first() {
    let mut script = Script::leased(1);
    script.want("cache", 10.0);
    let sent = script.next_request();
    assert_eq!((names(&sent), unit(&sent)), (vec!["cache"], (None, None)));
}

#[test]
fn amounts_follow_a_changed_period() {
    let mut script = Script::leased(1);
    let sent = script.next_request();
    let per_minute = with(grant("db", 600.0), |answer| {
        answer.per = Some(seconds(60.0));
    });
    script.answer(&sent, response(vec![per_minute]));
    let sent = script.next_request();
    let resource = &sent.request.resources[0];
    assert_eq!(unit(&sent), (Some(Unit::Rate), Some(60.0)));
    assert_eq!((resource.wants.get(), has(&sent)), (600.0, Some(600.0)));
}

#[test]
fn same_rate_in_another_period_is_no_smaller_lease() {
    let mut script = Script::new(1);
    script.want("db", 600.0);
    let sent = script.next_request();
    let per_minute = with(grant("db", 600.0), |answer| {
        answer.per = Some(seconds(60.0));
    });
    script.answer(&sent, response(vec![per_minute]));
    let sent = script.next_request();
    let refresh = with(grant("db", 10.0), |answer| answer.reason = Reason::Share);
    script.answer(&sent, response(vec![refresh]));
    assert!(script.requests().is_empty(), "nothing to report");
}

#[test]
fn refresh_is_due_after_interval_or_half_the_lease() {
    for (length, refresh, delay, latest) in [
        (20.0, 1.0, 0.0, 1.0),
        (20.0, 15.0, 0.0, 10.0),
        (20.0, 15.0, 1.0, 9.5),
        (20.0, 1.0, 0.5, 0.5),
        (20.0, 0.0, 0.0, 0.1),
        (0.05, 0.0, 0.0, 0.1),
    ] {
        let mut script = Script::new(1);
        script.want("db", 10.0);
        let sent = script.next_request();
        script.pass(delay);
        let grant = with(grant("db", 10.0), |answer| {
            answer.gets.lease_length = seconds(length);
            answer.gets.refresh_interval = seconds(refresh);
        });
        script.answer(&sent, response(vec![grant]));
        let due = script.status("db").refresh_at.seconds_since(script.now);
        assert!(
            due <= latest + 1e-9 && due >= (latest * 0.95 - 1e-9).max(0.1 - 1e-9),
            "{length} {refresh} {delay}: {due}"
        );
    }
}

#[test]
fn nearly_due_resources_join_a_request() {
    let mut script = Script::new(1);
    for (resource, refresh) in [("a", 10.0), ("b", 10.5), ("c", 40.0)] {
        script.want(resource, 1.0);
        let sent = script.next_request();
        let grant = with(grant(resource, 1.0), |answer| {
            answer.gets.lease_length = seconds(300.0);
            answer.gets.refresh_interval = seconds(refresh);
        });
        script.answer(&sent, response(vec![grant]));
    }
    let mut together = names(&script.next_request())
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    together.sort_unstable();
    assert_eq!(together, ["a", "b"]);
}

#[test]
fn request_has_at_most_a_thousand_resources() {
    let mut script = Script::new(1);
    for number in 0..2500 {
        script.want(&format!("key/{number}"), 1.0);
    }
    script.pass(0.01);
    let requests = script.requests();
    let sizes: Vec<usize> = requests.iter().map(|sent| names(sent).len()).collect();
    assert_eq!(sizes, [1000, 1000, 500]);
}

#[test]
fn outgrown_lease_is_requested_early_but_rarely() {
    let mut script = Script::leased(1);
    script.pass(0.05);
    script.want("db", 11.0);
    assert!(script.pause() > 0.5, "noise");
    script.want("db", 100.0);
    let early = script.next_request();
    assert_eq!(early.request.resources[0].wants.get(), 100.0);
    script.answer(&early, grant_all(&early.request, 20.0));
    script.want("db", 200.0);
    // A tenth of a second after the last request, rounded up to the common grid.
    let since = script.holder.wake_at().seconds_since(script.now);
    assert!((0.099..=0.111).contains(&since), "{since}");
}

#[test]
fn every_leap_of_demand_is_reported_soon() {
    let mut script = Script::leased(1);
    let (mut asked, begin) = (0, script.now);
    // Half as much again with every sample, up to ten thousand times as much.
    let mut wants = 10.0;
    while wants < 100_000.0 {
        script.pass(0.08);
        wants *= 1.5;
        script.want("db", wants);
        // Until the next moment of the grid.
        script.pass(0.02);
        for sent in script.requests() {
            asked += 1;
            let granted = sent.request.resources[0].wants.get();
            script.answer(&sent, grant_all(&sent.request, granted));
        }
    }
    let seconds = script.now.seconds_since(begin);
    assert!((2.0..2.5).contains(&seconds), "{seconds}");
    // Every second sample is a leap; refreshes come on top.
    assert!((10..=14).contains(&asked), "{asked}");
}

#[test]
fn demand_after_none_is_requested_immediately() {
    let mut script = Script::new(1);
    script.want("db", 0.0);
    let sent = script.next_request();
    let nothing = with(grant("db", 0.0), |answer| {
        answer.gets.refresh_interval = seconds(5.0);
    });
    script.answer(&sent, response(vec![nothing]));
    script.pass(0.05);
    script.want("db", 100.0);
    assert!(script.pause() <= 0.01);
    let early = script.next_request();
    assert_eq!(early.request.resources[0].wants.get(), 100.0);
    // Nothing is granted: the same demand is not reported again.
    script.answer(&early, grant_all(&early.request, 0.0));
    script.want("db", 110.0);
    assert!(script.pause() > 0.5);
}

#[test]
fn demand_within_lease_is_not_reported_early() {
    let mut script = Script::new(1);
    script.want("db", 1.0);
    let sent = script.next_request();
    script.answer(&sent, grant_all(&sent.request, 1000.0));
    script.pass(0.3);
    script.want("db", 900.0);
    assert!(script.pause() > 0.5);
}

#[test]
fn rising_demands_share_early_requests() {
    let mut script = Script::new(1);
    for number in 0..2_000 {
        script.want(&format!("key/{number}"), 1.0);
    }
    let minute = |sent: &Sent| {
        let mut granted = grant_all(&sent.request, 1.0);
        for answer in &mut granted.resources {
            answer.gets.lease_length = seconds(600.0);
            answer.gets.refresh_interval = seconds(60.0);
        }
        granted
    };
    script.pass(0.01);
    for sent in script.requests() {
        script.answer(&sent, minute(&sent));
    }
    script.pass(2.0);
    let (mut requests, mut reported) = (0, 0);
    for number in 0..2_200 {
        // Two thousand rises within a second.
        if number < 2_000 {
            script.want(&format!("key/{number}"), 100.0);
        }
        for sent in script.requests() {
            requests += 1;
            reported += sent.request.resources.len();
            script.answer(&sent, minute(&sent));
        }
        script.pass(0.0005);
    }
    assert_eq!(reported, 2_000);
    assert!(requests <= 102, "{requests}");
}

#[test]
fn growth_is_reported_within_seconds_at_any_interval() {
    for interval in [5.0, 60.0, 300.0] {
        let mut script = Script::new(1);
        let long = |sent: &Sent| {
            let wants = sent.request.resources[0].wants.get();
            response(vec![with(grant("db", wants), |answer| {
                answer.gets.lease_length = seconds(20.0 * interval);
                answer.gets.refresh_interval = seconds(interval);
            })])
        };
        script.want("db", 1.0);
        let mut sent = script.next_request();
        script.answer(&sent, long(&sent));
        for wants in [60.0, 100.0] {
            script.want("db", wants);
            assert!(script.pause() <= 1.3, "{interval} {wants}");
            sent = script.next_request();
            script.answer(&sent, long(&sent));
        }
        assert_eq!(script.capacity("db"), Some(100.0));
        assert!(script.pause() > 0.4 * interval, "{interval}");
    }
}

#[test]
fn permanent_excess_does_not_speed_up_requests() {
    let mut script = Script::new(1);
    let scarce = |_: &Sent| {
        response(vec![with(grant("db", 10.0), |answer| {
            answer.gets.lease_length = seconds(1200.0);
            answer.gets.refresh_interval = seconds(60.0);
        })])
    };
    script.want("db", 10_000.0);
    let mut requests = 0;
    for sample in 0..6_000 {
        // Ten minutes of a demand that oscillates by half.
        script.want("db", 10_000.0 + 5_000.0 * (f64::from(sample) / 7.0).sin());
        for sent in script.requests() {
            requests += 1;
            script.answer(&sent, scarce(&sent));
        }
        script.pass(0.1);
    }
    // Ten intervals, each with a few rises.
    assert!(requests <= 50, "{requests}");
}

#[test]
fn fallen_demand_is_not_requested_early() {
    let mut script = Script::new(1);
    let minute = |sent: &Sent| {
        let wants = sent.request.resources[0].wants.get();
        response(vec![with(grant("db", wants), |answer| {
            answer.reason = Reason::Granted;
            answer.gets.lease_length = seconds(1200.0);
            answer.gets.refresh_interval = seconds(60.0);
        })])
    };
    script.want("db", 100.0);
    let sent = script.next_request();
    script.answer(&sent, minute(&sent));
    for wants in [60.0, 10.0, 0.0] {
        script.want("db", wants);
        assert!(script.pause() > 50.0, "{wants}");
    }
    // A small part of the limit is given up with the refresh, and reported by the next one.
    script.want("db", 95.0);
    for wants in [60.0, 0.0] {
        let sent = script.next_request();
        script.answer(&sent, minute(&sent));
        assert!(script.pause() > 50.0, "{wants}");
        script.want("db", wants);
    }
    let sent = script.next_request();
    script.answer(&sent, minute(&sent));
    assert_eq!(script.pause(), 0.0, "a twentieth of the limit and more");
}

#[test]
fn early_requests_that_bring_nothing_become_rare() {
    let mut script = Script::new(1);
    let full = |_: &Sent| {
        response(vec![with(grant("db", 10.0), |answer| {
            answer.gets.lease_length = seconds(1200.0);
            answer.gets.refresh_interval = seconds(60.0);
        })])
    };
    script.want("db", 10.0);
    let sent = script.next_request();
    script.answer(&sent, full(&sent));
    script.pass(1.0);
    let mut wants = 20.0;
    for pause in [0.0, 0.2, 0.4, 0.8, 1.25, 1.25] {
        script.want("db", wants);
        // Up to the next moment of the grid.
        let early = script.pause();
        assert!((pause..pause + 0.011).contains(&early), "{pause}: {early}");
        let sent = script.next_request();
        script.answer(&sent, full(&sent));
        wants *= 2.0;
    }
}

#[test]
fn first_server_is_random() {
    let mut first = [0; 3];
    for seed in 0..3_000 {
        let holder = Holder::new(HolderSettings {
            client_id: ClientId::new("shop-1").unwrap(),
            run: None,
            replaces: Vec::new(),
            endpoints: 3,
            seed,
        });
        first[holder.server()] += 1;
    }
    assert!(first.iter().all(|count| *count > 900), "{first:?}");
}

#[test]
fn clone_continues_alike() {
    let mut script = Script::leased(2);
    script.want("cache", 5.0);
    let mut clone = script.holder.clone();
    for _ in 0..20 {
        script.now = script.now.max(script.holder.wake_at());
        assert_eq!(clone.wake_at(), script.holder.wake_at());
        assert_eq!(
            clone.handle(Event::Tick, script.now),
            script.holder.handle(Event::Tick, script.now)
        );
    }
}
