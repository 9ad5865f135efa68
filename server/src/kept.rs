//! The document of a start: what is kept of it where, and which one counts.

use std::sync::Arc;

use doorman_config::{Document, FileSource, OpenError, Opened, Source, Store};
use tokio::task;

use crate::{clock, reload::InForce};

/// The document that a server starts with, and where its changes come from.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) document: Arc<Document>,
    pub(crate) in_force: InForce,
    /// Where the document is changed over HTTP.
    pub(crate) store: Option<Store>,
    /// The file that is followed.
    pub(crate) file: Option<FileSource>,
}

impl Kept {
    /// Takes up a source, of which `first` is what it says, or what a fresh store begins with.
    ///
    /// # Errors
    /// [`OpenError`] when a store cannot be used at all. What is stored in it cannot stop a start.
    pub(crate) async fn open(
        source: Option<Source>,
        first: Arc<Document>,
    ) -> Result<Self, OpenError> {
        let path = match source {
            None => return Ok(Self::fixed(first, None)),
            Some(Source::File(file)) => return Ok(Self::fixed(first, Some(file))),
            Some(Source::Sqlite(path)) => path,
        };
        let place = path.clone();
        let opened =
            task::spawn_blocking(move || Store::open(&place, &first, clock::unix_seconds()));
        let Opened {
            store,
            document,
            faults,
        } = opened.await.map_err(|error| OpenError::Io {
            path,
            source: error.into(),
        })??;
        for warning in document.warnings() {
            tracing::warn!("{}: {warning}", store.path().display());
        }
        let document = Arc::new(document);
        let mut in_force = InForce::new(Arc::clone(&document));
        if !faults.is_empty() {
            let faults = faults.join("\n");
            tracing::error!("not all is well with the stored document:\n{faults}");
            in_force.refuse(faults);
        }
        Ok(Self {
            document,
            in_force,
            store: Some(store),
            file: None,
        })
    }

    fn fixed(document: Arc<Document>, file: Option<FileSource>) -> Self {
        Self {
            in_force: InForce::new(Arc::clone(&document)),
            document,
            store: None,
            file,
        }
    }
}
