//! Mastership of this server: executes what its [`Election`](doorman_core::election::Election)
//! decides.
//!
//! The driver feeds events and the time to the state machine, begins and ends the reign in the
//! [`SharedLedger`](crate::leasing::SharedLedger), and keeps the durable bound ahead of the leases.
//! `start` chooses the election, `disk` and `etcd` execute its calls. `handover` sends the ledger
//! to the next master, `fetch` receives it, and `peers` is the client.

mod disk;
mod driver;
mod etcd;
mod fetch;
mod handover;
mod peers;
mod start;

#[cfg(test)]
mod tests;

pub use self::start::OtherNode;
pub(crate) use self::{
    driver::{EarlierLeaseLength, Parts, Resignation},
    fetch::handover_counts,
    handover::HandoverOffer,
    peers::Peers,
    start::{Candidate, Mastership, node_name},
};
