//! Retry policy for clients: which requests to send again, and when.

use std::{fmt, sync::Arc, time::Duration};

use http::{Extensions, HeaderMap, Method, Request, Response, StatusCode};
use tokio::time::{Sleep, sleep};
use tower::retry::{
    Policy,
    budget::{Budget as _, TpsBudget},
};

use crate::{outcome::retry_after, refusal::Refusal};

const TRIES: u32 = 3;
const BASE_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(10);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);

type RequestPredicate = dyn Fn(&Method, &HeaderMap) -> bool + Send + Sync;

/// A policy for [`tower::retry::RetryLayer`], and for `LimitedClient::retry`.
///
/// It retries, at most [so often](Self::tries):
/// - responses of status 429 and 503 to idempotent requests,
/// - errors of idempotent requests, if [`retry_errors`](Self::retry_errors) selects them,
/// - any request that a limit inside of the retry layer refused, as it was not sent; not for a
///   missing key.
///
/// It waits for `Retry-After`, if there is one, plus a pause with exponential backoff and full
/// jitter: uniformly random between zero and a ceiling that doubles with each retry. A
/// `Retry-After` that is a date counts from the `Date` of the response, so clocks need not agree;
/// without a `Date` it is ignored. If [`max_retry_after`](Self::max_retry_after) is too short, or
/// the [budget](Self::budget) is spent, the response is returned as it is.
///
/// Put the retry layer around the limits, so that each try is limited:
///
/// ```
/// # use bytes::Bytes;
/// # use http::{Request, Response};
/// # use http_body_util::Full;
/// use tower::{ServiceBuilder, retry::RetryLayer};
/// use tower_doorman::{Doorman, Limit, RetryPolicy};
///
/// # fn stack<C>(doorman: &Doorman, client: C) -> Result<(), tower_doorman::InvalidLimit>
/// # where C: tower::Service<Request<Full<Bytes>>, Response = Response<Full<Bytes>>> + Clone {
/// let partner = ServiceBuilder::new()
///     .layer(RetryLayer::new(RetryPolicy::<C::Error>::new().tries(4)))
///     .layer(doorman.layer(Limit::rate("partner"))?)
///     .service(client);
/// # drop(partner);
/// # Ok(())
/// # }
/// ```
///
/// A request is retried only if it can be cloned: its body is `Bytes` or `Full<Bytes>`, say, or no
/// stream of reqwest. The waiting future can be dropped at any time: nothing is sent again then.
/// Clones share the budget. Waiting needs a tokio runtime with a timer.
pub struct RetryPolicy<E> {
    tries: u32,
    base_pause: Duration,
    max_pause: Duration,
    max_retry_after: Duration,
    is_repeatable: Arc<RequestPredicate>,
    is_temporary: Arc<dyn Fn(&E) -> bool + Send + Sync>,
    budget: Arc<TpsBudget>,
    /// Of the request that has this clone.
    retries: u32,
}

impl<E> RetryPolicy<E> {
    /// At most 3 tries, pauses of up to 100 ms, 200 ms, … 10 s, up to 30 s of `Retry-After`, and a
    /// budget of 10 retries per second and one for every five requests.
    #[must_use]
    pub fn new() -> Self {
        Self {
            tries: TRIES,
            base_pause: BASE_PAUSE,
            max_pause: MAX_PAUSE,
            max_retry_after: MAX_RETRY_AFTER,
            is_repeatable: Arc::new(|method, _| method.is_idempotent()),
            is_temporary: Arc::new(|_| false),
            budget: Arc::default(),
            retries: 0,
        }
    }

    /// How often a request is sent or refused at most, the first try included.
    #[must_use]
    pub fn tries(mut self, tries: u32) -> Self {
        self.tries = tries;
        self
    }

    /// The ceiling of the first pause, which doubles with each retry, and its maximum.
    #[must_use]
    pub fn backoff(mut self, base: Duration, max: Duration) -> Self {
        self.base_pause = base;
        self.max_pause = max;
        self
    }

    /// The longest `Retry-After` to wait for.
    #[must_use]
    pub fn max_retry_after(mut self, max: Duration) -> Self {
        self.max_retry_after = max;
        self
    }

