//! End-to-end tests: real processes, real sockets, real time.
//!
//! `support` starts the processes. Every other file tests one capability. Whatever can be tested
//! without a process is tested next to its code.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic fails the test"
)]

mod agent;
mod commands;
mod conformance;
mod costs;
mod deploy;
mod etcd;
mod etcd_document;
mod failover;
mod feedback;
mod fleet;
mod gauges;
mod generated_clients;
mod grpc;
mod guides;
mod hints;
mod hostile;
mod identity;
mod imports;
mod kubernetes;
mod last_good;
mod later_releases;
mod limits;
mod log;
mod memory;
mod outage;
mod outbound;
mod packages;
mod priorities;
mod reload;
mod restart;
mod rules;
mod service;
mod shutdown;
mod situations;
mod start;
mod stopped;
mod store;
mod support;
mod tables;
mod tenants;
mod tls;
mod tree;
mod tree_faults;
mod tree_rules;
mod typescript;
