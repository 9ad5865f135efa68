//! The holder's side of the lease protocol, without IO: events and time in, effects out.
//!
//! A client, or a node of the control plane, that leases capacity runs these state machines.
//! [`Holder`] requests leases, renews them, reacts to failures and polls for hints. The package has
//! no clock, no sockets and no limiter: `tower-doorman` is the layer around it, and a simulator or
//! a model checker runs the same code. The protocol is described in `docs/LEASES.md` of the
//! repository.

mod backoff;
mod event;
mod hint_poller;
mod holder;
mod index;
mod log_throttle;
mod servers;
#[cfg(test)]
mod testing;
mod tuning;

pub use self::{
    backoff::{Backoff, DEFAULT_RETRY_AFTER, LongestPause, MAX_RETRY_AFTER},
    event::{
        ActiveLease, Demand, DemandBands, Effect, Event, Failure, Feedback, FirstAnswer,
        GrownBucket, LeaseStatus, ResourceTerms, SeenLimit, SharedBalance, Sharing, Warning,
    },
    hint_poller::{GRACE, WAIT, hint_count},
    holder::{FOLLOW_UP_INTERVAL, Holder, HolderSettings, TemplateTerms},
    index::{Dense, Names, OwnNames, ResourceIndex, Timer, TimerHeap},
    log_throttle::LogThrottle,
    servers::{Endpoints, Retry},
    tuning::Tuning,
};
