//! A reqwest client behind limits.
//!
//! Reqwest's client is a service of its own request type, and the layer takes requests of the crate
//! `http`: they are converted on both sides of the layer.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use reqwest::{Body, Client, Request, RequestBuilder, Response, ResponseBuilderExt as _};
use tower_layer::Layer as _;
use tower_service::Service;

#[cfg(feature = "retry")]
use super::RetryPolicy;
use crate::{
    layer::{LimitLayer, LimitService},
    refusal::Refusal,
};

type Responding<T> = Pin<Box<dyn Future<Output = Result<T, reqwest::Error>> + Send>>;

/// A [`reqwest::Client`] behind limits. Cheap to clone.
///
/// ```
/// use std::time::Duration;
/// use tower_doorman::{Doorman, Limit, LimitedClient, OnLimit, SendError};
///
/// # async fn fetch(doorman: Doorman) -> Result<(), Box<dyn std::error::Error>> {
/// let http = reqwest::Client::new();
/// let limit = Limit::rate("partner").on_limit(OnLimit::Delay { max_delay: Duration::from_secs(2) });
/// let partner = LimitedClient::new(http.clone(), doorman.layer(limit)?);
///
/// match partner.send(http.get("https://partner.example/")).await {
///     Ok(response) => println!("{}", response.status()),
///     Err(SendError::Refused(refusal)) => println!("{refusal}"),
///     Err(SendError::Failed(error)) => println!("{error}"),
/// }
/// # Ok(())
/// # }
/// ```
///
/// Each call counts once: redirects and retries inside of reqwest do not. Its timeouts begin when
/// the limits have admitted the request. The response body streams, and keeps the units of gauges
/// until it ends or is dropped.
///
/// As a tower [`Service`] it responds to a refused request as the layer does, with the [`Refusal`]
/// in the extensions.
#[derive(Debug, Clone)]
pub struct LimitedClient {
    limited: LimitService<HttpClient>,
    #[cfg(feature = "retry")]
    retry: Option<RetryPolicy<reqwest::Error>>,
}

/// Why a [`LimitedClient`] has no response.
#[derive(thiserror::Error)]
pub enum SendError {
    /// A limit refused the request. It was not sent.
    #[error(transparent)]
    Refused(Refusal),
    /// The request is invalid, or failed.
    #[error(transparent)]
    Failed(#[from] reqwest::Error),
}

crate::error::debug_as_text!(SendError);

impl LimitedClient {
    /// Puts limits around a client, as [outbound](LimitLayer::outbound) ones: a request waits for
    /// the first lease, and responses have the headers of the server only.
    #[must_use]
    pub fn new(client: Client, limits: LimitLayer) -> Self {
        Self {
            limited: limits.outbound().layer(HttpClient(client)),
            #[cfg(feature = "retry")]
            retry: None,
        }
    }

    /// Retries requests whose body is no stream. Each try is limited anew.
    #[cfg(feature = "retry")]
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy<reqwest::Error>) -> Self {
        self.retry = Some(policy);
        self
    }

    /// Sends a request when the limits admit it, by the client of this value: that of the builder
    /// is not used.
    ///
    /// # Errors
    /// [`SendError`] if a limit refuses the request, or it is invalid or fails. An error status of
    /// the server is a response.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves the queue, and cancels a request that was sent.
    pub async fn send(&self, request: RequestBuilder) -> Result<Response, SendError> {
        self.execute(request.build()?).await
    }

    /// Sends a request, as [`send`](Self::send).
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    ///
    /// # Cancel safety
    /// As for [`send`](Self::send).
    pub async fn execute(&self, request: Request) -> Result<Response, SendError> {
        let response = self.clone().call(request).await?;
        match response.extensions().get::<Refusal>() {
            Some(refusal) => Err(SendError::Refused(refusal.clone())),
            None => Ok(response),
        }
    }
}

impl Service<Request> for LimitedClient {
    type Response = Response;
    type Error = reqwest::Error;
    type Future = Responding<Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<http::Request<Body>>::poll_ready(&mut self.limited, cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        #[cfg(feature = "retry")]
        if let Some(policy) = &self.retry {
            let once = Self {
                limited: self.limited.clone(),
                retry: None,
            };
            let mut retried = tower::retry::Retry::new(policy.clone(), once);
            return Box::pin(retried.call(request));
        }
        match http::Request::try_from(request) {
            Ok(request) => {
                let response = self.limited.call(request);
                Box::pin(async { Ok(response.await?.map(Body::wrap).into()) })
            }
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

/// Reqwest's client as a service of `http` requests.
#[derive(Debug, Clone)]
struct HttpClient(Client);

impl Service<http::Request<Body>> for HttpClient {
    type Response = http::Response<Body>;
    type Error = reqwest::Error;
    type Future = Responding<http::Response<Body>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let request = Request::try_from(request);
        let client = self.0.clone();
        Box::pin(async move {
            let response = client.execute(request?).await?;
            let url = response.url().clone();
            let mut response = http::Response::from(response);
            // The conversion forgets the URL.
            if let Ok(located) = http::Response::builder().url(url).body(()) {
                let (parts, ()) = located.into_parts();
                response.extensions_mut().extend(parts.extensions);
            }
            Ok(response)
        })
    }
}
