//! What is asked, and when.

use super::*;

#[test]
fn new_resources_that_come_together_go_in_one_request() {
    let mut table = Table::new(1);
    table.want("a", 1.0);
    assert!(table.requests().is_empty(), "it waits for others");
    table.pass(0.002);
    table.want("b", 2.0);
    table.pass(0.001);
    let requests = table.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(names(&requests[0]), ["a", "b"]);
}

#[test]
fn a_new_resource_does_not_wait_for_a_slow_answer() {
    let mut table = Table::new(1);
    table.want("a", 1.0);
    let slow = table.next_request();
    table.want("b", 1.0);
    let next = table.next_request();
    assert_eq!(names(&next), ["b"]);
    assert!(next.seq > slow.seq);
}

#[test]
fn asks_with_what_it_has_and_what_it_used() {
    let mut table = Table::new(1);
    table.want("db", 10.0);
    let first = table.next_request();
    assert_eq!(has(&first), None);
    assert_eq!(first.request.client_id.as_str(), "shop-1");
    assert_eq!(first.request.seq, Some(first.seq));
    table.answer(&first, grant_all(&first.request, 10.0));
    let second = table.next_request();
    assert_eq!(has(&second), Some(10.0));
    assert_eq!(second.request.resources[0].used, Capacity::new(1.0).ok());
}

#[test]
fn comes_back_after_the_refresh_interval_or_half_of_what_is_left() {
    for (length, refresh, delay, latest) in [
        (20.0, 1.0, 0.0, 1.0),
        (20.0, 15.0, 0.0, 10.0),
        (20.0, 15.0, 1.0, 9.5),
        (20.0, 1.0, 0.5, 0.5),
        (20.0, 0.0, 0.0, 0.1),
        (0.05, 0.0, 0.0, 0.1),
    ] {
        let mut table = Table::new(1);
        table.want("db", 10.0);
        let sent = table.next_request();
        table.pass(delay);
        let grant = with(grant("db", 10.0), |answer| {
            answer.gets.lease_length = seconds(length);
            answer.gets.refresh_interval = seconds(refresh);
        });
        table.answer(&sent, response(vec![grant]));
        let due = table.holding("db").refresh_at.seconds_since(table.now);
        assert!(
            due <= latest + 1e-9 && due >= (latest * 0.95 - 1e-9).max(0.1 - 1e-9),
            "{length} {refresh} {delay}: {due}"
        );
    }
}

#[test]
fn neighbours_that_are_nearly_due_ride_along() {
    let mut table = Table::new(1);
    for (resource, refresh) in [("a", 10.0), ("b", 10.5), ("c", 40.0)] {
        table.want(resource, 1.0);
        let sent = table.next_request();
        let grant = with(grant(resource, 1.0), |answer| {
            answer.gets.lease_length = seconds(300.0);
            answer.gets.refresh_interval = seconds(refresh);
        });
        table.answer(&sent, response(vec![grant]));
    }
    let mut together = names(&table.next_request())
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    together.sort_unstable();
    assert_eq!(together, ["a", "b"]);
}

#[test]
fn splits_what_is_due_into_requests_of_a_thousand() {
    let mut table = Table::new(1);
    for number in 0..2500 {
        table.want(&format!("key/{number}"), 1.0);
    }
    table.pass(0.01);
    let requests = table.requests();
    let sizes: Vec<usize> = requests.iter().map(|sent| names(sent).len()).collect();
    assert_eq!(sizes, [1000, 1000, 500]);
}

#[test]
fn asks_early_when_the_demand_outgrows_the_lease_but_not_often() {
    let mut table = Table::leased(1);
    table.pass(0.05);
    table.want("db", 11.0);
    assert!(table.pause() > 0.5, "no more than noise");
    table.want("db", 100.0);
    let early = table.next_request();
    assert_eq!(early.request.resources[0].wants.get(), 100.0);
    table.answer(&early, grant_all(&early.request, 20.0));
    table.want("db", 200.0);
    // A quarter of the interval lies between early requests, and up to a fiftieth of a second until the next of those together.
    let since = table.holder.wake_at().seconds_since(table.now);
    assert!((0.249..=0.271).contains(&since), "{since}");
}

#[test]
fn tells_each_leap_of_a_demand_soon_and_no_leap_is_small() {
    let mut table = Table::leased(1);
    let (mut asked, begin) = (0, table.now);
    // A little more with every look, up to ten thousand times as much.
    let mut wants = 10.0;
    while wants < 100_000.0 {
        table.pass(0.08);
        wants *= 1.5;
        table.want("db", wants);
        // Until what is early goes.
        table.pass(0.02);
        for sent in table.requests() {
            asked += 1;
            let granted = sent.request.resources[0].wants.get();
            table.answer(&sent, grant_all(&sent.request, granted));
        }
    }
    let seconds = table.now.seconds_since(begin);
    assert!((2.0..2.5).contains(&seconds), "{seconds}");
    // Every second look is a leap; the refreshes come besides.
    assert!((10..=14).contains(&asked), "{asked}");
}

