//! Outcomes in requests, and early reports of overloads.

use doorman_openapi::{Outcomes, RequestCount};

use super::*;
use crate::event::SeenLimit;

fn feedback(now: Moment, overloaded: u64) -> Feedback {
    Feedback {
        outcomes: Outcomes {
            ok: RequestCount::saturating(5),
            overloaded: RequestCount::saturating(overloaded),
            ..Outcomes::default()
        },
        paused_until: now.after_seconds(7000.0),
        seen: Some(SeenLimit {
            remaining: Capacity::saturating(40.0),
            whole_at: now.after_seconds(30.0),
        }),
    }
}

/// A holder of 10 of `db`, refreshed every second. The control plane wants early reports.
fn reporting() -> Script {
    let mut script = Script::new(1);
    script.want("db", 10.0);
    answer_next(&mut script);
    script
}

/// Answers the next request, and returns how long it took until it was sent.
fn answer_next(script: &mut Script) -> f64 {
    let before = script.now;
    let sent = script.next_request();
    answer_reporting(script, &sent);
    script.now.seconds_since(before)
}

fn overload(script: &mut Script) {
    overload_of(script, "db");
}

fn overload_of(script: &mut Script, resource: &str) {
    let resource = id(resource);
    script.handle(Event::Overloaded { resource });
}

/// Answers all requests of some time, and returns how many there were.
fn answer_for(script: &mut Script, seconds: f64) -> usize {
    let end = script.now.after_seconds(seconds);
    let mut requests = 0;
    while script.holder.wake_at() <= end {
        let sent = script.next_request();
        answer_reporting(script, &sent);
        requests += 1;
    }
    script.now = end;
    requests
}

/// Grants all resources, and wants early reports.
fn answer_reporting(script: &mut Script, sent: &Sent) {
    let mut granted = grant_all(&sent.request, 10.0);
    granted.resources.iter_mut().for_each(|it| it.report = true);
    script.answer(sent, granted);
}

fn is_regular(pause: f64) -> bool {
    (0.9..=1.0).contains(&pause)
}

#[test]
fn feedback_is_sent_once_by_the_time_of_the_request() {
    let mut script = Script::leased(1);
    let stated = feedback(script.now, 2);
    script.want_with("db", 10.0, Some(stated));
    script.want("db", 11.0);
    let begin = script.now;
    let sent = script.next_request();
    let waited = script.now.seconds_since(begin);
    assert!(waited > 0.0, "{waited}");
    let asked = &sent.request.resources[0];
    assert_eq!(asked.outcomes.as_deref(), Some(&stated.outcomes));
    assert_eq!(asked.pause.map(Seconds::get), Some(3600.0));
    let seen = asked.seen.as_ref().unwrap();
    assert_eq!(seen.remaining.get(), 40.0);
    assert!((seen.reset.get() - (30.0 - waited)).abs() < 1e-6);
    script.answer(&sent, grant_all(&sent.request, 10.0));

    let sent = script.next_request();
    let asked = &sent.request.resources[0];
    assert_eq!(
        (&asked.outcomes, asked.pause, &asked.seen),
        (&None, None, &None)
    );
}

#[test]
fn expired_pause_and_reset_are_not_sent() {
    let mut script = Script::leased(1);
    let stated = Feedback {
        paused_until: script.now.after_seconds(0.1),
        seen: Some(SeenLimit {
            remaining: Capacity::ZERO,
            whole_at: script.now.after_seconds(0.1),
        }),
        ..Feedback::default()
    };
    script.want_with("db", 10.0, Some(stated));
    let sent = script.next_request();
    let asked = &sent.request.resources[0];
    assert_eq!((asked.pause, &asked.seen), (None, &None));
    assert_eq!(asked.outcomes.as_deref(), Some(&Outcomes::default()));
}

#[test]
fn effective_capacity_is_returned_with_the_lease() {
    let mut script = Script::leased(1);
    let effective = |sent: &Sent| sent.request.resources[0].has.and_then(|it| it.effective);
    let sent = script.next_request();
    assert_eq!(effective(&sent), None);
    let with_effective = Capacity::new(300.0).ok();
    let grant = with(grant("db", 10.0), |it| it.gets.effective = with_effective);
    script.answer(&sent, response(vec![grant]));
    let sent = script.next_request();
    assert_eq!(effective(&sent), with_effective);
    script.unavailable(&sent);
    let sent = script.next_request();
    assert_eq!(effective(&sent), with_effective);
    script.answer(&sent, grant_all(&sent.request, 10.0));
    assert_eq!(effective(&script.next_request()), None);
}

