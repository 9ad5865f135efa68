//! The state machine by example: each test tells it what happens, moment by moment.

use std::time::Duration;

use doorman_openapi::{
    Answer, Capacity, CapacityRequest, CapacityResponse, ClientId, Epoch, Moment, NodeId, Reason,
    ReleaseRequest, ResourceId, SafeCapacity, Seconds, Seq,
};

use crate::lease::{
    Demand, Effect, Event, Failure, Holder, HolderSettings, Holding, Warning,
    testing::{answer, grant, grant_all, id, response},
};

struct Sent {
    seq: Seq,
    endpoint: usize,
    request: CapacityRequest,
    timeout: Duration,
}

/// A holder, its time, and what it has said so far.
struct Table {
    holder: Holder,
    now: Moment,
    effects: Vec<Effect>,
}

impl Table {
    fn new(endpoints: usize) -> Self {
        let settings = HolderSettings {
            client_id: ClientId::new("shop-1").unwrap(),
            endpoints,
            seed: 1,
        };
        Self {
            holder: Holder::new(settings),
            now: Moment::from_nanos(1),
            effects: Vec::new(),
        }
    }

    /// One that wants 10 of `db`, and has been granted 10 for 20 s.
    fn leased(endpoints: usize) -> Self {
        let mut table = Self::new(endpoints);
        table.want("db", 10.0);
        let sent = table.next_request();
        table.answer(&sent, grant_all(&sent.request, 10.0));
        table
    }

    fn handle(&mut self, event: Event) {
        let effects = self.holder.handle(event, self.now);
        self.effects.extend(effects);
    }

    fn want(&mut self, resource: &str, wants: f64) {
        self.handle(Event::Demand {
            resource: id(resource),
            demand: Demand {
                wants: Capacity::new(wants).unwrap(),
                used: Capacity::new(1.0).unwrap(),
            },
        });
    }

    fn answer(&mut self, sent: &Sent, response: CapacityResponse) {
        self.handle(Event::Answered {
            seq: sent.seq,
            response,
        });
    }

    fn fail(&mut self, sent: &Sent, failure: Failure) {
        self.handle(Event::Failed {
            seq: sent.seq,
            failure,
        });
    }

    fn unavailable(&mut self, sent: &Sent) {
        self.fail(sent, Failure::Unavailable { retry_after: None });
    }

    fn pass(&mut self, seconds: f64) {
        self.now = self.now.after_seconds(seconds);
    }

    /// Ticks until there is no more to do now; the requests that were sent.
    fn requests(&mut self) -> Vec<Sent> {
        let before = self.effects.len();
        while self.holder.wake_at() <= self.now {
            self.handle(Event::Tick);
        }
        self.effects[before..].iter().filter_map(sent).collect()
    }

    /// Goes on in time until the next request is sent.
    fn next_request(&mut self) -> Sent {
        for _ in 0..1000 {
            if let Some(sent) = self.requests().pop() {
                return sent;
            }
            self.now = self.now.max(self.holder.wake_at());
        }
        panic!("it sends no more");
    }

    /// How long until it wakes.
    fn pause(&self) -> f64 {
        self.holder.wake_at().seconds_since(self.now)
    }

    fn holding(&self, resource: &str) -> Holding {
        self.effects
            .iter()
            .rev()
            .find_map(|effect| match effect {
                Effect::Changed {
                    resource: changed,
                    holding,
                } if changed.as_str() == resource => Some(holding.clone()),
                Effect::Changed { .. }
                | Effect::Send { .. }
                | Effect::SendRelease { .. }
                | Effect::Warn(_) => None,
            })
            .unwrap()
    }

    fn capacity(&self, resource: &str) -> Option<f64> {
        let lease = self.holding(resource).lease;
        lease.map(|lease| lease.capacity.get())
    }

    fn warnings(&self) -> Vec<&Warning> {
        self.effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Warn(warning) => Some(warning),
                Effect::Changed { .. } | Effect::Send { .. } | Effect::SendRelease { .. } => None,
            })
            .collect()
    }

    fn releases(&self) -> Vec<&ReleaseRequest> {
        self.effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::SendRelease { request, .. } => Some(request),
                Effect::Changed { .. } | Effect::Send { .. } | Effect::Warn(_) => None,
            })
            .collect()
    }
}

fn sent(effect: &Effect) -> Option<Sent> {
    match effect {
        Effect::Send {
            seq,
            endpoint,
            request,
            timeout,
        } => Some(Sent {
            seq: *seq,
            endpoint: *endpoint,
            request: request.clone(),
            timeout: *timeout,
        }),
        Effect::SendRelease { .. } | Effect::Changed { .. } | Effect::Warn(_) => None,
    }
}

