//! Polls for hints.

use doorman_openapi::{Hint, HintsResponse, Reason, RulesResponse, Seq, paths};
use http::{Response, header};
use serde_json::json;
use tokio::sync::oneshot;

use super::*;
use crate::rules::testing::{rule, rules_response};

fn none(after: u64) -> HintsResponse {
    HintsResponse {
        node: NodeId::new("root").unwrap(),
        epoch: Epoch::new(7).unwrap(),
        after,
        refresh: Vec::new(),
        all: false,
        rules: false,
        leaving: false,
    }
}

fn to_refresh(after: u64, seq: Seq) -> HintsResponse {
    let resource_id = id("db");
    let seq = Some(seq);
    HintsResponse {
        refresh: vec![Hint { resource_id, seq }],
        ..none(after)
    }
}

/// Answers the next poll when told to. Later polls hang.
fn next_poll(plane: &Plane) -> impl FnOnce(HintsResponse) + use<> {
    let (answer, response) = oneshot::channel();
    let mut response = Some(response);
    plane.set_hints(move |_| response.take().map_or(Reply::Hang, Reply::Later));
    move |hints| {
        let body = serde_json::to_vec(&hints).unwrap();
        answer.send(Response::new(body.into())).unwrap();
    }
}

/// Answers polls with no hints at the end of their wait.
fn waits(plane: &Plane) {
    plane.set_hints(|_| {
        let (answer, response) = oneshot::channel();
        tokio::spawn(async move {
            sleep(25 * SECOND).await;
            let body = serde_json::to_vec(&none(3)).unwrap();
            answer.send(Response::new(body.into())).ok();
        });
        Reply::Later(response)
    });
}

fn rate_of_polls(plane: &Plane, before: usize, seconds: f64) -> f64 {
    (plane.hint_polls().len() - before) as f64 / seconds
}

