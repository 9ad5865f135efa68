//! Leasing: requests capacity from the control plane and renews it.
//!
//! [`Holder`] is the protocol as a pure state machine without IO, which a simulator can run.
//! [`Worker`] is the task around it: it keeps the time, sends requests and publishes leases.
//! [`SimulatedLayer`] stands for both in simulated time.

mod backoff;
mod client;
mod event;
mod hint_poller;
mod holder;
mod index;
mod parent;
mod servers;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(feature = "reqwest")]
mod transport;
mod worker;

#[cfg(feature = "reqwest")]
pub use self::transport::HttpTransport;
pub use self::{
    client::{FetchedRules, Transport, TransportError},
    event::{
        ActiveLease, Demand, DemandBands, Effect, Event, Failure, FirstAnswer, LeaseStatus,
        ResourceTerms, Warning,
    },
    hint_poller::{HintPoller, WAIT},
    holder::{Holder, HolderSettings},
    parent::{Hints, ParentClient},
    worker::{SimulatedLayer, Worker},
};
pub use crate::limiter::{SharedBalance, Sharing};

#[cfg(feature = "reqwest")]
pub(crate) use self::transport::{Certificates, Pem};
pub(crate) use self::{
    client::ControlPlaneClient,
    worker::{Command, IDLE_AFTER, WorkerParts},
};
