//! The document of a start: opens its source.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use doorman_config::{Document, OpenError, OpenedStore, Source, Store};
use futures_util::future::BoxFuture;
use tokio::task;

use super::{ActiveDocument, DocumentStore, EtcdStore, file};
use crate::{etcd::EtcdClient, util::clock};

/// How the document of a start relates to its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DocumentState {
    /// It is the newest of its source.
    Current,
    /// It is the newest, but the store cannot be written.
    ReadOnly,
    /// A newer one is invalid, lost, or out of reach.
    Outdated,
}

/// The document that a server starts with, and the source of its changes.
pub(crate) struct OpenedDocument {
    pub(crate) document: Arc<Document>,
    pub(crate) state: DocumentState,
    /// Why it is not [`DocumentState::Current`].
    pub(crate) error: Option<String>,
    pub(crate) store: DocumentStore,
    pub(crate) follower: Option<DocumentFollower>,
}

/// Applies changes that others make to the source, until the ledger is poisoned.
pub(crate) type DocumentFollower =
    Box<dyn FnOnce(Arc<ActiveDocument>) -> BoxFuture<'static, ()> + Send>;

/// Why there is no document to start with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenDocumentError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The document is in etcd, but etcd is not configured.
    #[error("the document is in etcd: pass --etcd-endpoints")]
    NoEtcd,
    /// etcd has no document that can be used.
    #[error("{0}; the data directory has no valid document of this source either")]
    NoDocument(String),
}

impl OpenedDocument {
    /// Opens `source`. `first` is the document of a file, or the first one of a new store; `error`
    /// says that it is older than the file.
    ///
    /// # Errors
    /// [`OpenDocumentError`] when a store cannot be used at all. An invalid stored document is no
    /// error.
    pub(crate) async fn open(
        source: Option<Source>,
        first: Arc<Document>,
        error: Option<String>,
        data_dir: PathBuf,
        etcd: Option<EtcdClient>,
    ) -> Result<Self, OpenDocumentError> {
        match source {
            Some(Source::Sqlite(path)) => Ok(Self::open_store(path, first).await?),
            Some(Source::File(source)) => {
                if let Some(error) = &error {
                    tracing::error!("invalid document; the last valid one stays active: {error}");
                }
                let follower: DocumentFollower =
                    Box::new(|active| Box::pin(file::follow(source, data_dir, active)));
                Ok(Self {
                    follower: Some(follower),
                    ..Self::new(first, error, DocumentStore::ReadOnly)
                })
            }
            Some(Source::Etcd(prefix)) => {
                let client = etcd.ok_or(OpenDocumentError::NoEtcd)?;
                let opened = EtcdStore::open(client, &prefix, &data_dir, first).await;
                let (store, document, error) =
                    opened.map_err(|failure| OpenDocumentError::NoDocument(failure.to_string()))?;
                if let Some(error) = &error {
                    tracing::error!("document is outdated: {error}");
                }
                let store = Arc::new(store);
                let followed = Arc::clone(&store);
                let follower: DocumentFollower = Box::new(|it| Box::pin(followed.follow(it)));
                Ok(Self {
                    follower: Some(follower),
                    ..Self::new(document, error, DocumentStore::Etcd(store))
                })
            }
            None => Ok(Self::new(first, None, DocumentStore::ReadOnly)),
        }
    }

    fn new(document: Arc<Document>, error: Option<String>, store: DocumentStore) -> Self {
        Self {
            document,
            state: match error {
                Some(_) => DocumentState::Outdated,
                None => DocumentState::Current,
            },
            error,
            store,
            follower: None,
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
        } = opened
            .await
            .map_err(|error| OpenError::Io(path, error.into()))??;
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
            store: DocumentStore::Sqlite(Mutex::new(store)),
            follower: None,
        })
    }
}
