//! The listener: takes connections in, keeps them within their time, and lets them go when the server stops.
//!
//! `accept` takes them in, through a `door` that closes behind those who have come; `connections` owns them, and decides which of them make
//! room when all `places` are taken. A `connection` is opened, for which TLS takes a `handshake` that makes an `encrypted` stream; then it is
//! `resting`, which costs little, or `awake`, in the hands of hyper, by turns; `serving` says with what it is served and when it rests.
//! Its `keeper` watches over it in all states: `patience` decides when it has been waited for long enough, by its `activity`, which
//! the stream (`watched`) and the `bodies` keep.

mod accept;
mod activity;
mod awake;
mod begun;
mod bodies;
mod connection;
mod connections;
mod door;
mod encrypted;
mod handshake;
mod keeper;
mod patience;
mod places;
mod resting;
mod serving;
pub(crate) mod tls;
mod watched;

#[cfg(test)]
mod tests;

pub(crate) use self::{accept::Listener, connections::ConnectionMetrics};
