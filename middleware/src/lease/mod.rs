//! Leasing: requests capacity from the control plane and renews it.
//!
//! [`Holder`] is the protocol as a pure state machine without IO, of the package `doorman-holder`.
//! [`Worker`] is the task around it: it keeps the time, sends requests and publishes leases.
//! [`SimulatedLayer`] stands for both in simulated time.

mod client;
mod parent;
#[cfg(test)]
#[path = "../../holder/src/testing.rs"]
pub(crate) mod testing;
#[cfg(feature = "reqwest")]
mod transport;
mod worker;

#[cfg(feature = "reqwest")]
pub use self::transport::HttpTransport;
pub use self::{
    client::{FetchedRules, Transport, TransportError},
    parent::{Hints, ParentClient},
    worker::{SimulatedLayer, Worker},
};
pub use doorman_holder::{
    ActiveLease, Demand, DemandBands, Effect, Event, Failure, FirstAnswer, HintPoller, Holder,
    HolderSettings, LeaseStatus, ResourceTerms, SharedBalance, Sharing, WAIT, Warning,
};

#[cfg(feature = "reqwest")]
pub(crate) use self::transport::{Certificates, Pem};
pub(crate) use self::{
    client::ControlPlaneClient,
    worker::{Command, IDLE_AFTER, WorkerParts},
};