#[test]
fn first_overload_is_reported_within_a_tenth_of_a_second() {
    let mut script = reporting();
    script.pass(0.4);
    overload(&mut script);
    assert_eq!(answer_next(&mut script), 0.0);

    // The report told of it. Half a second later there is nothing more to tell.
    assert_eq!(answer_next(&mut script), 0.5);
    assert!(is_regular(answer_next(&mut script)));
}

#[test]
fn overload_soon_after_a_request_waits_a_tenth_of_a_second() {
    let mut script = reporting();
    script.pass(0.03);
    overload(&mut script);
    let pause = answer_next(&mut script);
    assert!((pause - 0.07).abs() < 1e-6, "{pause}");
}

#[test]
fn overloads_are_reported_every_half_second_until_there_are_none() {
    let mut script = reporting();
    overload(&mut script);
    answer_next(&mut script);
    for _ in 0..5 {
        script.pass(0.2);
        overload(&mut script);
        overload(&mut script);
        let pause = answer_next(&mut script);
        assert!((pause - 0.3).abs() < 1e-6, "{pause}");
    }
    assert_eq!(answer_next(&mut script), 0.5);
    assert!(is_regular(answer_next(&mut script)));
    assert!(is_regular(answer_next(&mut script)));
}

#[test]
fn overload_during_a_request_is_reported_by_the_next() {
    let mut script = reporting();
    let sent = script.next_request();
    overload(&mut script);
    script.pass(0.02);
    answer_reporting(&mut script, &sent);
    let pause = answer_next(&mut script);
    assert!((pause - 0.08).abs() < 1e-6, "{pause}");
    assert_eq!(answer_next(&mut script), 0.5);
    assert!(is_regular(answer_next(&mut script)));
}

#[test]
fn lost_report_of_overloads_is_followed_as_if_it_had_told_them() {
    let mut script = reporting();
    overload(&mut script);
    let lost = script.next_request();
    script.unavailable(&lost);
    answer_next(&mut script);
    assert_eq!(answer_next(&mut script), 0.5);
    assert!(is_regular(answer_next(&mut script)));
}

#[test]
fn overloads_without_a_wish_for_reports_change_no_interval() {
    let mut script = Script::leased(1);
    for _ in 0..3 {
        overload(&mut script);
        let before = script.now;
        let sent = script.next_request();
        assert!(is_regular(script.now.seconds_since(before)));
        script.answer(&sent, grant_all(&sent.request, 10.0));
        assert!(!script.status("db").reports_overloads);
    }
    assert!(reporting().status("db").reports_overloads);
}

#[test]
fn overloads_of_many_resources_share_requests() {
    let mut script = Script::new(1);
    let resources: Vec<String> = (0..20).map(|number| format!("db/{number}")).collect();
    for resource in &resources {
        script.want(resource, 10.0);
        answer_for(&mut script, 0.02);
    }
    let mut first = 0;
    for resource in &resources {
        overload_of(&mut script, resource);
        first += answer_for(&mut script, 0.01);
    }
    assert!((2..=3).contains(&first), "{first} in 0.2 s");
    let mut later = 0;
    for _ in 0..500 {
        resources.iter().for_each(|it| overload_of(&mut script, it));
        later += answer_for(&mut script, 0.01);
    }
    assert!((9..=11).contains(&later), "{later} in 5 s");
}

#[test]
fn lost_report_of_overloads_is_repeated_within_seconds() {
    for reports in [true, false] {
        let mut script = Script::new(1);
        script.want("db", 10.0);
        let sent = script.next_request();
        let slow = with(grant("db", 10.0), |it| {
            it.gets.refresh_interval = Seconds::saturating(60.0);
            it.gets.lease_length = Seconds::saturating(600.0);
            it.report = reports;
        });
        script.answer(&sent, response(vec![slow]));
        overload(&mut script);
        for _ in 0..5 {
            let lost = script.next_request();
            let timeout = lost.timeout.as_secs_f64();
            script.pass(timeout);
            script.unavailable(&lost);
            let pause = timeout + script.pause();
            assert_eq!(pause <= 2.0, reports, "{pause}");
        }
    }
}
