//! A service process: the layer, the load on it, and a record of both.

use std::{
    convert::Infallible,
    io::{self, BufRead, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{Router, routing::get};
use bytes::Bytes;
use http::{HeaderMap, Response, header::RETRY_AFTER};
use http_body_util::Full;
use metrics::{Counter, CounterFn, Gauge, Histogram, KeyName, Metadata, Recorder, SharedString};
use rustix::process::{Signal, kill_process};
use tokio::{net::TcpListener, runtime, time};
use tower::{Layer as _, Service, service_fn};
use tower_doorman::{Builder, Cost, Doorman, Key, Limit, LimitBody, LimitLayer, OnLimit, Refusal};

use super::{
    Error,
    load::Load,
    now,
    plan::{Job, Plan, Report, Request, State},
};

/// How often the state of the limit is recorded.
const POLL: Duration = Duration::from_millis(5);

/// Pause of a loop after a rejection.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs a service: reads its plan from the standard input, and writes its report to the standard
/// output.
///
/// # Errors
/// If the plan cannot be carried out.
pub fn serve() -> Result<(), Error> {
    let mut output = io::stdout();
    writeln!(output, "ready")?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    if line.is_empty() {
        return Ok(()); // The parent has given up.
    }
    let Job {
        servers,
        start,
        plan,
    } = serde_json::from_str(&line)?;
    let record = Arc::new(Record {
        start,
        report: Mutex::default(),
    });
    metrics::set_global_recorder(LeaseRequests(Arc::clone(&record)))?;
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(servers, plan, &record))?;
    Ok(())
}

async fn run(servers: Vec<String>, plan: Plan, record: &Arc<Record>) -> Result<(), Error> {
    record.sleep_until(plan.joins).await;
    let late = record.now() - plan.joins;
    if late > 0.2 {
        return Err(format!("the service started {late:.1} s late").into());
    }
    let mut servers = servers.into_iter();
    let first = servers.next().ok_or("no server")?;
    let doorman = servers.fold(Doorman::builder(first), Builder::server);
    let mut doorman = doorman.service("situations");
    if let Some(instance) = plan.instance {
        doorman = doorman.instance(instance);
    }
    let doorman = doorman.spawn()?;
    let mut limit = Limit::rate(Key::template(&plan.key)?).priority(plan.priority);
    if let Some(max_delay) = plan.max_delay {
        limit = limit.on_limit(OnLimit::Delay {
            max_delay: Duration::try_from_secs_f64(max_delay)?,
        });
    }
    // Limits on one resource share one limiter. A service without load has one, too.
    let layer = || doorman.layer([limit.clone()]).expect("valid limits");
    let _idle = plan.loads.is_empty().then(layer);
    tokio::spawn(watch(doorman.clone(), Arc::clone(record)));
    for (tenant, load) in plan.loads {
        let record = Arc::clone(record);
        match load {
            Load::Rate { .. } | Load::Bursts { .. } => {
                tokio::spawn(send_due(layer(), load.times(), tenant, record));
            }
            Load::RequestLoop => {
                tokio::spawn(request_loop(layer(), tenant, record));
            }
            Load::WaitLoop => {
                tokio::spawn(wait_loop(doorman.rate(&plan.key), tenant, record));
            }
            Load::Http {
                connections,
                per_second,
            } => send_over_http(layer(), connections, per_second, &record).await?,
        }
    }
    record.sleep_until(plan.ends).await;
    let report = serde_json::to_string(&*record.report())?;
    writeln!(io::stdout(), "{report}")?;
    if plan.crashes {
        kill_process(rustix::process::getpid(), Signal::KILL)?;
    }
    // When the release fails, the leases end by themselves.
    drop(doorman.shutdown().await);
    Ok(())
}

/// Sends each request when it is due, however long responses take.
async fn send_due(layer: LimitLayer, times: Vec<f64>, tenant: String, record: Arc<Record>) {
    let mut service = limited(&layer);
    for at in times {
        record.sleep_until(at).await;
        let sent = record.now();
        record.add_lag(sent - at);
        // The layer decides here, unless the request has to wait.
        let response = service.call(request(&tenant));
        let (record, tenant) = (Arc::clone(&record), tenant.clone());
        tokio::spawn(async move {
            let Ok(response) = response.await;
            record.add_response(tenant, sent, &response);
        });
    }
}

async fn request_loop(layer: LimitLayer, tenant: String, record: Arc<Record>) {
    let mut service = limited(&layer);
    record.sleep_until(0.0).await;
    loop {
        let sent = record.now();
        let Ok(response) = service.call(request(&tenant)).await;
        record.add_response(tenant.clone(), sent, &response);
        if response.status() != 200 {
            time::sleep(PAUSE).await;
        }
        tokio::task::yield_now().await;
    }
}

async fn wait_loop(rate: tower_doorman::Rate, tenant: String, record: Arc<Record>) {
    record.sleep_until(0.0).await;
    loop {
        let sent = record.now();
        let waited = rate.wait(Cost::ONE).await;
        let refusal = waited.as_ref().err();
        record.add(tenant.clone(), sent, refusal, |request| {
            request.status = if refusal.is_none() { 200 } else { 0 };
        });
        if refusal.is_some() {
            time::sleep(PAUSE).await;
        }
        tokio::task::yield_now().await;
    }
}

/// Starts a server with the layer, and the load on it.
async fn send_over_http(
    layer: LimitLayer,
    connections: u32,
    per_second: f64,
    record: &Arc<Record>,
) -> Result<(), Error> {
    let app = Router::new().route("/", get(async || "ok")).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(axum::serve(listener, app).into_future());
    for _ in 0..connections {
        // A client of its own: one connection.
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .build()?;
        let (url, record) = (url.clone(), Arc::clone(record));
        tokio::spawn(async move {
            for index in 0_u32.. {
                record.sleep_until(f64::from(index) / per_second).await;
                let sent = record.now();
                match client.get(&url).send().await {
                    Ok(response) => {
                        let status = response.status();
                        let headers = response.headers().clone();
                        drop(response.bytes().await);
                        record.add(String::new(), sent, None, |request| {
                            request.status = status.as_u16();
                            request.set_headers(&headers);
                        });
                    }
                    Err(error) => record.add(String::new(), sent, None, |request| {
                        request.reason = Some(error.to_string());
                    }),
                }
            }
        });
    }
    Ok(())
}

/// Records every change of the first limit.
async fn watch(doorman: Doorman, record: Arc<Record>) {
    loop {
        if let Some(limit) = doorman.snapshot().limits.first() {
            let lease = limit.lease.and_then(|lease| lease.capacity);
            record.add_state(limit.limit, lease);
        }
        time::sleep(POLL).await;
    }
}

type Inner = Response<LimitBody<Full<Bytes>>>;

/// A service that does nothing, behind the layer.
fn limited(
    layer: &LimitLayer,
) -> impl Service<
    http::Request<()>,
    Response = Inner,
    Error = Infallible,
    Future = impl Future<Output = Result<Inner, Infallible>> + Send + 'static,
> + Send
+ 'static {
    layer.layer(service_fn(async |_: http::Request<()>| {
        Ok(Response::new(Full::from("ok")))
    }))
}

