use std::{
    convert::Infallible,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use bytes::Bytes;
use doorman_openapi::Moment;
use http::header::{self, DATE, RETRY_AFTER};
use http_body_util::Full;
use tokio::time::advance;
use tower::{ServiceExt as _, retry::Retry, service_fn};
use tower_layer::Layer as _;

use super::*;
use crate::{Doorman, Key, Limit, OnMissingKey, clock};

const SECOND: Duration = Duration::from_secs(1);

type Answered = Result<Response<()>, &'static str>;

/// A server that records when it was called.
#[derive(Debug, Clone, Default)]
struct Server(Arc<Mutex<Vec<Moment>>>);

impl Server {
    fn calls(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// The pauses between the calls so far.
    fn pauses(&self) -> Vec<Duration> {
        let calls = self.0.lock().unwrap();
        calls
            .windows(2)
            .map(|pair| pair[1].since(pair[0]))
            .collect()
    }

    /// Sends a request. `answer` gets the number of calls before.
    async fn send(
        &self,
        policy: &RetryPolicy<&'static str>,
        method: Method,
        answer: impl Fn(usize) -> Answered + Clone,
    ) -> Answered {
        let service = service_fn(|_: Request<Bytes>| {
            let calls = self.calls();
            self.0.lock().unwrap().push(clock::now());
            std::future::ready(answer(calls))
        });
        let mut request = Request::new(Bytes::from("body"));
        *request.method_mut() = method;
        Retry::new(policy.clone(), service).oneshot(request).await
    }

    async fn get(
        &self,
        policy: &RetryPolicy<&'static str>,
        answer: impl Fn(usize) -> Answered + Clone,
    ) -> Answered {
        self.send(policy, Method::GET, answer).await
    }
}

fn status(status: u16) -> Answered {
    Ok(Response::builder().status(status).body(()).unwrap())
}

fn overloaded(headers: &[(header::HeaderName, &str)]) -> Answered {
    let mut response = status(503)?;
    for (name, value) in headers {
        let value = value.parse().unwrap();
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// Without a pause of its own, so that `Retry-After` shows.
fn without_backoff() -> RetryPolicy<&'static str> {
    RetryPolicy::new().backoff(Duration::ZERO, Duration::ZERO)
}

async fn pause_after(headers: &[(header::HeaderName, &'static str)]) -> Vec<Duration> {
    let server = Server::default();
    let headers = headers.to_vec();
    let answer = move |calls| match calls {
        0 => overloaded(&headers),
        _ => status(200),
    };
    server.get(&without_backoff(), answer).await.unwrap();
    server.pauses()
}

#[tokio::test(start_paused = true)]
async fn overload_is_retried_until_the_tries_are_spent() {
    for code in [429, 503] {
        let server = Server::default();
        let policy = RetryPolicy::new();
        let response = server.get(&policy, |_| status(code)).await.unwrap();
        assert_eq!((response.status().as_u16(), server.calls()), (code, 3));

        let response = server.get(&policy.tries(1), |_| status(code)).await;
        assert_eq!(response.unwrap().status().as_u16(), code);
        assert_eq!(server.calls(), 4);
    }
    for code in [200, 404, 500, 502] {
        let server = Server::default();
        let response = server.get(&RetryPolicy::new(), |_| status(code)).await;
        assert_eq!(
            (response.unwrap().status().as_u16(), server.calls()),
            (code, 1)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn pauses_are_uniform_below_a_ceiling_that_doubles() {
    let ceilings = [1.0, 2.0, 4.0, 5.0, 5.0];
    let policy = RetryPolicy::new()
        .tries(6)
        .backoff(SECOND, 5 * SECOND)
        .budget(TpsBudget::new(10 * SECOND, 1_000, 1.0));
    let mut sums = [0.0; 5];
    for _ in 0..1_000 {
        let server = Server::default();
        server.get(&policy, |_| status(503)).await.unwrap();
        let pauses = server.pauses();
        assert_eq!(pauses.len(), 5);
        for ((pause, ceiling), sum) in pauses.iter().zip(ceilings).zip(&mut sums) {
            let pause = pause.as_secs_f64();
            // Timers have a resolution of a millisecond.
            assert!(pause <= ceiling + 0.001, "{pause} {ceiling}");
            *sum += pause / ceiling;
        }
    }
    for sum in sums {
        // Five standard deviations of the mean.
        assert!((0.45..0.55).contains(&(sum / 1_000.0)), "{sum}");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_waited_for() {
    let at = |date| [(RETRY_AFTER, date), (DATE, "Fri, 31 Dec 1999 23:59:52 GMT")];
    assert_eq!(pause_after(&[(RETRY_AFTER, "7")]).await, [7 * SECOND]);
    // The clock of the client is years ahead.
    let date = pause_after(&at("Sat, 01 Jan 2000 00:00:00 GMT")).await;
    assert_eq!(date, [8 * SECOND]);
    let past = pause_after(&at("Fri, 31 Dec 1999 23:59:00 GMT")).await;
    assert_eq!(past, [Duration::ZERO]);
    let dateless = [(RETRY_AFTER, "Sat, 01 Jan 2000 00:00:00 GMT")];
    assert_eq!(pause_after(&dateless).await, [Duration::ZERO]);
    for invalid in ["", "soon", "-1", "1.5"] {
        assert_eq!(
            pause_after(&[(RETRY_AFTER, invalid)]).await,
            [Duration::ZERO]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn jitter_is_added_to_retry_after() {
    let policy = RetryPolicy::new().backoff(SECOND, SECOND);
    let mut pauses = Vec::new();
    for _ in 0..50 {
        let server = Server::default();
        let answer = |calls| match calls {
            0 => overloaded(&[(RETRY_AFTER, "7")]),
            _ => status(200),
        };
        server.get(&policy, answer).await.unwrap();
        pauses.extend(server.pauses());
    }
    let within = pauses
        .iter()
        .all(|it| (7 * SECOND..=8 * SECOND).contains(it));
    assert!(within, "{pauses:?}");
    let spread = *pauses.iter().max().unwrap() - *pauses.iter().min().unwrap();
    assert!(spread > SECOND / 2, "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn longer_retry_after_is_returned_at_once() {
    for value in ["31", "99999999999999999999999"] {
        let server = Server::default();
        let answer = |_| overloaded(&[(RETRY_AFTER, value)]);
        let response = server.get(&RetryPolicy::new(), answer).await.unwrap();
        assert_eq!(response.status(), 503);
        assert_eq!(server.calls(), 1);
    }
    let server = Server::default();
    let policy = without_backoff().tries(2).max_retry_after(31 * SECOND);
    let answer = |_| overloaded(&[(RETRY_AFTER, "31")]);
    server.get(&policy, answer).await.unwrap();
    assert_eq!(server.pauses(), [31 * SECOND]);
}

#[tokio::test(start_paused = true)]
async fn only_repeatable_requests_are_retried() {
    let server = Server::default();
    let policy = RetryPolicy::new();
    let send = |policy: &_, method| {
        let policy = RetryPolicy::clone(policy);
        let server = server.clone();
        async move {
            let calls = server.calls();
            let sent = server.send(&policy, method, |_| status(503)).await;
            sent.unwrap();
            server.calls() - calls
        }
    };
    assert_eq!(send(&policy, Method::POST).await, 1);
    assert_eq!(send(&policy, Method::PUT).await, 3);
    let policy = policy.retry_requests(|method, headers| {
        method == Method::POST && !headers.contains_key("x-once")
    });
    assert_eq!(send(&policy, Method::POST).await, 3);
    assert_eq!(send(&policy, Method::GET).await, 1);
}

#[tokio::test(start_paused = true)]
async fn only_selected_errors_are_retried() {
    let server = Server::default();
    let answer = |calls| match calls {
        0 => Err("reset"),
        _ => status(200),
    };
    let response = server.get(&RetryPolicy::new(), answer).await;
    assert_eq!((response.unwrap_err(), server.calls()), ("reset", 1));

    let server = Server::default();
    let policy = RetryPolicy::new().retry_errors(|error| *error == "reset");
    let response = server.get(&policy, answer).await.unwrap();
    assert_eq!((response.status().as_u16(), server.calls()), (200, 2));
    let response = server.get(&policy, |_| Err("invalid")).await;
    assert_eq!((response.unwrap_err(), server.calls()), ("invalid", 3));
}

#[tokio::test(start_paused = true)]
async fn retries_stop_when_the_budget_is_spent() {
    let server = Server::default();
    // One retry for two answers.
    let budget = TpsBudget::new(60 * SECOND, 0, 0.5);
    let policy = without_backoff().tries(10).budget(budget);
    server.get(&policy, |_| status(503)).await.unwrap();
    assert_eq!(server.calls(), 1);
    for _ in 0..4 {
        server.get(&policy, |_| status(200)).await.unwrap();
    }
    server.get(&policy, |_| status(503)).await.unwrap();
    assert_eq!(server.calls(), 5 + 1 + 2);
}

#[tokio::test(start_paused = true)]
async fn dropped_request_is_not_sent_again() {
    let server = Server::default();
    let policy = RetryPolicy::new();
    let answer = |_| overloaded(&[(RETRY_AFTER, "7")]);
    let sent = tokio::time::timeout(SECOND, server.get(&policy, answer)).await;
    assert!(sent.is_err());
    advance(60 * SECOND).await;
    assert_eq!(server.calls(), 1);
}

/// Sends a POST through a limit inside of the retry layer. Returns the status, and how often the
/// server was called.
async fn post_through(limit: Limit, policy: RetryPolicy<Infallible>, before: u32) -> (u16, u32) {
    let calls = Arc::new(AtomicU32::new(0));
    let client = service_fn(|_: Request<Bytes>| {
        calls.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    });
    let limited = Doorman::fixed([("partner", 1.0)])
        .layer(limit)
        .unwrap()
        .layer(client);
    let request = || Request::post("/").body(Bytes::new()).unwrap();
    for _ in 0..before {
        limited.clone().oneshot(request()).await.unwrap();
    }
    let response = Retry::new(policy, limited)
        .oneshot(request())
        .await
        .unwrap();
    (response.status().as_u16(), calls.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn refused_request_is_retried_when_the_limit_admits_it() {
    let nothing = TpsBudget::new(SECOND, 0, 0.0);
    let policy = RetryPolicy::new()
        .backoff(Duration::ZERO, Duration::ZERO)
        .budget(nothing);
    let start = clock::now();
    let answer = post_through(Limit::rate("partner"), policy, 1).await;
    assert_eq!(answer, (200, 2));
    // Not the whole seconds of `Retry-After`, in which the limit would have spare tokens.
    assert_eq!(clock::now().since(start), SECOND);
}

#[tokio::test(start_paused = true)]
async fn request_without_a_key_is_not_retried() {
    let key = Key::template("tenant/{header:x-tenant}").unwrap();
    let limit = Limit::rate(key).on_missing_key(OnMissingKey::Reject);
    let start = clock::now();
    let answer = post_through(limit, RetryPolicy::new(), 0).await;
    assert_eq!(answer, (400, 0));
    assert_eq!(clock::now(), start);
}
