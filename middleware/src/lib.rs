//! Rate limiting of a whole fleet, without a network call per request.
//!
//! Many processes share a limited capacity: a database, a paid API, a tenant's quota. A background
//! worker leases a part of it from a Doorman control plane, according to measured demand. A
//! [tower layer](LimitLayer) spends the lease with local arithmetic. If the control plane is down,
//! leases last until they expire; then each limit applies its [`Fallback`].
//!
//! ```no_run
//! # #[cfg(all(feature = "axum", feature = "reqwest"))]
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use axum::{Router, routing::get};
//! use tokio::signal::{ctrl_c, unix::{SignalKind, signal}};
//! use tower_doorman::{Doorman, Limit, OnLimit};
//!
//! let (doorman, worker) = Doorman::builder("http://127.0.0.1:7300").service("orders").build()?;
//! let worker = tokio::spawn(worker.run());
//!
//! // The capacities of `api`, for the fleet, and of `tenant/<name>`, for each tenant.
//! let limits = doorman.layer([
//!     Limit::rate("api"),
//!     Limit::rate("tenant/{header:x-tenant}")
//!         .on_limit(OnLimit::Delay { max_delay: Duration::from_millis(500) }),
//! ])?;
//! // `.layer` limits only the routes added before it.
//! let app: Router = Router::new().route("/", get(async || "ok")).layer(limits);
//!
//! // Optional: wait for the first leases. Until then fallbacks apply.
//! doorman.ready(Duration::from_secs(2)).await.ok();
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! let mut terminate = signal(SignalKind::terminate())?;
//! let stop = async move {
//!     tokio::select! { _ = ctrl_c() => {}, _ = terminate.recv() => {} }
//! };
//! axum::serve(listener, app).with_graceful_shutdown(stop).await?;
//!
//! // Release the leases, so that other processes get the capacity immediately.
//! doorman.shutdown().await?;
//! worker.await?;
//! # Ok(())
//! # }
//! ```
//!
//! Code without requests uses a [`Rate`] directly:
//!
//! ```no_run
//! # #[cfg(feature = "reqwest")]
//! # async fn work() -> Result<(), Box<dyn std::error::Error>> {
//! use tower_doorman::{Cost, Doorman};
//!
//! let doorman = Doorman::builder("http://127.0.0.1:7300").spawn()?;
//! let database = doorman.rate("db");
//! database.wait(Cost::ONE).await?;
//! let tenants = doorman.keyed_rate("tenant");
//! tenants.wait("acme", Cost::ONE).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Gauge`] limits what is in flight at once, over the fleet: `doorman.gauge("tx").acquire()`
//! gives a [`Permit`], and [`Limit::gauge`] is the limit of a layer.
//!
//! [`Limit::local`] limits one process without a lease. [`Doorman::rules`] and
//! [`LimitLayer::and_rules`] enforce the rules of the control plane's document. Tests of a service
//! use [`Doorman::unlimited`] or [`Doorman::fixed`], without a server. The guides are in the
//! repository: `docs/LAYER.md` (limits, responses), `docs/KEYS.md` (keys, trust) and
//! `docs/RULES.md`.
//!
//! | feature | adds |
//! |---|---|
//! | `axum` (default) | keys by axum's route template (`MatchedPath`) and peer address (`ConnectInfo`) |
//! | `jwt` | verification of bearer tokens (`JwtVerifier`), with keys of a JWKS file, or of a URL with `reqwest`; [`VerifiedClaims`] need no feature |
//! | `metrics` | metrics for the program's recorder, by the [`metrics`](https://docs.rs/metrics) facade: `docs/LAYER.md` lists them |
//! | `reqwest` (default) | the HTTP transport to the control plane, with TLS by rustls; without it use [`Builder::build_with`]. And limits around a reqwest client (`LimitedClient`) |
//! | `retry` | a retry policy for clients (`RetryPolicy`), with `Retry-After`, backoff, jitter and a budget |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod admission;
mod builder;
mod capacity;
mod charge;
mod check;
mod clock;
mod cost;
mod credentials;
mod demand;
mod direct;
mod error;
mod fixed;
mod gauge;
mod handle;
mod key;
mod layer;
pub mod lease;
mod limit;
mod limiter;
mod meter;
mod outbound;
mod outcome;
mod own_rules;
mod permit;
mod quota;
mod rate;
mod refusal;
mod resource_use;
mod rules;
mod snapshot;
mod status;
#[cfg(test)]
mod testing;
mod tuning;

pub use builder::{BuildError, Builder};
pub use capacity::{Lease, LeaseSettings, LeaseWatch, LeasedCapacity};
pub use charge::Charge;
pub use check::{AdmittedCheck, CheckError, Checks, RefusedCheck};
pub use cost::{Cost, InvalidCost};
pub use credentials::Credentials;
pub use direct::DirectSettings;
pub use doorman_openapi::{
    Capacity, Fallback, InvalidKeyTemplate, InvalidServerUrl, OnMissingKey, ResourceId, Rule, Seen,
    ServerUrl, TargetHeaders, Unit,
};
pub use gauge::{Gauge, GaugeSettings, KeyedGauge};
pub use handle::{Doorman, NotReady, NotReleased};
pub use key::{
    Callers, ForwardedHeader, InvalidClaims, InvalidKey, InvalidNetwork, Key, PeerAddr,
    RequestHead, TrustedProxies, VerifiedClaims,
};
#[cfg(feature = "jwt")]
pub use key::{InvalidJwks, InvalidJwtKey, Jwks, JwtKey, JwtVerifier};
pub use layer::{LimitBody, LimitLayer, LimitService, ResponseFuture};
pub use lease::Worker;
pub use limit::{IntoLimits, InvalidLimit, Limit, OnLimit};
#[cfg(feature = "retry")]
pub use outbound::RetryPolicy;
#[cfg(feature = "reqwest")]
pub use outbound::{LimitedClient, SendError};
pub use outcome::{Outcome, OutcomeReport};
pub use own_rules::OwnRules;
pub use permit::Permit;
pub use quota::{InvalidQuota, Quota, per_hour, per_minute, per_second};
pub use rate::{KeyedRate, Rate, RateSettings};
pub use refusal::{Refusal, RefusalReason};
pub use resource_use::ResourceUse;
pub use rules::InvalidRules;
pub use snapshot::{
    BandSnapshot, LeaseSnapshot, LimitFault, LimitSnapshot, NotApplied, OutcomesSnapshot,
    RulesSnapshot, Snapshot,
};
pub use status::WorkerState;
