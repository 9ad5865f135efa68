//! The law of feedback: moves the effective capacity of a resource by what holders say became of
//! their requests. No IO, no clock, and nothing of the ledger: reports and sums are arguments.
//!
//! The law does not search, it measures. It knows what is leased, and what part of that the target
//! refuses; so a window after a drop it knows what the target accepts, goes just below it in one
//! step, and tries more only under load.
//!
//! | file | topic |
//! |---|---|
//! | `control` | the state of a resource, and the order of the rules |
//! | `report`, `traffic` | what a holder reports, and what all did lately |
//! | `holder` | the evidence of one holder, and whether it suffers alone |
//! | `window`, `survey` | the outcomes that a verdict is about |
//! | `cut`, `gauge` | the verdict on a rate and on a gauge |
//! | `growth`, `probe` | more under load, in steps, after a hold |
//! | `baseline` | refusals that do not depend on the load |
//! | `pauses`, `pace` | what the target says of itself: `Retry-After`, and its own limit |
//! | `level` | the level, and whether holders follow it |
//! | `rules` | rules that a simulation can leave out |
//! | `status`, `record` | for views, and for the successor |

mod baseline;
pub(in crate::ledger) mod control;
mod cut;
mod gauge;
mod growth;
pub(in crate::ledger) mod holder;
mod level;
mod pace;
mod pauses;
mod probe;
pub(in crate::ledger) mod record;
pub(in crate::ledger) mod report;
pub(in crate::ledger) mod rules;
pub(in crate::ledger) mod slots;
pub(in crate::ledger) mod status;
mod survey;
pub(in crate::ledger) mod terms;
mod traffic;
mod window;

#[cfg(test)]
mod tests;
