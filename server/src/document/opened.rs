//! The document of a start: what is kept of it where, and which one counts.

use std::sync::Arc;

use doorman_config::{Document, OpenError, OpenedStore, Source, Store};
use tokio::task;

use crate::{
    document::reload::{Followed, InForce},
    settings::Settings,
    util::clock,
};

/// The document that a server starts with, and where its changes come from.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) document: Arc<Document>,
    pub(crate) in_force: InForce,
    /// Where the document is changed over HTTP.
    pub(crate) store: Option<Store>,
    /// The file that is followed.
    pub(crate) file: Option<Followed>,
}

impl Kept {
    /// Takes up the source of the settings, of which their document is what it says, or what a fresh store begins with.
    ///
    /// # Errors
    /// [`OpenError`] when a store cannot be used at all. What is stored in it cannot stop a start.
    pub(crate) async fn open(settings: &Settings) -> Result<Self, OpenError> {
        let first = Arc::clone(&settings.document);
        let path = match settings.follows.clone() {
            None => return Ok(Self::fixed(first, None)),
            Some(Source::File(file)) => {
                let mut kept = Self::fixed(first, Some(Followed::new(file, &settings.data_dir)));
                if let Some(fault) = settings.document_fault.clone() {
                    tracing::error!(
                        "the document is wrong, and what it was when it was last good counts:\n{fault}"
                    );
                    kept.in_force.refuse(&fault);
                }
                return Ok(kept);
            }
            Some(Source::Sqlite(path)) => path,
        };
        let place = path.clone();
        let opened =
            task::spawn_blocking(move || Store::open(&place, &first, clock::unix_seconds()));
        let OpenedStore {
            store,
            document,
            problems,
        } = opened.await.map_err(|error| OpenError::Io {
            path,
            source: error.into(),
        })??;
        for warning in document.warnings() {
            tracing::warn!("{}: {warning}", store.path().display());
        }
        let document = Arc::new(document);
        let mut in_force = InForce::new(Arc::clone(&document));
        if !problems.is_empty() {
            let problems = problems.join("\n");
            tracing::error!("not all is well with the stored document:\n{problems}");
            in_force.refuse(&problems);
        }
        Ok(Self {
            document,
            in_force,
            store: Some(store),
            file: None,
        })
    }

    fn fixed(document: Arc<Document>, file: Option<Followed>) -> Self {
        Self {
            in_force: InForce::new(Arc::clone(&document)),
            document,
            store: None,
            file,
        }
    }
}
