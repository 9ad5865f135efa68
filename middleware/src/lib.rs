//! Doorman.

mod admission;
mod body;
mod clock;
mod cost;
mod demand;
mod future;
mod headers;
mod key;
mod layer;
pub mod lease;
mod limit;
mod limiter;
mod rate;
mod refusal;
mod service;

pub use body::LimitBody;
pub use cost::{Cost, InvalidCost};
pub use doorman_openapi::{Capacity, ResourceId};
pub use future::ResponseFuture;
pub use key::{InvalidKey, Key, MissingKey, PeerAddr, RequestHead};
pub use layer::LimitLayer;
pub use limit::{Limit, OnLimit};
pub use limiter::Fallback;
pub use rate::Rate;
pub use refusal::{Refusal, RefusalReason};
pub use service::LimitService;