    /// Which requests may be sent again, instead of those with an idempotent method.
    ///
    /// ```
    /// use tower_doorman::RetryPolicy;
    ///
    /// let policy = RetryPolicy::<std::io::Error>::new().retry_requests(|method, headers| {
    ///     method.is_idempotent() || headers.contains_key("idempotency-key")
    /// });
    /// ```
    #[must_use]
    pub fn retry_requests<F>(mut self, is_repeatable: F) -> Self
    where
        F: Fn(&Method, &HeaderMap) -> bool + Send + Sync + 'static,
    {
        self.is_repeatable = Arc::new(is_repeatable);
        self
    }

    /// Which errors to retry, by default none: for example `reqwest::Error::is_connect`.
    #[must_use]
    pub fn retry_errors<F>(mut self, is_temporary: F) -> Self
    where
        F: Fn(&E) -> bool + Send + Sync + 'static,
    {
        self.is_temporary = Arc::new(is_temporary);
        self
    }

    /// The budget, which this policy and its clones share. A retry withdraws from it, and a
    /// response that needs no retry makes a deposit, if the request could be sent again. Retries of
    /// refused requests are free, because no server sees the request.
    #[must_use]
    pub fn budget(mut self, budget: TpsBudget) -> Self {
        self.budget = Arc::new(budget);
        self
    }

    fn has_tries(&self) -> bool {
        self.retries.saturating_add(1) < self.tries
    }

    /// The pause before the next try; `None` if the result is final.
    fn next_try(
        &mut self,
        method: &Method,
        headers: &HeaderMap,
        result: Result<Answer<'_>, &E>,
    ) -> Option<Sleep> {
        let (retry_after, was_sent) = match result {
            Ok((status, headers, extensions)) => match extensions.get::<Refusal>() {
                Some(refusal) if refusal.reason().is_temporary() => (refusal.retry_after(), false),
                Some(_) => return None,
                None if is_overload(status) => (retry_after(headers).unwrap_or_default(), true),
                None => {
                    self.budget.deposit();
                    return None;
                }
            },
            Err(error) if (self.is_temporary)(error) => (Duration::ZERO, true),
            Err(_) => return None,
        };
        let is_final = retry_after > self.max_retry_after
            || was_sent && !((self.is_repeatable)(method, headers) && self.budget.withdraw());
        (!is_final).then(|| {
            let jitter = self.ceiling().mul_f64(fastrand::f64());
            self.retries = self.retries.saturating_add(1);
            sleep(retry_after.saturating_add(jitter))
        })
    }

    /// The longest pause before the next retry.
    fn ceiling(&self) -> Duration {
        let factor = 2_u32.saturating_pow(self.retries);
        self.base_pause.saturating_mul(factor).min(self.max_pause)
    }
}

/// The parts of a response that decide.
type Answer<'a> = (StatusCode, &'a HeaderMap, &'a Extensions);

fn is_overload(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    )
}

impl<B: Clone, R, E> Policy<Request<B>, Response<R>, E> for RetryPolicy<E> {
    type Future = Sleep;

    fn retry(
        &mut self,
        request: &mut Request<B>,
        result: &mut Result<Response<R>, E>,
    ) -> Option<Sleep> {
        let result = result.as_ref();
        let answer = result.map(|it| (it.status(), it.headers(), it.extensions()));
        self.next_try(request.method(), request.headers(), answer)
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        self.has_tries().then(|| request.clone())
    }
}

#[cfg(feature = "reqwest")]
impl<E> Policy<reqwest::Request, reqwest::Response, E> for RetryPolicy<E> {
    type Future = Sleep;

    fn retry(
        &mut self,
        request: &mut reqwest::Request,
        result: &mut Result<reqwest::Response, E>,
    ) -> Option<Sleep> {
        let result = result.as_ref();
        let answer = result.map(|it| (it.status(), it.headers(), it.extensions()));
        self.next_try(request.method(), request.headers(), answer)
    }

    fn clone_request(&mut self, request: &reqwest::Request) -> Option<reqwest::Request> {
        self.has_tries().then(|| request.try_clone()).flatten()
    }
}

impl<E> Default for RetryPolicy<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Clone for RetryPolicy<E> {
    fn clone(&self) -> Self {
        Self {
            is_repeatable: Arc::clone(&self.is_repeatable),
            is_temporary: Arc::clone(&self.is_temporary),
            budget: Arc::clone(&self.budget),
            ..*self
        }
    }
}

impl<E> fmt::Debug for RetryPolicy<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryPolicy")
            .field("tries", &self.tries)
            .field("base_pause", &self.base_pause)
            .field("max_pause", &self.max_pause)
            .field("max_retry_after", &self.max_retry_after)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
