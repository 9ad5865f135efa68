//! The listener: takes connections in, keeps them within their time, and lets them go when the server stops.
//!
//! `accept` takes them in, `crowd` owns them, and decides which of them make room when all `places` are taken; `connection` serves one
//! of them, `patience` decides when one has been waited for long enough, and `watched` tells it what moves.

mod accept;
mod connection;
mod crowd;
mod patience;
mod places;
mod watched;

#[cfg(test)]
mod tests;

pub(crate) use self::accept::Listener;
