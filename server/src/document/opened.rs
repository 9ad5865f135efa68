//! The document of a start: opens its source.

use std::{path::PathBuf, sync::Arc};

use doorman_config::{Document, OpenError, OpenedStore, Source, Store};
use tokio::task;

use crate::{document::DocumentFile, util::clock};

/// How the document of a start relates to its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DocumentState {
    /// It is the newest of its source.
    Current,
    /// It is the newest, but the store cannot be written.
    ReadOnly,
    /// A newer one is invalid, or lost.
    Outdated,
}

/// The document that a server starts with, and the source of its changes.
#[derive(Debug)]
pub(crate) struct OpenedDocument {
    pub(crate) document: Arc<Document>,
    pub(crate) state: DocumentState,
    /// Why it is not [`DocumentState::Current`].
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
                    state: match error {
                        Some(_) => DocumentState::Outdated,
                        None => DocumentState::Current,
                    },
                    error,
                    store: None,
                    file: Some(DocumentFile::new(file, data_dir)),
                })
            }
            None => Ok(Self {
                document: first,
                state: DocumentState::Current,
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
            mut problems,
            read_only,
        } = opened.await.map_err(|error| OpenError::Io {
            path,
            source: error.into(),
        })??;
        for warning in document.warnings() {
            tracing::warn!("{}: {warning}", store.path().display());
        }
        let state = if !problems.is_empty() {
            tracing::error!("stored document is damaged: {}", problems.join("\n"));
            DocumentState::Outdated
        } else if read_only.is_some() {
            DocumentState::ReadOnly
        } else {
            DocumentState::Current
        };
        if let Some(read_only) = read_only {
            tracing::error!("cannot write document store: {read_only}");
            problems.push(read_only);
        }
        Ok(Self {
            document: Arc::new(document),
            state,
            error: (!problems.is_empty()).then(|| problems.join("\n")),
            store: Some(store),
            file: None,
        })
    }
}
