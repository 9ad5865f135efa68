//! Leasing: requests capacity from the control plane and renews it.
//!
//! [`Holder`] is the protocol as a pure state machine without IO, of the package `doorman-holder`.
//! [`Worker`] is the task around it: it keeps the time, sends requests and publishes leases.

mod client;
mod engine;
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
pub use self::transport::{Certificates, HttpTransport, Pem};
pub use self::{
    client::{
        ControlPlaneClient, FetchedHints, FetchedRules, Outcome, Outgoing, Progress, RequestError,
        Transport, TransportError, named_master, retry_after,
    },
    worker::Worker,
};
pub use doorman_holder::{
    ActiveLease, Demand, DemandBands, Effect, Event, Failure, Feedback, FirstAnswer, GRACE, Holder,
    HolderSettings, LeaseStatus, ResourceTerms, SeenLimit, SharedBalance, Sharing, WAIT, Warning,
};

pub(crate) use self::{
    engine::Engine,
    worker::{Command, IDLE_AFTER, WorkerParts},
};