#[test]
fn asks_at_once_when_a_demand_begins_on_next_to_nothing() {
    let mut table = Table::new(1);
    table.want("db", 0.0);
    let sent = table.next_request();
    let nothing = with(grant("db", 0.0), |answer| {
        answer.gets.refresh_interval = seconds(5.0);
    });
    table.answer(&sent, response(vec![nothing]));
    table.pass(0.05);
    table.want("db", 100.0);
    assert!((0.049..=0.071).contains(&table.pause()));
    let early = table.next_request();
    assert_eq!(early.request.resources[0].wants.get(), 100.0);
    // There is nothing for it: the same demand is no news.
    table.answer(&early, grant_all(&early.request, 0.0));
    table.want("db", 110.0);
    assert!(table.pause() > 0.5);
}

#[test]
fn does_not_ask_early_for_what_it_has() {
    let mut table = Table::new(1);
    table.want("db", 1.0);
    let sent = table.next_request();
    table.answer(&sent, grant_all(&sent.request, 1000.0));
    table.pass(0.3);
    table.want("db", 900.0);
    assert!(table.pause() > 0.5);
}

#[test]
fn demands_that_rise_each_at_its_own_time_are_told_together() {
    let mut table = Table::new(1);
    for number in 0..2_000 {
        table.want(&format!("key/{number}"), 1.0);
    }
    let minute = |sent: &Sent| {
        let mut granted = grant_all(&sent.request, 1.0);
        for answer in &mut granted.resources {
            answer.gets.lease_length = seconds(600.0);
            answer.gets.refresh_interval = seconds(60.0);
        }
        granted
    };
    table.pass(0.01);
    for sent in table.requests() {
        table.answer(&sent, minute(&sent));
    }
    table.pass(2.0);
    let (mut requests, mut told) = (0, 0);
    for number in 0..2_200 {
        // Two thousand within a second, and what is due soon after.
        if number < 2_000 {
            table.want(&format!("key/{number}"), 100.0);
        }
        for sent in table.requests() {
            requests += 1;
            told += sent.request.resources.len();
            table.answer(&sent, minute(&sent));
        }
        table.pass(0.0005);
    }
    assert_eq!(told, 2_000);
    assert!(requests <= 52, "{requests}");
}

#[test]
fn however_long_the_interval_what_is_missing_is_told_within_seconds() {
    for interval in [5.0, 60.0, 300.0] {
        let mut table = Table::new(1);
        let long = |sent: &Sent| {
            let wants = sent.request.resources[0].wants.get();
            response(vec![with(grant("db", wants), |answer| {
                answer.gets.lease_length = seconds(20.0 * interval);
                answer.gets.refresh_interval = seconds(interval);
            })])
        };
        table.want("db", 1.0);
        let mut sent = table.next_request();
        table.answer(&sent, long(&sent));
        for wants in [60.0, 100.0] {
            table.want("db", wants);
            assert!(table.pause() <= 1.3, "{interval} {wants}");
            sent = table.next_request();
            table.answer(&sent, long(&sent));
        }
        assert_eq!(table.capacity("db"), Some(100.0));
        assert!(table.pause() > 0.4 * interval, "{interval}");
    }
}

#[test]
fn a_demand_that_is_always_too_much_is_not_asked_for_more_and_more_often() {
    let mut table = Table::new(1);
    let scarce = |_: &Sent| {
        response(vec![with(grant("db", 10.0), |answer| {
            answer.gets.lease_length = seconds(1200.0);
            answer.gets.refresh_interval = seconds(60.0);
        })])
    };
    table.want("db", 10_000.0);
    let mut requests = 0;
    for look in 0..6_000 {
        // Ten minutes, and a demand that goes up and down by a half.
        table.want("db", 10_000.0 + 5_000.0 * (f64::from(look) / 7.0).sin());
        for sent in table.requests() {
            requests += 1;
            table.answer(&sent, scarce(&sent));
        }
        table.pass(0.1);
    }
    // Ten intervals, each with a few rises above what was said at its beginning.
    assert!(requests <= 50, "{requests}");
}

#[test]
fn what_was_only_a_burst_is_taken_back_once_and_soon() {
    let mut table = Table::new(1);
    let minute = |sent: &Sent| {
        let wants = sent.request.resources[0].wants.get();
        response(vec![with(grant("db", wants), |answer| {
            answer.gets.lease_length = seconds(1200.0);
            answer.gets.refresh_interval = seconds(60.0);
        })])
    };
    table.want("db", 1.0);
    let sent = table.next_request();
    table.answer(&sent, minute(&sent));
    table.pass(5.0);
    table.want("db", 100.0);
    let burst = table.next_request();
    table.answer(&burst, minute(&burst));
    assert!(table.pause() > 40.0);
    table.want("db", 60.0);
    assert!(table.pause() > 40.0, "it has not fallen by half");
    table.want("db", 20.0);
    assert!((1.0..1.5).contains(&table.pause()));
    let fallen = table.next_request();
    table.answer(&fallen, minute(&fallen));
    assert_eq!(table.capacity("db"), Some(20.0));
    let smaller = table.next_request();
    assert_eq!(
        has(&smaller),
        Some(20.0),
        "as every smaller lease it is reported"
    );
    table.answer(&smaller, minute(&smaller));
    // It goes on falling, and that can wait.
    table.want("db", 1.0);
    assert!(table.pause() > 40.0);
}
