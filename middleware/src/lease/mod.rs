//! The leasing side: what asks the control plane for capacity, and keeps it.
//!
//! [`Holder`] is the whole protocol as a pure state machine: it is told what happened and what time it is, and answers with what to
//! do. It does no IO, so that it runs in a simulator as it runs in a service. The [`Worker`] around it keeps the time, carries the
//! requests and tells the limiters.

mod address;
mod agenda;
mod backoff;
mod batch;
mod call;
mod carrier;
mod endpoints;
mod entry;
mod event;
mod holder;
mod publish;
mod rarely;
mod reign;
mod reply;
mod resources;
mod roll;
mod rules;
#[cfg(test)]
pub(crate) mod testing;
mod told;
mod tracked;
#[cfg(feature = "reqwest")]
mod transport;
mod worker;

pub use address::InvalidAddress;
pub use carrier::{Transport, TransportError};
pub use event::{Demand, Effect, Event, Failure, Holding, Leased, Told, Warning};
pub use holder::{Holder, HolderSettings};
#[cfg(feature = "reqwest")]
pub use transport::HttpTransport;
pub use worker::Worker;

pub use crate::limiter::{SharedBalance, Sharing};

pub(crate) use address::Address;
pub(crate) use carrier::Carrier;
#[cfg(feature = "reqwest")]
pub(crate) use transport::{Certificates, Pem};
pub(crate) use worker::{Command, Parts};
