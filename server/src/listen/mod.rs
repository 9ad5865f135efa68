//! The listener: takes connections in, keeps them within their time, and lets them go when the server stops.
//!
//! `accept` owns the connections, `connection` serves one of them, `patience` decides when one has been waited for long enough, and
//! `watched` tells it what moves.

mod accept;
mod connection;
mod patience;
mod watched;

#[cfg(test)]
mod tests;

pub(crate) use self::accept::Listener;
