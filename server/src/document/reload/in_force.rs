//! The document in force, and what became of the changes of its source.

use std::{borrow::Cow, sync::Arc};

use doorman_config::Document;

use crate::util::clock;

/// The most that is told of what is wrong with a document, in bytes.
const MOST_TOLD: usize = 4096;

/// The document in force, and what became of the changes of its source.
#[derive(Debug)]
pub(crate) struct InForce {
    document: Arc<Document>,
    error: Option<String>,
    reloads: Reloads,
}

/// How often the source had changed, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reloads {
    /// Changes that came into force.
    pub(crate) applied: u64,
    /// Changes that were refused.
    pub(crate) refused: u64,
    /// When the document that is in force came into force, in Unix seconds.
    pub(crate) since: u64,
}

impl InForce {
    /// The document of the start.
    pub(crate) fn new(document: Arc<Document>) -> Self {
        Self {
            document,
            error: None,
            reloads: Reloads {
                applied: 0,
                refused: 0,
                since: clock::unix_seconds(),
            },
        }
    }

    pub(crate) fn document(&self) -> &Arc<Document> {
        &self.document
    }

    /// Why the last change was refused; `None` while the document in force is that of the source.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    pub(crate) fn reloads(&self) -> Reloads {
        self.reloads
    }

    /// A new document is in force.
    pub(crate) fn replace(&mut self, document: Arc<Document>) {
        self.document = document;
        self.error = None;
        self.reloads.applied = self.reloads.applied.saturating_add(1);
        self.reloads.since = clock::unix_seconds();
    }

    /// The source says what is in force already.
    pub(super) fn is_current(&mut self) {
        self.error = None;
    }

    /// Whether the source was refused for this reason, and nothing has become of it since.
    pub(super) fn has_refused(&self, reason: &str) -> bool {
        self.error
            .as_ref()
            .is_some_and(|error| *error == told(reason))
    }

    /// The source says what cannot come into force.
    pub(crate) fn refuse(&mut self, reason: &str) {
        self.error = Some(told(reason).into_owned());
        self.reloads.refused = self.reloads.refused.saturating_add(1);
    }
}

/// What is told of a reason.
fn told(reason: &str) -> Cow<'_, str> {
    let longer = reason.char_indices().find(|(at, _)| *at >= MOST_TOLD);
    match longer.and_then(|(end, _)| reason.get(..end)) {
        Some(start) => format!("{start}…").into(),
        None => reason.into(),
    }
}
