//! What is held.

use super::*;

#[test]
fn counts_a_lease_from_when_the_request_was_sent() {
    let mut table = Table::new(1);
    table.want("db", 10.0);
    let sent = table.next_request();
    let at = table.now;
    table.pass(1.5);
    table.answer(&sent, grant_all(&sent.request, 10.0));
    let lease = table.holding("db").lease.unwrap();
    assert_eq!(lease.ends, at.after_seconds(20.0));
}

#[test]
fn obeys_and_reports_a_smaller_lease_at_once() {
    let mut table = Table::leased(1);
    let refresh = table.next_request();
    table.answer(&refresh, grant_all(&refresh.request, 4.0));
    assert_eq!(table.capacity("db"), Some(4.0));
    let reports = table.requests();
    assert_eq!(reports.len(), 1);
    assert_eq!(has(&reports[0]), Some(4.0));
    table.answer(&reports[0], grant_all(&reports[0].request, 3.0));
    assert_eq!(table.capacity("db"), Some(3.0));
    // The next in a row is reported too, but not in a hot loop.
    let shrunk = table.now;
    let again = table.next_request();
    assert_eq!(has(&again), Some(3.0));
    assert_eq!(table.now, shrunk.after_seconds(0.1));
    table.answer(&again, grant_all(&again.request, 3.0));
    assert!(table.pause() >= 0.9);
}

#[test]
fn pending_without_capacity_is_no_lease_and_a_shut_door_is_a_lease_of_nothing() {
    let cases = [
        (Reason::Pending, 0.0, 20.0, None),
        (Reason::Pending, 5.0, 20.0, Some(5.0)),
        (Reason::Blocked, 0.0, 20.0, Some(0.0)),
        (Reason::Share, 0.0, 20.0, Some(0.0)),
        (Reason::Granted, 10.0, 0.0, None),
    ];
    for (reason, capacity, length, expected) in cases {
        let mut table = Table::leased(1);
        let sent = table.next_request();
        let grant = with(grant("db", capacity), |answer| {
            answer.reason = reason;
            answer.gets.lease_length = seconds(length);
        });
        table.answer(&sent, response(vec![grant]));
        assert_eq!(table.capacity("db"), expected, "{reason:?}");
        let report = table.requests();
        assert_eq!(report.len(), 1, "{reason:?}: it is less than before");
        assert_eq!(has(&report[0]), expected, "{reason:?}");
    }
}

#[test]
fn a_lease_runs_out_and_the_safe_capacity_stays_known() {
    let mut table = Table::leased(1);
    let ends = table.holding("db").lease.unwrap().ends;
    while table.now < ends {
        table.now = table.holder.wake_at().min(ends);
        for sent in table.requests() {
            if table.now < ends {
                assert_eq!(has(&sent), Some(10.0), "a failure drops no lease");
            }
            table.unavailable(&sent);
        }
    }
    assert_eq!(table.capacity("db"), None);
    let safe = SafeCapacity::AtMost(Capacity::new(2.0).unwrap());
    assert_eq!(table.holding("db").told.unwrap().safe, safe);
    assert_eq!(has(&table.next_request()), None);
}

#[test]
fn a_new_resource_falls_back_to_what_its_template_was_told() {
    let mut table = Table::new(1);
    table.want("tenant/a", 1.0);
    assert_eq!(table.holding("tenant/a").told, None);
    let sent = table.next_request();
    let told = answer("tenant/a", Some("tenant/*"), Capacity::new(3.0).unwrap());
    table.answer(&sent, response(vec![told]));
    table.want("tenant/b", 1.0);
    let holding = table.holding("tenant/b");
    assert_eq!(holding.told.unwrap().safe.get(), 3.0);
    assert!(!holding.answered);
}

#[test]
fn forgets_and_gives_back() {
    let mut table = Table::leased(1);
    table.handle(Event::Forget { resource: id("db") });
    assert!(table.requests().is_empty());
    let releases = table.releases();
    assert_eq!(releases.len(), 1);
    assert_eq!(releases[0].resource_ids.as_deref(), Some(&[id("db")][..]));
    assert!(releases[0].seq > Seq::new(1).ok());
    assert_eq!(table.holder.wake_at(), Moment::NEVER);
}

#[test]
fn what_is_wanted_again_is_not_given_back() {
    let mut table = Table::leased(1);
    table.handle(Event::Forget { resource: id("db") });
    table.want("db", 1.0);
    let sent = table.next_request();
    assert_eq!(has(&sent), None);
    assert!(table.releases().is_empty());
}

#[test]
fn stops_by_giving_everything_back_and_says_no_more() {
    let mut table = Table::leased(2);
    table.pass(1.0);
    let under_way = table.requests().pop().unwrap();
    table.handle(Event::Stop);
    assert_eq!(table.capacity("db"), None);
    assert_eq!(table.releases()[0].resource_ids, None);
    table.answer(&under_way, grant_all(&under_way.request, 10.0));
    table.want("other", 1.0);
    assert_eq!(table.capacity("db"), None);
    assert_eq!(table.holder.wake_at(), Moment::NEVER);
    // Told again, it goes to the next server, with a new number.
    table.handle(Event::Stop);
    let numbers: Vec<_> = table.releases().iter().map(|release| release.seq).collect();
    assert!(numbers[0] < numbers[1]);
}

#[test]
fn has_nothing_to_give_back_that_it_never_asked_for() {
    let mut table = Table::new(1);
    table.want("db", 1.0);
    table.handle(Event::Stop);
    assert!(table.releases().is_empty());
}

#[test]
fn an_answer_to_a_claim_that_has_lapsed_meanwhile_is_not_believed() {
    let mut table = Table::leased(1);
    let refresh = table.next_request();
    assert_eq!(has(&refresh), Some(10.0));
    // A server that restarted repeats what it was told, though others may have been given it since.
    table.pass(30.0);
    table.answer(&refresh, grant_all(&refresh.request, 10.0));
    assert_eq!(table.capacity("db"), None);
    let again = table.next_request();
    assert_eq!(has(&again), None);
}
