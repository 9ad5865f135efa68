//! Outcomes of requests, as the control plane hears of them.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Ready, ready},
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use bytes::Bytes;
use doorman_openapi::{
    Capacity, Outcomes, RequestCount, ResourceRequest, RuleOutcomes, Seconds, Seen, TargetHeaders,
    paths,
};
use http::{Request, Response};
use http_body_util::Full;
use tower::{Service, ServiceExt as _};

use super::*;
use crate::{
    Outcome, OutcomeReport, ResourceUse,
    limit::IntoLimits,
    rules::testing::{rule, rules_response},
};

/// A target whose responses are scripted; else it serves.
#[derive(Debug, Clone, Default)]
struct Target(Arc<Mutex<VecDeque<Scripted>>>);

type Scripted = Result<Response<()>, &'static str>;

impl Target {
    fn next(&self, status: u16, headers: &[(&str, &str)]) {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        let response = response.body(()).unwrap();
        self.0.lock().unwrap().push_back(Ok(response));
    }

    fn next_fails(&self) {
        self.0.lock().unwrap().push_back(Err("timed out"));
    }
}

impl Service<Request<()>> for Target {
    type Response = Response<Full<Bytes>>;
    type Error = &'static str;
    type Future = Ready<Result<Self::Response, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let next = self.0.lock().unwrap().pop_front();
        let response = next.unwrap_or_else(|| Ok(Response::new(())));
        ready(response.map(|it| it.map(|()| Full::from("body"))))
    }
}

/// A process with limits before a target.
struct Client {
    plane: Plane,
    doorman: Doorman,
    target: Target,
    service: LimitService<Target>,
}

impl Client {
    fn start(
        handler: impl FnMut(&Received) -> Reply + Send + 'static,
        limits: impl IntoLimits,
    ) -> Self {
        begin(1);
        let plane = Plane::new(handler);
        let (doorman, _) = run(builder(), &plane);
        let target = Target::default();
        let service = doorman.layer(limits).unwrap().layer(target.clone());
        Self {
            plane,
            doorman,
            target,
            service,
        }
    }

    /// The same with early reports.
    fn reporting(limits: impl IntoLimits) -> Self {
        Self::start(reporting(10.0), limits)
    }

    async fn ready(self) -> Self {
        self.doorman.ready(SECOND).await.unwrap();
        self
    }

    async fn send(&self) -> Option<u16> {
        let response = self.service.clone().oneshot(Request::new(())).await;
        Some(response.ok()?.status().as_u16())
    }

    /// Sends a request that the target answers so.
    async fn send_for(&self, status: u16, headers: &[(&str, &str)]) {
        self.target.next(status, headers);
        assert_eq!(self.send().await, Some(status));
    }

    /// The newest request for a resource.
    fn asked(&self, resource: &str) -> ResourceRequest {
        let requests = self.plane.last_requests(usize::MAX);
        let mut asked = requests.into_iter().flat_map(|it| it.resources);
        asked.find(|it| it.resource_id == id(resource)).unwrap()
    }

    /// The next report about a resource.
    async fn reported(&self, resource: &str) -> Outcomes {
        sleep(2 * SECOND).await;
        *self.asked(resource).outcomes.unwrap()
    }

    /// When the lease requests were sent, in seconds since the first one that is not before.
    fn report_times(&self, since: f64) -> Vec<f64> {
        let calls = self.plane.calls();
        let requests = calls.iter().filter(|it| it.capacity().is_some());
        let seconds = requests.map(|it| it.at.seconds_since(doorman_openapi::Moment::ORIGIN));
        seconds.filter(|at| *at >= since).collect()
    }
}

fn now() -> f64 {
    clock::now().seconds_since(doorman_openapi::Moment::ORIGIN)
}

/// Grants so much, refreshed each second, and wants early reports.
fn reporting(capacity: f64) -> impl FnMut(&Received) -> Reply + Send + 'static {
    move |call| match call.capacity() {
        Some(request) => {
            let mut response = grant_all(&request, capacity);
            for resource in &mut response.resources {
                resource.report = true;
                resource.gets.effective = Capacity::new(40.0).ok();
            }
            response.into()
        }
        None => Reply::json(200, &serde_json::json!({})),
    }
}

/// A gauge of so many units.
fn units(capacity: f64) -> impl FnMut(&Received) -> Reply + Send + 'static {
    move |call| match call.capacity() {
        Some(request) => {
            let mut response = grant_all(&request, capacity);
            for resource in &mut response.resources {
                resource.unit = Some(doorman_openapi::Unit::Gauge);
                resource.per = None;
            }
            response.into()
        }
        None => Reply::json(200, &serde_json::json!({})),
    }
}

