//! Leasing: requests capacity from the control plane and renews it.
//!
//! [`Holder`] is the protocol as a pure state machine without IO, of the package `doorman-holder`.
//! [`Worker`] is the task around it: it keeps the time, sends requests and publishes leases.

mod client;
mod engine;
mod parent;
#[cfg(any(test, feature = "simulation"))]
mod simulated;
#[cfg(test)]
#[path = "../../holder/src/testing.rs"]
pub(crate) mod testing;
#[cfg(feature = "reqwest")]
mod transport;
mod worker;

#[cfg(any(test, feature = "simulation"))]
pub use self::simulated::SimulatedLayer;
#[cfg(feature = "reqwest")]
pub use self::transport::HttpTransport;
pub use self::{
    client::{FetchedRules, Transport, TransportError},
    parent::{Hints, ParentClient},
    worker::Worker,
};
pub use doorman_holder::{
    ActiveLease, Demand, DemandBands, Effect, Event, Failure, FirstAnswer, GRACE, Holder,
    HolderSettings, LeaseStatus, ResourceTerms, SharedBalance, Sharing, WAIT, Warning,
};

#[cfg(feature = "reqwest")]
pub(crate) use self::transport::{Certificates, Pem};
pub(crate) use self::{
    client::ControlPlaneClient,
    engine::Engine,
    worker::{Command, IDLE_AFTER, WorkerParts},
};
