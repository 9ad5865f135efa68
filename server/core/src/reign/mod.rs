//! The reign of a server: the time in which it is master, and all that it may use only then.
//!
//! A reign is a value that a server has or does not have. Its ledger is reachable only before its
//! deadline, and no lease is reported beyond its [bound](DurableBound).

mod bound;
mod terms;
mod writes;

use std::sync::Arc;

use doorman_config::Document;
use doorman_openapi::{Epoch, Moment};

pub use self::{
    bound::{Bound, DurableBound},
    terms::{DueTerms, DurableTerms, TermsGeneration, earlier_terms},
    writes::BoundWrites,
};
use crate::ledger::Ledger;

/// The epoch of a master, its ledger, the time until which it is master, and the bound of its
/// leases.
#[derive(Debug)]
pub struct Reign {
    epoch: Epoch,
    deadline: Moment,
    ledger: Ledger,
    bound: DurableBound,
}

impl Reign {
    /// Begins a reign that ends at `deadline`, unless it is extended.
    #[must_use]
    pub fn new(epoch: Epoch, deadline: Moment, ledger: Ledger, bound: DurableBound) -> Self {
        let mut reign = Self {
            epoch,
            deadline,
            ledger,
            bound,
        };
        reign.note_terms();
        reign
    }

    /// Requires that new terms of the ledger become durable, before a lease under them is reported.
    /// To be called after each change of the ledger.
    pub fn note_terms(&mut self) {
        if let Some(terms) = self.ledger.take_granting_terms() {
            self.bound.note_terms(terms);
        }
    }

    /// Puts a document in force.
    pub fn reconfigure(&mut self, document: &Arc<Document>) {
        self.ledger.reconfigure(Arc::clone(document));
        self.note_terms();
    }

    /// The epoch that responses carry.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// When another server may be master, by this server's clock.
    #[must_use]
    pub fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Moves the deadline; never back.
    pub fn extend(&mut self, deadline: Moment) {
        self.deadline = self.deadline.max(deadline);
    }

    /// The bound of all leases of this reign.
    #[must_use]
    pub fn bound(&self) -> &DurableBound {
        &self.bound
    }

    /// The bound, to record what is durable.
    pub fn bound_mut(&mut self) -> &mut DurableBound {
        &mut self.bound
    }

    /// The ledger, to decide or to read at `now`; `None` from the deadline on.
    pub fn ledger(&mut self, now: Moment) -> Option<&mut Ledger> {
        (now < self.deadline).then_some(&mut self.ledger)
    }

    /// Ends the reign, and returns the ledger for the next master.
    #[must_use]
    pub fn into_ledger(self) -> Ledger {
        self.ledger
    }
}
