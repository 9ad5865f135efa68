//! A new document comes into force, without a long hold of the books.

use std::sync::Arc;

use doorman_config::Document;
use doorman_openapi::Moment;

use super::{Ledger, Live, Terms, terms};

impl Ledger {
    /// Puts a new document in force. No lease is lost: what stands stands until its next refresh or end.
    ///
    /// It costs no more with many live resources: each takes its new terms when it is next asked for. Until then
    /// operators are shown what it will be by the new terms, and what ends of it ends as before.
    pub fn reconfigure(&mut self, document: Arc<Document>) {
        self.document = document;
        self.generation = self.generation.saturating_add(1);
    }

    /// The terms that a resource should have, when those it has are of an older document.
    pub(super) fn newer_terms(&self, live: &Live) -> Option<(Terms, Moment)> {
        (live.generation != self.generation)
            .then(|| terms(&self.document, self.settings, self.started, &live.id))
    }

    /// Gives a resource its terms, if those it has are of an older document.
    pub(super) fn adopt(&mut self, key: u32, now: Moment) {
        let newer = self
            .live
            .get(key as usize)
            .and_then(|live| self.newer_terms(live));
        if let Some((terms, learning_until)) = newer
            && let Some(live) = self.live.get(key as usize)
        {
            let was_too_short =
                self.learns_too_short(live.resource.terms(), live.resource.learning_until(), now);
            let is_too_short = self.learns_too_short(&terms, learning_until, now);
            self.count_short_learning(is_too_short && !was_too_short);
            if let Some(live) = self.live.get_mut(key as usize) {
                live.resource.set_terms(terms, learning_until, now);
                live.generation = self.generation;
            }
        }
    }
}
