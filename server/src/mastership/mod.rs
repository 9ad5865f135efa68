//! Mastership of this server: executes what its [`Election`](crate::election::Election) decides.
//!
//! The driver feeds events and the time to the state machine, begins and ends the reign in the
//! [`SharedLedger`](crate::leasing::SharedLedger), and keeps the durable bound ahead of the leases.
//! `start` chooses the election, `disk` and `etcd` execute its calls. `handover` passes the ledger
//! on.

mod disk;
mod driver;
mod etcd;
mod handover;
mod start;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    disk::Disk,
    driver::{Driver, Executor, Parts, Resignation},
    etcd::Etcd,
    handover::{HandoverOffer, Peers},
    start::{Candidate, Mastership, node_name},
};
pub use self::{handover::PeersError, start::OtherNode};
