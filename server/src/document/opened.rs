//! The document of a start: opens its source.

use std::{path::PathBuf, sync::Arc};

use doorman_config::{Document, OpenError, OpenedStore, Source, Store};
use tokio::task;

use crate::{document::DocumentFile, util::clock};

/// The document that a server starts with, and the source of its changes.
#[derive(Debug)]
pub(crate) struct OpenedDocument {
    pub(crate) document: Arc<Document>,
    /// Why `document` is not the newest of its source.
    pub(crate) error: Option<String>,
    /// Where the document is changed over HTTP.
    pub(crate) store: Option<Store>,
    pub(crate) file: Option<DocumentFile>,
}

impl OpenedDocument {
    /// Opens `source`. `first` is the document of a file, or the first one of a new store; `error`
    /// says that it is older than the file.
    ///
    /// # Errors
    /// [`OpenError`] when a store cannot be used at all. An invalid stored document is no error.
    pub(crate) async fn open(
        source: Option<Source>,
        first: Arc<Document>,
        error: Option<String>,
        data_dir: PathBuf,
    ) -> Result<Self, OpenError> {
        match source {
            Some(Source::Sqlite(path)) => Self::open_store(path, first).await,
            Some(Source::File(file)) => {
                if let Some(error) = &error {
                    tracing::error!("invalid document; the last valid one stays active: {error}");
                }
                Ok(Self {
                    document: first,
                    error,
                    store: None,
                    file: Some(DocumentFile::new(file, data_dir)),
                })
            }
            None => Ok(Self {
                document: first,
                error: None,
                store: None,
                file: None,
            }),
        }
    }

    async fn open_store(path: PathBuf, first: Arc<Document>) -> Result<Self, OpenError> {
        let opened = task::spawn_blocking({
            let path = path.clone();
            move || Store::open(&path, &first, clock::unix_seconds())
        });
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
        let error = (!problems.is_empty()).then(|| problems.join("\n"));
        if let Some(error) = &error {
            tracing::error!("the stored document is damaged: {error}");
        }
        Ok(Self {
            document: Arc::new(document),
            error,
            store: Some(store),
            file: None,
        })
    }
}
