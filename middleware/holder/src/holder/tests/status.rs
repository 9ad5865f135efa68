//! The status of a lease after responses, expiry, release and stop.

use super::*;

#[test]
fn lease_is_counted_from_sending_the_request() {
    let mut script = Script::new(1);
    script.want("db", 10.0);
    let sent = script.next_request();
    let at = script.now;
    script.pass(1.5);
    script.answer(&sent, grant_all(&sent.request, 10.0));
    let lease = script.status("db").lease.unwrap();
    assert_eq!(lease.ends, at.after_seconds(20.0));
}

#[test]
fn smaller_lease_is_applied_and_reported_immediately() {
    let mut script = Script::leased(1);
    let refresh = script.next_request();
    script.answer(&refresh, grant_all(&refresh.request, 4.0));
    assert_eq!(script.capacity("db"), Some(4.0));
    let reports = script.requests();
    assert_eq!(reports.len(), 1);
    assert_eq!(has(&reports[0]), Some(4.0));
    script.answer(&reports[0], grant_all(&reports[0].request, 3.0));
    assert_eq!(script.capacity("db"), Some(3.0));
    // A second shrink in a row is reported too, but not in a hot loop.
    let shrunk = script.now;
    let again = script.next_request();
    assert_eq!(has(&again), Some(3.0));
    assert_eq!(script.now, shrunk.after_seconds(0.1));
    script.answer(&again, grant_all(&again.request, 3.0));
    assert!(script.pause() >= 0.9);
}

#[test]
fn zero_with_a_length_is_a_lease() {
    let cases = [
        (Reason::Pending, 0.0, 20.0, Some(0.0)),
        (Reason::Pending, 0.0, 0.0, None),
        (Reason::Pending, 5.0, 20.0, Some(5.0)),
        (Reason::Blocked, 0.0, 20.0, Some(0.0)),
        (Reason::Share, 0.0, 20.0, Some(0.0)),
        (Reason::Granted, 10.0, 0.0, None),
    ];
    for (reason, capacity, length, expected) in cases {
        let mut script = Script::leased(1);
        let sent = script.next_request();
        let grant = with(grant("db", capacity), |answer| {
            answer.reason = reason;
            answer.gets.lease_length = seconds(length);
        });
        script.answer(&sent, response(vec![grant]));
        assert_eq!(script.capacity("db"), expected, "{reason:?}");
        let report = script.requests();
        assert_eq!(report.len(), 1, "{reason:?}: a smaller lease");
        assert_eq!(has(&report[0]), expected, "{reason:?}");
    }
}

#[test]
fn new_resource_during_an_outage_awaits_no_first_answer() {
    let mut script = Script::leased(1);
    script.want("before", 1.0);
    assert_eq!(script.status("before").first_answer, FirstAnswer::Awaited);
    let refresh = script.next_request();
    script.unavailable(&refresh);
    script.want("during", 1.0);
    assert_eq!(script.status("during").first_answer, FirstAnswer::Failed);

    let next = script.next_request();
    script.answer(&next, grant_all(&next.request, 10.0));
    script.want("after", 1.0);
    assert_eq!(script.status("after").first_answer, FirstAnswer::Awaited);
}

#[test]
fn expired_lease_keeps_its_terms() {
    let mut script = Script::leased(1);
    let ends = script.status("db").lease.unwrap().ends;
    while script.now < ends {
        script.now = script.holder.wake_at().min(ends);
        for sent in script.requests() {
            if script.now < ends {
                assert_eq!(has(&sent), Some(10.0), "a failure drops no lease");
            }
            script.unavailable(&sent);
        }
    }
    assert_eq!(script.capacity("db"), None);
    let safe = SafeCapacity::AtMost(Capacity::new(2.0).unwrap());
    assert_eq!(script.status("db").terms.unwrap().safe, safe);
    assert_eq!(has(&script.next_request()), None);
}

#[test]
fn answer_without_terms_changes_none() {
    let mut script = Script::leased(1);
    let before = script.status("db").terms;
    let sent = script.next_request();
    // The response of a node whose parent has not answered.
    let mut unknown = answer("db", None, Capacity::ZERO);
    unknown.safe_capacity = SafeCapacity::Unlimited;
    unknown.gets.lease_length = Seconds::ZERO;
    script.answer(&sent, response(vec![unknown]));
    assert_eq!(script.capacity("db"), None);
    assert_eq!(script.status("db").terms, before);
}

#[test]
fn new_resource_has_terms_of_its_template() {
    let mut script = Script::new(1);
    script.want("tenant/a", 1.0);
    assert_eq!(script.status("tenant/a").terms, None);
    let sent = script.next_request();
    let answer = answer("tenant/a", Some("tenant/*"), Capacity::new(3.0).unwrap());
    script.answer(&sent, response(vec![answer]));
    script.want("tenant/b", 1.0);
    let status = script.status("tenant/b");
    assert_eq!(status.terms.unwrap().safe.get(), 3.0);
    assert_eq!(status.first_answer, FirstAnswer::Awaited);
}

#[test]
fn forgotten_resource_is_released() {
    let mut script = Script::leased(1);
    script.handle(Event::Forget { resource: id("db") });
    assert!(script.requests().is_empty());
    let releases = script.releases();
    assert_eq!(releases.len(), 1);
    assert_eq!(releases[0].resource_ids.as_deref(), Some(&[id("db")][..]));
    assert!(releases[0].seq > Seq::new(1).ok());
    assert_eq!(releases[0].heard_epoch, Epoch::new(7).ok());
    assert_eq!(script.holder.wake_at(), Moment::NEVER);
}

#[test]
fn resource_wanted_again_is_not_released() {
    let mut script = Script::leased(1);
    script.handle(Event::Forget { resource: id("db") });
    script.want("db", 1.0);
    let sent = script.next_request();
    assert_eq!(has(&sent), None);
    assert!(script.releases().is_empty());
}

#[test]
fn stop_releases_everything() {
    let mut script = Script::leased(2);
    script.pass(1.0);
    let under_way = script.requests().pop().unwrap();
    script.handle(Event::Stop);
    assert_eq!(script.capacity("db"), None);
    assert_eq!(script.releases()[0].resource_ids, None);
    script.answer(&under_way, grant_all(&under_way.request, 10.0));
    script.want("other", 1.0);
    assert_eq!(script.capacity("db"), None);
    assert_eq!(script.holder.wake_at(), Moment::NEVER);
    // A second stop goes to the next server with a new sequence number.
    script.handle(Event::Stop);
    let seqs: Vec<_> = script
        .releases()
        .iter()
        .map(|release| release.seq)
        .collect();
    assert!(seqs[0] < seqs[1]);
}

#[test]
fn stop_without_requests_releases_nothing() {
    let mut script = Script::new(1);
    script.want("db", 1.0);
    script.handle(Event::Stop);
    assert!(script.releases().is_empty());
}

#[test]
fn response_to_an_expired_claim_is_ignored() {
    let mut script = Script::leased(1);
    let refresh = script.next_request();
    assert_eq!(has(&refresh), Some(10.0));
    // A restarted server only repeats the claim; others may hold the capacity by now.
    script.pass(30.0);
    script.answer(&refresh, grant_all(&refresh.request, 10.0));
    assert_eq!(script.capacity("db"), None);
    let again = script.next_request();
    assert_eq!(has(&again), None);
}
