//! The control plane of Doorman without IO and without a clock: state machines that decide on
//! leases. Events and the time go in, effects come out.
//!
//! The [`ledger`] decides on leases. A [`reign`] is the time in which a server may use its ledger;
//! the [`election`] begins and ends reigns, and keeps its state in [`etcd`] or in a data directory.
//! [`upstream`] leases the capacity of a node from its parent. [`master`] combines them into one
//! server of a node; begin there. The server connects them to HTTP, the document and the data
//! directory; the simulation runs them in virtual time.

pub mod election;
pub mod etcd;
pub mod ledger;
pub mod master;
pub mod reign;
mod rounded;
pub mod upstream;

pub use self::rounded::rounded;
