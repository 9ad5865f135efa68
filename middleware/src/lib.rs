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
//!         .on_limit(OnLimit::Delay { at_most: Duration::from_millis(500) }),
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
//! A team's own tests wear [`Doorman::unlimited`] or [`Doorman::fixed`], which need no server, and a runtime only where something
//! waits.
//!
//! | feature | adds |
//! |---|---|
//! | `axum` (default) | keys from axum's route template (`MatchedPath`) and peer address (`ConnectInfo`) |
//! | `reqwest` (default) | the way to the control plane that [`Builder`] takes unless it is [given another](Builder::build_with): HTTP, TLS with rustls |

mod admission;
mod body;
mod builder;
mod clock;
mod cost;
mod credentials;
mod demand;
mod future;
mod handle;
mod headers;
mod key;
mod layer;
pub mod lease;
mod limit;
mod limiter;
mod rate;
mod refusal;
mod service;
mod snapshot;
mod status;
#[cfg(test)]
mod testing;

pub use body::LimitBody;
pub use builder::{BuildError, Builder};
pub use cost::{Cost, InvalidCost};
pub use credentials::Credentials;
pub use doorman_openapi::{Capacity, InvalidTemplate, ResourceId};
pub use future::ResponseFuture;
pub use handle::{Doorman, NotReady, NotReleased};
pub use key::{
    Callers, ForwardedHeader, InvalidKey, InvalidNetwork, Key, MissingKey, PeerAddr, RequestHead,
    TrustedProxies,
};
pub use layer::LimitLayer;
pub use lease::Worker;
pub use limit::{Limit, OnLimit};
pub use limiter::Fallback;
pub use rate::Rate;
pub use refusal::{Refusal, RefusalReason};
pub use service::LimitService;
pub use snapshot::{LeaseSnapshot, LimitSnapshot, Snapshot};
pub use status::WorkerState;