fn names(sent: &Sent) -> Vec<&str> {
    let resources = sent.request.resources.iter();
    resources.map(|asked| asked.resource_id.as_str()).collect()
}

fn has(sent: &Sent) -> Option<f64> {
    sent.request.resources[0]
        .has
        .map(|held| held.capacity.get())
}

fn with(mut answer: Answer, change: impl FnOnce(&mut Answer)) -> Answer {
    change(&mut answer);
    answer
}

fn seconds(seconds: f64) -> Seconds {
    Seconds::new(seconds).unwrap()
}

// What is asked, and when.

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
            due <= latest + 1e-9 && due >= (latest * 0.95 - 1e-9).min(0.1),
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
    // A quarter of the interval lies between early requests.
    let since = table.holder.wake_at().seconds_since(table.now);
    assert!((0.249..=0.251).contains(&since), "{since}");
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

// What is held.

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
    // A server that shrinks the lease at every report is not reported to without end.
    table.answer(&reports[0], grant_all(&reports[0].request, 3.0));
    assert_eq!(table.capacity("db"), Some(3.0));
    assert!(table.pause() >= 0.1);
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

// Which answers count.

#[test]
fn only_the_answer_to_the_newest_request_counts() {
    let mut table = Table::leased(2);
    let slow = table.next_request();
    table.pass(slow.timeout.as_secs_f64());
    let again = table.requests().pop().unwrap();
    assert_eq!((names(&again), again.endpoint), (vec!["db"], 1));
    table.answer(&slow, grant_all(&slow.request, 99.0));
    assert_eq!(table.capacity("db"), Some(10.0));
    table.answer(&again, grant_all(&again.request, 11.0));
    assert_eq!(table.capacity("db"), Some(11.0));
    table.answer(&again, grant_all(&again.request, 99.0));
    assert_eq!(table.capacity("db"), Some(11.0));
}

#[test]
fn takes_answers_in_any_order_and_only_those_it_asked_for() {
    let mut table = Table::new(1);
    for resource in ["a", "b", "c"] {
        table.want(resource, 1.0);
    }
    let sent = table.next_request();
    let answers = vec![
        grant("stranger", 5.0),
        grant("c", 3.0),
        grant("a", 1.0),
        grant("a", 99.0),
    ];
    table.answer(&sent, response(answers));
    assert_eq!(table.capacity("a"), Some(1.0));
    assert_eq!(table.capacity("c"), Some(3.0));
    assert_eq!(table.capacity("b"), None, "it was left out");
    let again = table.next_request();
    assert!(!names(&again).contains(&"stranger"));
    while table.now.seconds_since(Moment::ORIGIN) < 4.1 {
        let sent = table.next_request();
        if names(&sent).contains(&"b") {
            return;
        }
        table.answer(&sent, grant_all(&sent.request, 1.0));
    }
    panic!("what was left out is asked for again within four seconds");
}

#[test]
fn refuses_another_node_until_nothing_of_the_known_one_is_left() {
    let mut table = Table::leased(2);
    let foreign = |sent: &Sent| CapacityResponse {
        node: NodeId::new("other").unwrap(),
        ..grant_all(&sent.request, 99.0)
    };
    let sent = table.next_request();
    table.answer(&sent, foreign(&sent));
    assert_eq!(table.capacity("db"), Some(10.0));
    assert!(matches!(
        table.warnings()[..],
        [Warning::ForeignNode { endpoint: 0, .. }]
    ));
    let next = table.next_request();
    assert_eq!(next.endpoint, 1, "the endpoint counts as failed");
    table.unavailable(&next);
    table.pass(30.0);
    let sent = table.next_request();
    table.answer(&sent, foreign(&sent));
    assert_eq!(table.capacity("db"), Some(99.0));
}

#[test]
fn drops_answers_of_a_lower_epoch() {
    let mut table = Table::leased(1);
    let sent = table.next_request();
    let old = CapacityResponse {
        epoch: Epoch::new(6).unwrap(),
        ..grant_all(&sent.request, 99.0)
    };
    table.answer(&sent, old);
    assert_eq!(table.capacity("db"), Some(10.0));
    assert!(
        table
            .warnings()
            .iter()
            .any(|warning| matches!(warning, Warning::StaleEpoch { .. }))
    );
    let sent = table.next_request();
    let new = CapacityResponse {
        epoch: Epoch::new(8).unwrap(),
        ..grant_all(&sent.request, 11.0)
    };
    table.answer(&sent, new);
    assert_eq!(table.capacity("db"), Some(11.0));
}

// What goes wrong.

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
