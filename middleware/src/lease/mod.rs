//! The leasing side: what asks the control plane for capacity, and keeps it.
//!
//! [`Holder`] is the whole protocol as a pure state machine: it is told what happened and what time it is, and answers with what to
//! do. It does no IO, so that it runs in a simulator as it runs in a service. The worker around it keeps the time, carries the
//! requests and tells the limiters.

mod agenda;
mod backoff;
mod batch;
mod endpoints;
mod entry;
mod event;
mod holder;
mod rarely;
mod reign;
mod resources;
#[cfg(test)]
mod testing;
mod told;

pub use event::{Demand, Effect, Event, Failure, Holding, Leased, Told, Warning};
pub use holder::{Holder, HolderSettings};
