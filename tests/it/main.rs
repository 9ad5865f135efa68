//! The whole system through its public doors: real processes, real sockets, real time.
//!
//! `support` starts what is tested; every other file is one capability. What can be tested without a process is tested beside its
//! code.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that is mistaken in what there is has failed"
)]

mod conformance;
mod delivery;
mod fleet;
mod grpc;
mod guides;
mod hostile;
mod hyper;
mod identity;
mod idle;
mod imports;
mod last_good;
mod limits;
mod log;
mod outage;
mod packages;
mod reload;
mod restart;
mod rules;
mod service;
mod shutdown;
mod start;
mod store;
mod support;
mod suspended;
mod tables;
mod tenants;
mod tls;
mod typescript;
