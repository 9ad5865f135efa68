//! The document follows its file. An invalid file leaves the active document in place. Every active
//! document is stored in the data directory, for a start that finds the file invalid.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use doorman_config::{Document, FileSource, LastGoodFile, RawDocument};
use doorman_openapi::Moment;
use tokio::task;

use super::ActiveDocument;
use crate::util::{
    clock,
    follow::{FileFollower, POLL_INTERVAL},
};

/// Reads after which a file that changes all the time is applied as it is: after some 5 s.
const MAX_READS: usize = 20;

/// The content of the file, or why it could not be read.
type Content = Result<RawDocument, String>;

/// Applies changes of the file until the ledger is poisoned.
pub(super) async fn follow(source: FileSource, data_dir: PathBuf, active: Arc<ActiveDocument>) {
    let mut last_valid = LastValidWriter::new(source.to_string(), &data_dir);
    let mut follower = FileFollower::new([source.directory()], {
        let source = source.clone();
        move || source.read().map_err(|error| error.full_message())
    })
    .with_max_reads(MAX_READS);
    let mut seen = None;
    loop {
        let content = follower.next(|it| seen.as_ref() == Some(it)).await;
        if seen.as_ref() != Some(&content) {
            if !apply(&active, &source, content.clone()).await {
                return;
            }
            seen = Some(content);
        }
        last_valid.write(active.get()).await;
    }
}

/// Activates the content if it is a new valid document; `false` when the ledger is poisoned.
async fn apply(active: &ActiveDocument, source: &FileSource, content: Content) -> bool {
    let document = match parse(content).await {
        Ok(document) => Arc::new(document),
        Err(error) => {
            // The start may have found and logged it already.
            if !active.has_rejected(&error) {
                tracing::error!(%source, "invalid document; the active one stays: {error}");
                active.reject(&error);
            }
            return true;
        }
    };
    active.reload(source, &document).is_ok()
}

async fn parse(content: Content) -> Result<Document, String> {
    let content = content?;
    let parsed = task::spawn_blocking(move || content.document()).await;
    parsed
        .map_err(|error| error.to_string())?
        .map_err(|error| error.full_message())
}

#[derive(Debug)]
pub(super) struct LastValidWriter {
    /// The name of the source.
    source: String,
    file: LastGoodFile,
    written: Option<Arc<Document>>,
    /// The document that could not be written, and when to retry. Every attempt changes the data
    /// directory. If the followed file is in it, an immediate retry would wake the follower again.
    failed: Option<(Arc<Document>, Moment)>,
}

impl LastValidWriter {
    pub(super) fn new(source: String, data_dir: &Path) -> Self {
        Self {
            source,
            file: LastGoodFile::in_dir(data_dir),
            written: None,
            failed: None,
        }
    }

    /// Writes a document unless it is written already, or has just failed.
    pub(super) async fn write(&mut self, document: Arc<Document>) {
        let is_this = |other: &Arc<Document>| Arc::ptr_eq(other, &document);
        let is_early = |(failed, retry): &(_, Moment)| is_this(failed) && clock::now() < *retry;
        if self.written.as_ref().is_some_and(is_this) || self.failed.as_ref().is_some_and(is_early)
        {
            return;
        }
        let written = task::spawn_blocking({
            let (source, file) = (self.source.clone(), self.file.clone());
            let document = Arc::clone(&document);
            move || file.save(&source, &document)
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
                        "cannot write last valid document, will retry; until then, a start \
                         without a valid one uses an older one"
                    );
                }
                self.failed = Some((document, clock::now().after(POLL_INTERVAL)));
            }
        }
    }
}
