//! What is counted for those who watch the process, through the `metrics` facade: see the crate's own page for the list.
//!
//! Without the feature the same calls count nothing and hold nothing.

#[cfg(feature = "metrics")]
mod decisions;
#[cfg(feature = "metrics")]
mod leases;
#[cfg(feature = "metrics")]
mod meters;
#[cfg(not(feature = "metrics"))]
mod silent;
#[cfg(feature = "metrics")]
#[cfg(test)]
pub(crate) mod testing;
#[cfg(feature = "metrics")]
#[cfg(test)]
mod tests;
mod visit;

#[cfg(not(feature = "metrics"))]
pub(crate) use self::silent::{LeaseMeter, LeasePhase, LimitMeter, Meters};
pub(crate) use self::visit::Visit;
#[cfg(feature = "metrics")]
pub(crate) use self::{
    decisions::LimitMeter,
    leases::{LeaseMeter, LeasePhase},
    meters::Meters,
};
use crate::RefusalReason;

/// What becomes of a request at one limit, unless it is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The limit refuses it.
    Refused(RefusalReason),
    /// The limit does not apply to it: its key is missing, or the program says so.
    Skipped,
    /// The limit is only tried out, and would have refused it.
    Shadow,
    /// Its caller went away while it waited for its turn.
    Gone,
}