fn counts(outcomes: &Outcomes) -> [u64; 3] {
    [outcomes.ok, outcomes.overloaded, outcomes.failed].map(RequestCount::get)
}

#[tokio::test(start_paused = true)]
async fn layer_counts_outcomes_by_itself() {
    let client = Client::start(grants(10.0), Limit::rate("db")).ready().await;
    assert_eq!(client.reported("db").await, Outcomes::default());
    for status in [200, 404, 429, 500] {
        client.send_for(status, &[]).await;
    }
    client.send_for(503, &[("retry-after", "1")]).await;
    client.target.next_fails();
    assert_eq!(client.send().await, None);
    let outcomes = client.reported("db").await;
    assert_eq!(counts(&outcomes), [2, 2, 2]);
    assert_eq!((outcomes.refused.get(), outcomes.ok_seconds), (0.0, None));
    client.send_for(200, &[]).await;
    assert_eq!(counts(&client.reported("db").await), [3, 2, 2], "totals");
}

#[tokio::test(start_paused = true)]
async fn refusals_and_canceled_requests_have_no_outcome() {
    let limit = Limit::rate("db").burst(Duration::ZERO);
    let client = Client::start(grants(1.0), limit).ready().await;
    assert_eq!(client.send().await, Some(200));
    for _ in 0..3 {
        assert_eq!(client.send().await, Some(429));
    }
    let outcomes = client.reported("db").await;
    assert_eq!(counts(&outcomes), [1, 0, 0]);
    assert_eq!(outcomes.refused.get(), 3.0);

    let mut service = client.service.clone();
    drop(service.call(Request::new(())));
    assert_eq!(counts(&client.reported("db").await), [1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn refusal_of_an_inner_layer_has_no_outcome() {
    let client = Client::start(grants(10.0), Limit::rate("inner").burst(Duration::ZERO));
    // Its own rule does not see the refusal.
    let outer = Limit::rate("outer").classify_by(|response| match response {
        Some(head) if head.status == 429 => Outcome::Overloaded,
        other => Outcome::of(other),
    });
    let outer = client.doorman.layer(outer).unwrap();
    let service = outer.layer(client.service.clone());
    client.doorman.ready(SECOND).await.unwrap();
    let mut refused_by = Vec::new();
    for _ in 0..2 {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        let refusal = response.extensions().get::<crate::Refusal>();
        refused_by.push(refusal.map(|it| it.limit().to_owned()));
    }
    assert_eq!(refused_by, [None, Some("inner".to_owned())]);
    assert_eq!(counts(&client.reported("outer").await), [1, 0, 0]);
    assert_eq!(counts(&client.asked("inner").outcomes.unwrap()), [1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn limits_of_a_request_count_it_once_for_each_resource() {
    let limits = [
        Limit::rate("db"),
        Limit::rate("api"),
        Limit::rate("db").named("second"),
    ];
    let client = Client::start(grants(10.0), limits).ready().await;
    client.send_for(429, &[]).await;
    client.send_for(200, &[]).await;
    assert_eq!(counts(&client.reported("db").await), [1, 1, 0]);
    assert_eq!(counts(&client.asked("api").outcomes.unwrap()), [1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn each_key_has_its_own_outcomes() {
    let limit = Limit::rate(Key::header("x-tenant").unwrap());
    let client = Client::start(grants(10.0), limit);
    for (tenant, status) in [("a", 200), ("b", 429), ("a", 200)] {
        client.target.next(status, &[]);
        let request = Request::builder().header("x-tenant", tenant).body(());
        let response = client.service.clone().oneshot(request.unwrap()).await;
        assert_eq!(response.unwrap().status().as_u16(), status);
    }
    assert_eq!(counts(&client.reported("x-tenant/a").await), [2, 0, 0]);
    let other = client.asked("x-tenant/b").outcomes.unwrap();
    assert_eq!(counts(&other), [0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn program_classifies_responses() {
    let limit = Limit::rate("db").classify_by(|response| match response {
        None => Outcome::None,
        Some(head) if head.status == 403 => Outcome::Overloaded,
        other => Outcome::of(other),
    });
    let client = Client::start(grants(10.0), limit).ready().await;
    for status in [200, 403, 403, 502] {
        client.send_for(status, &[]).await;
    }
    client.target.next_fails();
    client.send().await;
    assert_eq!(counts(&client.reported("db").await), [1, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn delayed_request_has_an_outcome() {
    let max_delay = 5 * SECOND;
    let limit = Limit::rate("db")
        .burst(Duration::ZERO)
        .on_limit(crate::OnLimit::Delay { max_delay });
    let client = Client::start(grants(1.0), limit).ready().await;
    for _ in 0..3 {
        assert_eq!(client.send().await, Some(200));
    }
    assert_eq!(counts(&client.reported("db").await), [3, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn longest_pause_is_told_as_what_is_left_of_it() {
    let client = Client::start(grants(10.0), Limit::rate("db")).ready().await;
    let begin = now();
    for after in ["5", "60", "7"] {
        client.send_for(429, &[("retry-after", after)]).await;
    }
    // Not of a response that is no overload, or says nothing that can be read.
    client.send_for(200, &[("retry-after", "900")]).await;
    client.send_for(429, &[("retry-after", "soon")]).await;
    client.reported("db").await;
    let sent = client.report_times(begin).pop().unwrap();
    let pause = client.asked("db").pause.unwrap().get();
    let expected = begin + 60.0 - sent;
    assert!((pause - expected).abs() < 0.01, "{pause} {expected}");

    sleep(60 * SECOND).await;
    assert_eq!(client.asked("db").pause, None, "it is over");
    client.send_for(503, &[("retry-after", "100000")]).await;
    client.reported("db").await;
    let pause = client.asked("db").pause.unwrap().get();
    assert!((3_595.0..=3_600.0).contains(&pause), "{pause}");
}

#[tokio::test(start_paused = true)]
async fn headers_of_the_target_are_told_once() {
    let limit = Limit::rate("db").headers_from(TargetHeaders::OpenaiTokens);
    let client = Client::start(grants(10.0), limit).ready().await;
    let of = |remaining: &'static str| {
        [
            ("x-ratelimit-remaining-tokens", remaining),
            ("x-ratelimit-reset-tokens", "1m30s"),
        ]
    };
    client.reported("db").await;
    assert_eq!(client.asked("db").seen, None);
    let begin = now();
    client.send_for(200, &of("150000")).await;
    client.send_for(429, &of("149000")).await;
    client.send_for(200, &of("few")).await;
    sleep(1100 * SECOND / 1000).await;
    let sent = client.report_times(begin)[0];
    let requests = client.plane.last_requests(2);
    let mut seen = requests
        .iter()
        .filter_map(|it| it.resources[0].seen.as_deref());
    let first = seen.next().unwrap();
    assert_eq!(first.remaining.get(), 149_000.0);
    let expected = begin + 90.0 - sent;
    let reset = first.reset.get();
    assert!((reset - expected).abs() < 0.01, "{reset} {expected}");
    client.reported("db").await;
    assert_eq!(client.asked("db").seen, None, "nothing new");
}

#[tokio::test(start_paused = true)]
async fn overloads_are_reported_early_until_there_are_none() {
    let client = Client::reporting(Limit::rate("db")).ready().await;
    sleep(SECOND / 4).await;
    let begin = now();
    client.send_for(429, &[]).await;
    sleep(SECOND / 4).await;
    client.send_for(429, &[]).await;
    client.send_for(429, &[]).await;
    sleep(5 * SECOND).await;
    let times = client.report_times(begin);
    let since: Vec<_> = times.iter().map(|at| at - begin).collect();
    assert!(since[0] < 0.01, "{since:?}");
    assert!((since[1] - since[0] - 0.5).abs() < 0.01, "{since:?}");
    assert!((since[2] - since[1] - 0.5).abs() < 0.01, "{since:?}");
    assert!(since[3] - since[2] > 0.9, "{since:?}");
    assert_eq!(counts(&client.asked("db").outcomes.unwrap()), [0, 3, 0]);
    let has = client.asked("db").has.unwrap();
    assert_eq!(has.effective.unwrap().get(), 40.0);

    // The first one after a while is reported early again.
    let begin = now();
    client.send_for(429, &[]).await;
    sleep(SECOND / 10).await;
    assert_eq!(client.report_times(begin).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn outcomes_change_no_interval_unless_the_control_plane_wants_it() {
    let client = Client::start(grants(10.0), Limit::rate("db")).ready().await;
    sleep(SECOND / 4).await;
    let begin = now();
    for _ in 0..5 {
        client.send_for(429, &[]).await;
        sleep(SECOND / 2).await;
    }
    let times = client.report_times(begin);
    assert!(times.len() <= 3, "{times:?}");
    // Neither by outcomes of other kinds, if it does.
    let client = Client::reporting(Limit::rate("db")).ready().await;
    sleep(SECOND / 4).await;
    let begin = now();
    for status in [200, 500, 503, 404, 502] {
        client.send_for(status, &[]).await;
        sleep(SECOND / 2).await;
    }
    let times = client.report_times(begin);
    assert!(times.len() <= 3, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn totals_begin_anew_when_an_idle_resource_is_wanted_again() {
    begin(1);
    let plane = Plane::new(grants(10.0));
    let (doorman, _) = run(builder().idle_after(3 * SECOND), &plane);
    let rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    take(&rate, 1);
    for outcome in [
        Outcome::Ok,
        Outcome::Overloaded,
        Outcome::Failed,
        Outcome::None,
    ] {
        rate.outcome(outcome);
    }
    sleep(2 * SECOND).await;
    let outcomes = plane.last_request().resources[0].outcomes.clone().unwrap();
    assert_eq!(counts(&outcomes), [1, 1, 1]);
    sleep(10 * SECOND).await;
    assert_eq!(plane.releases().len(), 1);
    rate.wait(Cost::ONE).await.unwrap();
    rate.outcome(Outcome::Overloaded);
    sleep(2 * SECOND).await;
    let outcomes = plane.last_request().resources[0].outcomes.clone().unwrap();
    assert_eq!(counts(&outcomes), [0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn handler_states_the_outcome_of_its_charge_before_the_layer() {
    begin(1);
    let plane = Plane::new(grants(10.0));
    let (doorman, _) = run(builder(), &plane);
    let handler = tower::service_fn(|request: Request<()>| {
        let charge: &crate::Charge = request.extensions().get().unwrap();
        charge.outcome(Outcome::Overloaded);
        charge.clone().outcome(Outcome::Failed);
        ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    });
    let limits = [Limit::rate("db").settle_in_handler(), Limit::rate("api")];
    let service = doorman.layer(limits).unwrap().layer(handler);
    doorman.ready(SECOND).await.unwrap();
    service.oneshot(Request::new(())).await.unwrap();
    let charge = doorman.rate("direct").charge(Cost::ONE).await.unwrap();
    charge.outcome(Outcome::Ok);
    charge.settle(0.0);
    sleep(2 * SECOND).await;
    let requests = plane.last_requests(usize::MAX);
    let of = |resource: &str| {
        let mut asked = requests.iter().flat_map(|it| &it.resources);
        let asked = asked.find(|it| it.resource_id == id(resource)).unwrap();
        counts(asked.outcomes.as_ref().unwrap())
    };
    assert_eq!(of("db"), [0, 1, 0]);
    assert_eq!(of("api"), [1, 0, 0]);
    assert_eq!(of("direct"), [1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn units_times_seconds_of_served_requests_are_counted() {
    let client = Client::start(
        units(10.0),
        Limit::gauge("tx").cost(Cost::new(2.0).unwrap()),
    );
    client.doorman.ready(SECOND).await.unwrap();
    let response = client.service.clone().oneshot(Request::new(())).await;
    client.target.next(500, &[]);
    let failed = client.service.clone().oneshot(Request::new(())).await;
    sleep(3 * SECOND).await;
    assert_eq!(counts(&client.asked("tx").outcomes.unwrap()), [0, 0, 1]);
    // The response ends with its body.
    drop((response, failed));
    let outcomes = client.reported("tx").await;
    assert_eq!(counts(&outcomes), [1, 0, 1]);
    assert_eq!(outcomes.ok_seconds.unwrap().get(), 6.0);

    // For direct use, the first outcome that is stated counts.
    let gauge = client.doorman.gauge("tx");
    let permit = gauge.acquire().await.unwrap();
    let silent = gauge.acquire().await.unwrap();
    sleep(SECOND).await;
    permit.outcome(Outcome::Ok);
    permit.clone().outcome(Outcome::Failed);
    drop((permit, silent));
    let outcomes = client.reported("tx").await;
    assert_eq!(counts(&outcomes), [2, 0, 1]);
    assert_eq!(outcomes.ok_seconds.unwrap().get(), 7.0);
}

#[tokio::test(start_paused = true)]
async fn units_of_an_overloaded_request_return_after_a_pause() {
    let client = Client::start(
        units(1.0),
        Limit::gauge("tx").wait_for_lease(Duration::ZERO),
    );
    client.doorman.ready(SECOND).await.unwrap();
    client.send_for(429, &[]).await;
    assert_eq!(counts(&client.reported("tx").await), [0, 1, 0]);
    client.send_for(429, &[]).await;
    for _ in 0..9 {
        assert_eq!(client.send().await, Some(429), "by the limit");
        sleep(SECOND / 100).await;
    }
    sleep(SECOND / 50).await;
    assert_eq!(client.send().await, Some(200));
    // Those of other requests return at once.
    for status in [200, 500, 200] {
        client.send_for(status, &[]).await;
    }
    let outcomes = client.reported("tx").await;
    assert_eq!(counts(&outcomes), [3, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn request_that_waits_gets_the_units_of_an_overloaded_one() {
    begin(1);
    let plane = Plane::new(units(1.0));
    let (doorman, worker) = run(builder(), &plane);
    let gauge = doorman.gauge("tx");
    let permit = gauge.acquire().await.unwrap();
    permit.outcome(Outcome::Overloaded);
    drop(permit);
    let since = now();
    let permit = gauge.acquire().await.unwrap();
    let waited = now() - since;
    assert!((waited - 0.1).abs() < 0.02, "{waited}");

    // Without a worker they return at once.
    doorman.clone().shutdown().await.unwrap();
    worker.await.unwrap();
    permit.outcome(Outcome::Overloaded);
    drop(permit);
    let in_flight = doorman.snapshot().limits[0].in_flight;
    assert_eq!(in_flight, Some(0.0));
}

#[tokio::test(start_paused = true)]
async fn shutdown_releases_the_lease_of_units_that_cool_down() {
    begin(1);
    let plane = Plane::new(units(2.0));
    let (doorman, worker) = run(builder(), &plane);
    let gauge = doorman.gauge("tx");
    let [first, second] = [
        gauge.acquire().await.unwrap(),
        gauge.acquire().await.unwrap(),
    ];
    first.outcome(Outcome::Overloaded);
    second.outcome(Outcome::Overloaded);
    // The worker knows of the first one only.
    drop(first);
    sleep(Duration::from_millis(1)).await;
    drop(second);
    doorman.shutdown().await.unwrap();
    worker.await.unwrap();
    assert_eq!(plane.releases()[0].resource_ids, None, "of all resources");
}

#[tokio::test(start_paused = true)]
async fn limit_of_the_process_alone_counts_outcomes() {
    let limit = Limit::local(crate::per_second(10));
    let client = Client::start(grants(10.0), limit);
    client.send_for(200, &[]).await;
    client.send_for(429, &[]).await;
    let outcomes = client.doorman.snapshot().limits[0].outcomes;
    assert_eq!((outcomes.ok, outcomes.overloaded), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn rule_names_the_headers_of_the_target() {
    begin(1);
    let mut limited = rule("partner", "db");
    let headers = TargetHeaders::Standard;
    limited.outcomes = Some(RuleOutcomes { headers });
    let rules = rules_response("1", [limited]);
    let mut leases = grants(10.0);
    let plane = Plane::new(move |call| match call.path.as_str() {
        paths::RULES => Reply::json(200, &rules),
        _ => leases(call),
    });
    let (doorman, _) = run(builder(), &plane);
    let target = Target::default();
    let layer = doorman.layer([]).unwrap().and_rules();
    let service = layer.layer(target.clone());
    doorman.ready(SECOND).await.unwrap();
    target.next(429, &[("ratelimit", r#""minute";r=50;t=30"#)]);
    service.oneshot(Request::new(())).await.unwrap();
    sleep(1100 * SECOND / 1000).await;
    let requests = plane.last_requests(2);
    let asked: Vec<_> = requests.iter().map(|it| &it.resources[0]).collect();
    let seen = asked.iter().find_map(|it| it.seen.as_deref()).unwrap();
    assert_eq!(seen.remaining.get(), 50.0);
    assert_eq!(counts(asked[0].outcomes.as_ref().unwrap()), [0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn outcomes_of_checks_are_told_with_what_the_target_said() {
    begin(1);
    let plane = Plane::new(reporting(10.0));
    let (doorman, _) = run(builder(), &plane);
    let checks = doorman.checks();
    drop(checks.check(&[ResourceUse::rate("db")]).await.unwrap());
    sleep(SECOND / 4).await;
    let seen = Seen::new(Capacity::saturating(7.0), Seconds::saturating(30.0)).unwrap();
    let report = OutcomeReport::new(Outcome::Overloaded);
    let report = report.count(3).pause(20 * SECOND).seen(seen);
    checks.outcome(&id("db"), &report);
    checks.outcome(&id("unknown"), &report);
    sleep(SECOND / 10).await;
    let asked = plane.last_request().resources.remove(0);
    assert_eq!(counts(asked.outcomes.as_ref().unwrap()), [0, 3, 0]);
    assert!(
        asked
            .pause
            .is_some_and(|it| (19.8..=20.0).contains(&it.get()))
    );
    let seen = asked.seen.unwrap();
    assert_eq!(seen.remaining.get(), 7.0);
    assert!((29.8..=30.0).contains(&seen.reset.get()));
}