/// Leases `db` of a plane that grants 10, refreshed every second.
async fn leased(builder: Builder, plane: &Plane) -> Doorman {
    let (doorman, _worker) = run(builder.idle_after(3600 * SECOND), plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    doorman
}

#[tokio::test(start_paused = true)]
async fn hint_refreshes_a_lease_and_is_confirmed() {
    let plane = Plane::new(grants(10.0));
    let answer = next_poll(&plane);
    let doorman = leased(builder().service("a b"), &plane).await;
    assert!(plane.last_request().polls);
    let polls = plane.hint_polls();
    assert_eq!(polls.len(), 1);
    let query = &polls[0].query;
    assert!(query.starts_with("client_id=a%20b%2D"), "{query}");
    let run = plane.last_request().run.unwrap();
    let end = format!("&run={run}&after=0&wait=25");
    assert!(query.ends_with(&end), "{query}");

    plane.set(grants(4.0));
    answer(to_refresh(9, plane.last_request().seq.unwrap()));
    sleep(Duration::from_millis(2)).await;
    assert_eq!(held(&doorman, "db"), Some(4.0));
    let polls = plane.hint_polls();
    assert_eq!(polls.len(), 2);
    assert!(polls[1].query.ends_with("&after=9&wait=25"));
}

#[tokio::test(start_paused = true)]
async fn hinted_refresh_reports_current_demand() {
    let plane = Plane::new(|call| {
        let request = call.capacity().unwrap();
        let mut granted = grant_all(&request, 1_000.0);
        granted.resources[0].reason = Reason::Granted;
        granted.into()
    });
    let answer = next_poll(&plane);
    let (doorman, _worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    take(&rate, 100);
    sleep(15 * SECOND).await;
    let wants = || plane.last_request().resources[0].wants.get();
    assert_eq!(wants(), 100.0, "a bucket for the burst");
    answer(to_refresh(9, plane.last_request().seq.unwrap()));
    sleep(Duration::from_millis(2)).await;
    assert!(wants() < 1.0, "{}", wants());

    // The next burst counts again.
    take(&rate, 100);
    sleep(15 * SECOND).await;
    assert_eq!(wants(), 100.0);
}

#[tokio::test(start_paused = true)]
async fn due_refresh_waits_until_demand_is_measured() {
    let plane = Plane::new(grants(100.0));
    let answer = next_poll(&plane);
    let (doorman, _worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    let wants = || plane.last_request().resources[0].wants.get();
    let seq = || plane.last_request().seq.unwrap();
    let until = clock::now().after(5 * SECOND);
    while clock::now() < until {
        take(&rate, 1);
        sleep(Duration::from_millis(10)).await;
    }
    assert!((90.0..110.0).contains(&wants()), "{}", wants());
    let last = seq();
    while seq() == last {
        take(&rate, 1);
        sleep(Duration::from_millis(10)).await;
    }
    let last = seq();
    for _ in 0..85 {
        take(&rate, 1);
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(seq(), last, "the next refresh is due within 150 ms");
    answer(to_refresh(9, last));
    while seq() == last {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(wants() < 10.0, "{}", wants());
}

#[tokio::test(start_paused = true)]
async fn one_poll_stays_open_while_leases_are_wanted() {
    let plane = Plane::new(grants(10.0));
    waits(&plane);
    let (doorman, _worker) = run(builder().idle_after(200 * SECOND), &plane);
    sleep(30 * SECOND).await;
    assert!(plane.hint_polls().is_empty(), "nothing is leased");
    let rate = doorman.rate("db");
    sleep(100 * SECOND).await;
    let polls = plane.hint_polls().len();
    assert!((4..=5).contains(&polls), "{polls}");
    drop(rate);
}

#[tokio::test(start_paused = true)]
async fn no_poll_is_opened_when_switched_off() {
    let plane = Plane::new(grants(10.0));
    let _doorman = leased(builder().hints(false), &plane).await;
    sleep(60 * SECOND).await;
    assert!(plane.hint_polls().is_empty());
    assert!(!plane.last_request().polls);
}

#[tokio::test(start_paused = true)]
async fn broken_poll_is_opened_again_within_one_interval() {
    let mut pauses = Vec::new();
    for _ in 0..20 {
        let plane = Plane::new(grants(10.0));
        let mut broken = false;
        plane.set_hints(move |_| {
            let first = !std::mem::replace(&mut broken, true);
            if first {
                Reply::Disconnect
            } else {
                Reply::Hang
            }
        });
        let _doorman = leased(builder(), &plane).await;
        sleep(5 * SECOND).await;
        let polls = plane.hint_polls();
        assert_eq!(polls.len(), 2);
        pauses.push(polls[1].at.seconds_since(polls[0].at));
    }
    assert!(pauses.iter().all(|pause| *pause <= 5.0));
    assert!(pauses.iter().any(|pause| *pause > 0.1));
}

#[tokio::test(start_paused = true)]
async fn polls_that_are_always_cut_become_rare() {
    let plane = Plane::new(grants(10.0));
    plane.set_hints(|_| Reply::json(504, &json!({})));
    let doorman = leased(builder(), &plane).await;
    sleep(300 * SECOND).await;
    let before = plane.hint_polls().len();
    sleep(600 * SECOND).await;
    let rate = rate_of_polls(&plane, before, 600.0);
    assert!(rate < 1.0 / 30.0 + 0.002, "{rate}");
    assert_eq!(held(&doorman, "db"), Some(10.0));
}

#[tokio::test(start_paused = true)]
async fn older_server_is_polled_every_few_minutes() {
    for status in [404, 405, 501] {
        let plane = Plane::new(grants(10.0));
        plane.set_hints(move |_| Reply::json(status, &json!({})));
        let doorman = leased(builder(), &plane).await;
        sleep(600 * SECOND).await;
        let polls = plane.hint_polls().len();
        assert!((2..=5).contains(&polls), "{status}: {polls}");
        assert_eq!(held(&doorman, "db"), Some(10.0));
    }
}

#[tokio::test(start_paused = true)]
async fn polls_answered_at_once_are_paced() {
    let seq = Seq::ZERO;
    // Empty, with a void hint, and from another control plane.
    let foreign = HintsResponse {
        node: NodeId::new("other").unwrap(),
        ..none(1)
    };
    for (hints, most) in [(none(1), 0.2), (to_refresh(1, seq), 20.5), (foreign, 0.2)] {
        let plane = Plane::new(grants(10.0));
        plane.set_hints(move |_| Reply::json(200, &hints));
        let _doorman = leased(builder(), &plane).await;
        sleep(10 * SECOND).await;
        let (polls, calls) = (plane.hint_polls().len(), plane.calls().len());
        sleep(100 * SECOND).await;
        let rate = rate_of_polls(&plane, polls, 100.0);
        assert!(rate > 0.01 && rate <= most, "{rate}");
        assert!(plane.calls().len() - calls < 120, "refreshes as without");
    }
}

#[tokio::test(start_paused = true)]
async fn poll_follows_one_redirect_to_a_configured_server() {
    let plane = Plane::new(grants(10.0));
    let redirect = |to: &'static str| {
        let response = Response::builder().status(307);
        let response = response.header(header::LOCATION, format!("{to}/v1/hints"));
        Reply::Response(response.body(bytes::Bytes::new()).unwrap())
    };
    plane.set_hints(move |call| match call.host.as_str() {
        "a" => redirect("http://b"),
        _ => Reply::Hang,
    });
    let _doorman = leased(builder(), &plane).await;
    let hosts = || -> Vec<_> { plane.hint_polls().into_iter().map(|it| it.host).collect() };
    assert_eq!(hosts(), ["a", "b"]);

    let plane = Plane::new(grants(10.0));
    plane.set_hints(move |call| {
        redirect(if call.host == "a" {
            "http://b"
        } else {
            "http://a"
        })
    });
    let _doorman = leased(builder(), &plane).await;
    sleep(300 * SECOND).await;
    let before = plane.hint_polls().len();
    sleep(600 * SECOND).await;
    let rate = rate_of_polls(&plane, before, 600.0);
    assert!(rate < 0.08, "servers that redirect to each other: {rate}");
}

#[tokio::test(start_paused = true)]
async fn poll_follows_lease_requests_to_another_server() {
    let plane = Plane::new(grants(10.0));
    let _doorman = leased(builder(), &plane).await;
    let mut leases = grants(10.0);
    plane.set(move |call| match call.host.as_str() {
        "a" => Reply::Disconnect,
        _ => leases(call),
    });
    sleep(3 * SECOND).await;
    let hosts: Vec<_> = plane.hint_polls().into_iter().map(|it| it.host).collect();
    assert_eq!(hosts, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn leases_are_refreshed_at_next_server_when_one_leaves() {
    let plane = Plane::new(grants(10.0));
    let answer = next_poll(&plane);
    let _doorman = leased(builder(), &plane).await;
    let calls = plane.calls().len();
    answer(HintsResponse {
        leaving: true,
        ..none(1)
    });
    sleep(Duration::from_millis(10)).await;
    assert_eq!(plane.calls().len(), calls, "nobody is in a hurry");
    sleep(SECOND).await;
    assert_eq!(plane.calls()[calls].host, "b");
    assert_eq!(plane.hint_polls().last().unwrap().host, "b");
}

#[tokio::test(start_paused = true)]
async fn master_is_polled_as_soon_as_it_answers() {
    let leaving = HintsResponse {
        leaving: true,
        ..none(0)
    };
    let slowly = |response: Response<bytes::Bytes>| {
        let (answer, later) = oneshot::channel();
        tokio::spawn(async move {
            sleep(Duration::from_millis(100)).await;
            answer.send(response).unwrap();
        });
        Reply::Later(later)
    };
    let redirect = || {
        let mut problem = Problem::new(ProblemType::Unavailable, "not the master");
        let master_address = Some("http://b".to_owned());
        problem.mastership = Some(Mastership { master_address });
        let body = serde_json::to_vec(&problem).unwrap().into();
        Response::builder().status(307).body(body).unwrap()
    };
    // Behind one address, the second connection leads to the master.
    for hosts in [["a", "b"], ["a", "a"]] {
        // The wait is random.
        for _ in 0..10 {
            let [first, second] = hosts;
            let builder = if first == second {
                Doorman::builder("http://a")
            } else {
                builder()
            };
            let plane = Plane::new(move |call| match call.capacity() {
                Some(request) if first == second => {
                    let granted = serde_json::to_vec(&grant_all(&request, 10.0)).unwrap();
                    slowly(Response::new(granted.into()))
                }
                Some(_) if call.host == first => slowly(redirect()),
                _ => grants(10.0)(call),
            });
            let mut polls = 0;
            let leaving = leaving.clone();
            plane.set_hints(move |_| {
                polls += 1;
                match polls {
                    1 => Reply::json(200, &leaving),
                    _ => Reply::Hang,
                }
            });
            let (doorman, _worker) = run(builder, &plane);
            let _rate = doorman.rate("db");
            doorman.ready(SECOND).await.unwrap();
            sleep(Duration::from_millis(2)).await;
            let polled: Vec<_> = plane.hint_polls().into_iter().map(|it| it.host).collect();
            assert_eq!(polled, hosts);
        }
    }
}

fn with_rules(version: &'static str) -> impl FnMut(&Received) -> Reply + Send + 'static {
    with_rules_of("api", version)
}

fn with_rules_of(
    resource: &str,
    version: &'static str,
) -> impl FnMut(&Received) -> Reply + Send + 'static {
    let rules: RulesResponse = rules_response(version, [rule("all", resource)]);
    let mut leases = grants(10.0);
    move |call| match call.path.as_str() {
        paths::RULES => Reply::json(200, &rules),
        _ => leases(call),
    }
}

#[tokio::test(start_paused = true)]
async fn changed_rules_are_fetched_within_half_a_second() {
    // Without requests nothing of the second one is leased.
    for resource in ["api", "tenant/{header:x-tenant}"] {
        let plane = Plane::new(with_rules_of(resource, "1"));
        let answer = next_poll(&plane);
        let (doorman, _worker) = run(builder(), &plane);
        let _layer = doorman.rules();
        doorman.ready(SECOND).await.unwrap();
        sleep(SECOND).await;
        plane.set(with_rules_of(resource, "2"));
        answer(HintsResponse {
            rules: true,
            ..none(1)
        });
        sleep(Duration::from_millis(501)).await;
        let version = doorman.snapshot().rules.unwrap().version;
        assert_eq!(version.as_deref(), Some("2"), "{resource}");
    }
}

#[tokio::test(start_paused = true)]
async fn endless_rule_hints_cause_two_fetches_a_second() {
    let plane = Plane::new(with_rules("1"));
    let (doorman, _worker) = run(builder(), &plane);
    let _layer = doorman.rules();
    plane.set_hints(|_| {
        let rules = true;
        Reply::json(200, &HintsResponse { rules, ..none(1) })
    });
    sleep(10 * SECOND).await;
    let calls = plane.calls().into_iter();
    let fetches = calls.filter(|call| call.path == paths::RULES).count();
    assert!((2..=21).contains(&fetches), "{fetches}");
}