fn request(tenant: &str) -> http::Request<()> {
    let mut request = http::Request::new(());
    if let Ok(tenant) = tenant.parse() {
        request.headers_mut().insert("x-tenant", tenant);
    }
    request
}

/// The report, while it grows.
#[derive(Debug)]
struct Record {
    start: Duration,
    report: Mutex<Report>,
}

impl Record {
    /// Seconds since the start of the run.
    fn now(&self) -> f64 {
        now().as_secs_f64() - self.start.as_secs_f64()
    }

    async fn sleep_until(&self, at: f64) {
        if let Ok(left) = Duration::try_from_secs_f64(at - self.now())
            && !left.is_zero()
        {
            time::sleep(left).await;
        }
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        // Every statement leaves the report consistent.
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_lag(&self, lag: f64) {
        let mut report = self.report();
        report.lag = report.lag.max(lag);
    }

    fn add_response(&self, tenant: String, sent: f64, response: &Inner) {
        let refusal = response.extensions().get::<Refusal>();
        self.add(tenant, sent, refusal, |request| {
            request.status = response.status().as_u16();
            request.set_headers(response.headers());
        });
    }

    fn add(
        &self,
        tenant: String,
        sent: f64,
        refusal: Option<&Refusal>,
        complete: impl FnOnce(&mut Request),
    ) {
        let mut request = Request {
            tenant,
            sent,
            answered: self.now(),
            status: 0,
            reason: refusal.map(|refusal| format!("{:?}", refusal.reason())),
            retry_after: refusal.map(Refusal::retry_after_seconds),
            remaining: None,
        };
        complete(&mut request);
        self.report().requests.push(request);
    }

    fn add_state(&self, limit: Option<f64>, lease: Option<f64>) {
        let at = self.now();
        let mut report = self.report();
        let last = report.states.last();
        if last.map(|last| (last.limit, last.lease)) != Some((limit, lease)) {
            report.states.push(State { at, limit, lease });
        }
    }
}

impl Request {
    fn set_headers(&mut self, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        self.retry_after = text(RETRY_AFTER.as_str()).and_then(|seconds| seconds.parse().ok());
        self.remaining = text("ratelimit").and_then(|field| {
            let (_, rest) = field.split_once(";r=")?;
            let digits = rest.split(';').next()?;
            digits.parse().ok()
        });
    }
}

/// Records when the worker of the layer counts a lease request.
#[derive(Debug)]
struct LeaseRequests(Arc<Record>);

impl CounterFn for Record {
    fn increment(&self, value: u64) {
        let at = self.now();
        let mut report = self.report();
        report.lease_requests.extend((0..value).map(|_| at));
    }

    /// The layer only increments.
    fn absolute(&self, _: u64) {}
}

impl Recorder for LeaseRequests {
    fn describe_counter(&self, _: KeyName, _: Option<metrics::Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<metrics::Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<metrics::Unit>, _: SharedString) {}

    fn register_counter(&self, key: &metrics::Key, _: &Metadata<'_>) -> Counter {
        if key.name() == "doorman_layer_lease_requests_total" {
            Counter::from_arc(Arc::clone(&self.0))
        } else {
            Counter::noop()
        }
    }

    fn register_gauge(&self, _: &metrics::Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &metrics::Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
