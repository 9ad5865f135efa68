//! The document follows its file while the server runs. An invalid change leaves the active
//! document in place.
//!
//! A change is seen by a watch on the directory, or at the latest by the next poll. It is applied
//! once the file has stayed the same for a moment: half of an edit in place may be a valid
//! document. Every applied document is stored in the data directory, for a start that finds the
//! file invalid.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use doorman_config::{Document, FileSource, LastGoodFile, RawDocument};
use doorman_openapi::Moment;
use tokio::{task, time::sleep};

use super::ActiveDocument;
use crate::util::{clock, watch::Watch};

/// How often the file is read without a notification: not every file system sends them.
pub(super) const POLL: Duration = Duration::from_secs(5);
/// How long the file must stay the same.
const SETTLE: Duration = Duration::from_millis(250);
/// After so many reads the file is taken as it is.
const MAX_READS: u32 = 20;

/// The content of the file, or why it could not be read.
type Content = Result<RawDocument, String>;

/// The file of the document.
#[derive(Debug)]
pub(crate) struct FollowedFile {
    source: FileSource,
    data_dir: PathBuf,
}

impl FollowedFile {
    pub(crate) fn new(source: FileSource, data_dir: PathBuf) -> Self {
        Self { source, data_dir }
    }

    /// Applies changes of the file until the ledger is poisoned.
    pub(crate) async fn follow(self, active: Arc<ActiveDocument>) {
        let source = &self.source;
        let mut last_valid = LastValidWriter::new(self.source.clone(), &self.data_dir);
        let mut watch = Watch::of([source.directory()]);
        let mut seen = None;
        loop {
            let content = settled(source, seen.as_ref()).await;
            if seen.as_ref() != Some(&content) && !apply(&active, source, &content).await {
                return;
            }
            seen = Some(content);
            last_valid.write(active.get()).await;
            tokio::select! {
                () = watch.changed() => {}
                () = sleep(POLL) => {}
            }
        }
    }
}

/// The content of the file once it stays the same; immediately when it is `seen`.
async fn settled(source: &FileSource, seen: Option<&Content>) -> Content {
    let mut content = read(source).await;
    for _ in 0..MAX_READS {
        if seen == Some(&content) {
            break;
        }
        sleep(SETTLE).await;
        let before = std::mem::replace(&mut content, read(source).await);
        if before == content {
            break;
        }
    }
    content
}

async fn read(source: &FileSource) -> Content {
    let source = source.clone();
    let read = task::spawn_blocking(move || source.read()).await;
    read.map_err(|error| error.to_string())?
        .map_err(|error| error.full_message())
}

/// Activates the content if it is a new valid document; `false` when the ledger is poisoned.
async fn apply(active: &ActiveDocument, source: &FileSource, content: &Content) -> bool {
    let document = match content.clone() {
        Ok(raw) => parse(raw).await,
        Err(error) => Err(error),
    };
    let document = match document {
        Ok(document) => Arc::new(document),
        Err(error) => {
            // The start may have found and logged it already.
            if !active.has_rejected(&error) {
                tracing::error!(%source, "invalid document; the active one stays:\n{error}");
                active.reject(&error);
            }
            return true;
        }
    };
    if active.get() == document {
        active.clear_error();
        return true;
    }
    for warning in document.warnings() {
        tracing::warn!(%source, "{warning}");
    }
    if active.activate(&document).is_err() {
        return false;
    }
    tracing::info!(%source, version = document.version(), "document reloaded");
    true
}

async fn parse(raw: RawDocument) -> Result<Document, String> {
    let parsed = task::spawn_blocking(move || raw.document()).await;
    parsed
        .map_err(|error| error.to_string())?
        .map_err(|error| error.full_message())
}

/// Stores the active document in the data directory.
#[derive(Debug)]
pub(super) struct LastValidWriter {
    source: FileSource,
    last_good: LastGoodFile,
    written: Option<Arc<Document>>,
    /// The document that could not be written, and when to retry. Every attempt changes the data
    /// directory. If the file is in it, retrying immediately would wake the watch again and again.
    failed: Option<(Arc<Document>, Moment)>,
}

impl LastValidWriter {
    pub(super) fn new(source: FileSource, data_dir: &std::path::Path) -> Self {
        Self {
            source,
            last_good: LastGoodFile::in_dir(data_dir),
            written: None,
            failed: None,
        }
    }

    /// Writes a document unless it is written already, or failed less than [`POLL`] ago.
    pub(super) async fn write(&mut self, document: Arc<Document>) {
        let is_this = |other: &Arc<Document>| Arc::ptr_eq(other, &document);
        let is_early = |(failed, retry): &(_, Moment)| is_this(failed) && clock::now() < *retry;
        if self.written.as_ref().is_some_and(is_this) || self.failed.as_ref().is_some_and(is_early)
        {
            return;
        }
        let written = task::spawn_blocking({
            let (source, last_good) = (self.source.clone(), self.last_good.clone());
            let document = Arc::clone(&document);
            move || last_good.save(&source, &document)
        });
        match written.await.map_err(io::Error::from).flatten() {
            Ok(()) => {
                if self.failed.take().is_some() {
                    tracing::info!("last valid document written again");
                }
                self.written = Some(document);
            }
            Err(error) => {
                if self.failed.is_none() {
                    tracing::warn!(
                        %error,
                        "cannot write last valid document; will retry; a start with an invalid \
                         file uses an older one"
                    );
                }
                self.failed = Some((document, clock::now().after(POLL)));
            }
        }
    }
}
