//! Holds a fleet to one limit, without a network call on any request.
//!
//! Many processes share something of limited capacity: a database, a paid API, a tenant's quota. Together they must not exceed it,
//! none of it should lie unused, and it should be divided fairly. A limiter in each process knows nothing of the others; one that
//! asks a central store before every request puts a round trip, and an outage, into every request.
//!
//! This crate does neither. A worker in the background leases a part of the capacity from a Doorman control plane, asks for what the
//! process wants, measured, and renews the lease before it ends. A [tower layer](LimitLayer) spends the lease locally: a request is
//! admitted, delayed or refused by arithmetic alone. When the control plane is away, leases last until their end; after that each
//! limit does what its [`Fallback`] says.
//!
//! ```no_run
//! # #[cfg(all(feature = "axum", feature = "reqwest"))]
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use axum::{Router, routing::get};
//! use tower_doorman::{Doorman, Key, Limit, OnLimit};
//!
//! let (doorman, worker) = Doorman::builder("http://127.0.0.1:7300").service("orders").build()?;
//! let worker = tokio::spawn(worker.run());
//!
//! // The whole fleet is held to the capacity of `api`; within it each tenant to that of `tenant/<name>`.
//! let limits = doorman.layer([
//!     Limit::rate("api"),
//!     Limit::rate(Key::template("tenant/{header:x-tenant}")?)
//!         .on_limit(OnLimit::Delay { max_delay: Duration::from_millis(500) }),
//! ]);
//! let app: Router = Router::new().route("/", get(async || "ok")).layer(limits);
//!
//! // Come up with the leases in hand, if they can be had; until then the fallbacks count.
//! doorman.ready(Duration::from_secs(2)).await.ok();
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! let stop = async { drop(tokio::signal::ctrl_c().await) };
//! axum::serve(listener, app).with_graceful_shutdown(stop).await?;
//!
//! // Give the leases back, so that the others need not wait for their end.
//! doorman.shutdown().await?;
//! worker.await?;
//! # Ok(())
//! # }
//! ```
//!
//! Without requests of its own, code asks directly:
//!
//! ```no_run
//! # #[cfg(feature = "reqwest")]
//! # async fn work() -> Result<(), Box<dyn std::error::Error>> {
//! use tower_doorman::{Cost, Doorman};
//!
//! let doorman = Doorman::builder("http://127.0.0.1:7300").spawn()?;
//! let database = doorman.rate("db");
//! database.wait(Cost::ONE).await?;
//! // … one query.
//! # Ok(())
//! # }
//! ```
//!
//! What one process bears needs no lease: [`Limit::local`] holds this process to a [`Quota`], alone or beside leased limits.
//!
//! Limits that are not written in code are written in the control plane's document, as rules: [`Doorman::rules`] is a layer that follows
//! them, and [`LimitLayer::and_rules`] makes any layer follow them besides its own.
//!
//! A team's own tests wear [`Doorman::unlimited`] or [`Doorman::fixed`], which need no server, and a runtime only where something
//! waits.
//!
//! | feature | adds |
//! |---|---|
//! | `axum` (default) | keys from axum's route template (`MatchedPath`) and peer address (`ConnectInfo`) |
//! | `jwt` | keys by claims of tokens that the layer verifies (`JwtVerifier`); claims that the service has verified need no feature |
//! | `metrics` | counts for the program's own recorder, through the [`metrics`](https://docs.rs/metrics) facade |
//! | `reqwest` (default) | the way to the control plane that [`Builder`] takes unless it is [given another](Builder::build_with): HTTP, TLS with rustls |
//!
//! # Metrics
//!
//! | with the feature `metrics` | labels | |
//! |---|---|---|
//! | `doorman_layer_decisions_total` | `limit`, `outcome` | Requests by what became of them, below |
//! | `doorman_layer_admissions_without_lease_total` | `limit`, `fallback` | Those of them that a [`Fallback`] admitted: `safe` or `optimistic` |
//! | `doorman_layer_keys` | | A gauge: the keys of requests that are limited one by one |
//! | `doorman_layer_lease_requests_total` | `outcome` | Requests to the control plane: `answered`, `unavailable`, `redirected`, `refused`, `too_large` or `limited` |
//! | `doorman_layer_lease_changes_total` | `to` | Resources that came to a lease (`leased`), to one on a capacity of nothing (`blocked`), or to none (`lost`); not those of keys forgotten for being idle |
//! | `doorman_layer_leased_capacity` | `resource` | A gauge: the capacity leased of a resource with a constant key, in its own unit; 0 without a lease |
//!
//! A request is `admitted` at once or `delayed`, which is admitted after it waited for its turn. It is refused for a
//! [`RefusalReason`]: `spent`, `blocked`, `no_lease`, `warming_up`, `overflow`, `queue_full`, `suppressed` or `missing_key` (a token that is missing or does not count, too), and counted so for the limit that
//! refused it and for no other. What a limit in shadow mode would have refused is `shadow`. A limit that does not apply, for want of a key
//! or because the program [says so](Limit::skip), has `skipped` it; a caller that goes away while the
//! request waits for its turn has `gone`.
//!
//! `limit` is the name of the limit, and of a [`Rate`] its resource. No label is made of a request, and at most 100 limits and 100
//! resources have series of their own: further limits count as `(others)`, further resources have no gauge.
//!
//! Install the recorder first. A limit looks its counters up when it first decides, and the worker when it first has something to
//! count; what does so before there is a recorder is never counted.

mod admission;
mod builder;
mod clock;
mod cost;
mod credentials;
mod demand;
mod fallback;
mod handle;
mod key;
mod layer;
pub mod lease;
mod limit;
mod limiter;
mod log_throttle;
mod meter;
mod quota;
mod rate;
mod refusal;
mod rules;
mod snapshot;
mod status;
#[cfg(test)]
mod testing;

pub use builder::{BuildError, Builder};
pub use cost::{Cost, InvalidCost};
pub use credentials::Credentials;
pub use doorman_openapi::{Capacity, InvalidKeyTemplate, ResourceId};
pub use fallback::Fallback;
pub use handle::{Doorman, NotReady, NotReleased};
pub use key::{
    Callers, ForwardedHeader, InvalidClaims, InvalidKey, InvalidNetwork, Key, MissingKey, PeerAddr,
    RequestHead, TrustedProxies, VerifiedClaims,
};
#[cfg(feature = "jwt")]
pub use key::{InvalidJwtKey, JwtKey, JwtVerifier};
pub use layer::{LimitBody, LimitLayer, LimitService, ResponseFuture};
pub use lease::Worker;
pub use limit::{Limit, OnLimit};
pub use quota::{InvalidQuota, Quota, per_hour, per_minute, per_second};
pub use rate::Rate;
pub use refusal::{Refusal, RefusalReason};
pub use snapshot::{LeaseSnapshot, LimitFault, LimitSnapshot, NotApplied, RulesSnapshot, Snapshot};
pub use status::WorkerState;
