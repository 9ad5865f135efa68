//! The document that leases are decided by.

use std::{
    borrow::Cow,
    fmt::Display,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use doorman_config::{Document, DocumentDiff};

use crate::{
    leasing::LedgerUnavailable, leasing::SharedLedger, observe::metrics::Outcomes, util::clock,
};

/// The most bytes of a stored error.
const MAX_ERROR_BYTES: usize = 4096;

/// The document that leases are decided by, and the last error of its source.
#[derive(Debug)]
pub(crate) struct ActiveDocument {
    pub(super) ledger: Arc<SharedLedger>,
    /// Held while a document becomes active: one at a time.
    activating: Mutex<()>,
    state: Mutex<Current>,
    pub(crate) reloads: Outcomes,
}

#[derive(Debug)]
struct Current {
    document: Arc<Document>,
    error: Option<String>,
    /// When the document became active, in Unix seconds.
    since: u64,
}

impl ActiveDocument {
    pub(crate) fn new(ledger: Arc<SharedLedger>, document: Arc<Document>) -> Self {
        Self {
            ledger,
            activating: Mutex::new(()),
            state: Mutex::new(Current {
                document,
                error: None,
                since: clock::unix_seconds(),
            }),
            reloads: Outcomes::new(["applied", "refused"]),
        }
    }

    pub(crate) fn get(&self) -> Arc<Document> {
        Arc::clone(&self.state().document)
    }

    pub(crate) fn error(&self) -> Option<String> {
        self.state().error.clone()
    }

    /// When the document became active, in Unix seconds.
    pub(crate) fn since(&self) -> u64 {
        self.state().since
    }

    /// Activates a document. Holders see it at their next refresh, or by a poll for hints.
    pub(crate) fn activate(&self, document: &Arc<Document>) -> Result<(), LedgerUnavailable> {
        let _activating = self.activating.lock();
        // Keeps the old documents alive, so that they are not dropped under a lock.
        let old = self.get();
        drop(self.ledger.reconfigure(document)?);
        let mut state = self.state();
        state.document = Arc::clone(document);
        state.error = None;
        state.since = clock::unix_seconds();
        drop(state);
        self.reloads.count("applied");
        if old.rules() != document.rules() {
            self.ledger.polls().announce_rules();
        }
        Ok(())
    }

    /// Activates a document that its source has now, unless it is active already.
    pub(super) fn reload(
        &self,
        source: &dyn Display,
        document: &Arc<Document>,
    ) -> Result<(), LedgerUnavailable> {
        let old = self.get();
        if old == *document {
            self.clear_error();
            return Ok(());
        }
        for warning in document.warnings() {
            tracing::warn!(%source, "{warning}");
        }
        self.activate(document)?;
        let changes = DocumentDiff::between(&old, document).summary();
        tracing::info!(%source, version = document.version(), "document reloaded: {changes}");
        Ok(())
    }

    /// Clears the error: the source holds the active document again.
    pub(super) fn clear_error(&self) {
        self.state().error = None;
    }

    /// Records that the source holds an invalid document.
    pub(crate) fn reject(&self, error: &str) {
        self.report(error);
        self.reloads.count("refused");
    }

    /// Sets the error without counting an invalid document.
    pub(super) fn report(&self, error: &str) {
        self.state().error = Some(truncated(error).into_owned());
    }

    pub(super) fn has_rejected(&self, error: &str) -> bool {
        self.state().error.as_deref() == Some(&*truncated(error))
    }

    fn state(&self) -> MutexGuard<'_, Current> {
        // Every statement leaves it consistent, so it stays usable after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn truncated(error: &str) -> Cow<'_, str> {
    let end = error.char_indices().find(|(at, _)| *at >= MAX_ERROR_BYTES);
    match end.and_then(|(end, _)| error.get(..end)) {
        Some(start) => format!("{start}…").into(),
        None => error.into(),
    }
}
