//! The listener and its connections: accept loop, TLS, timeouts, eviction and graceful shutdown.
//!
//! [`listener`] accepts connections, [`connections`] owns their tasks. A [`connection`] is opened
//! (by a handshake, with [`tls`]), then alternates between parked and served by hyper through the
//! [`service`]. A request may wait for its handler in the [`request_slot`] meanwhile. Over HTTP/2
//! [`control_frames`] are limited. The [`supervisor`] closes the connection after a timeout, on
//! eviction or at shutdown, depending on its [`activity`], which the [`stream`] and the bodies
//! record.

mod activity;
mod connection;
mod connections;
mod control_frames;
mod listener;
mod request_slot;
mod service;
mod socket;
mod stream;
mod supervisor;
pub(crate) mod tls;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    activity::NoTimeout, connections::ConnectionMetrics, listener::Listener, socket::UnixSocket,
};
