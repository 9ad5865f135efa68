//! What the source said when it was last good is kept for a start that finds it with a fault.

use std::{io, path::Path, sync::Arc};

use doorman_config::{Document, FileSource, LastGoodFile};
use doorman_openapi::Moment;
use tokio::task;

use super::LOOK;
use crate::util::clock;

/// Keeps the document that is in force.
#[derive(Debug)]
pub(super) struct Keeper {
    source: FileSource,
    last_good: LastGoodFile,
    kept: Option<Arc<Document>>,
    /// What could not be kept, and when it is tried again: to try is a change in the data directory, where the source may lie, too, and
    /// whoever follows it would be called at once.
    failed: Option<(Arc<Document>, Moment)>,
}

impl Keeper {
    /// Of a server with this data directory.
    pub(super) fn new(source: FileSource, data_dir: &Path) -> Self {
        Self {
            source,
            last_good: LastGoodFile::in_dir(data_dir),
            kept: None,
            failed: None,
        }
    }

    /// Keeps a document that is not kept yet. Where that fails, an older one would count at a start, so it is to be tried again; it is
    /// not before [`LOOK`] has passed.
    pub(super) async fn keep(&mut self, document: Arc<Document>) {
        let is_this = |other: &Arc<Document>| Arc::ptr_eq(other, &document);
        let is_early = |(failed, again): &(_, Moment)| is_this(failed) && clock::now() < *again;
        if self.kept.as_ref().is_some_and(is_this) || self.failed.as_ref().is_some_and(is_early) {
            return;
        }
        let (source, last_good) = (self.source.clone(), self.last_good.clone());
        let kept = Arc::clone(&document);
        let done = task::spawn_blocking(move || last_good.save(&source, &document)).await;
        match done.map_err(io::Error::from).flatten() {
            Ok(()) => {
                if self.failed.take().is_some() {
                    tracing::info!("the document is kept again");
                }
                self.kept = Some(kept);
            }
            Err(error) => {
                if self.failed.is_none() {
                    tracing::warn!(%error, "the document cannot be kept, which is tried again; until then, a start that finds its file with \
                        a fault goes on with what was kept before, if anything was");
                }
                self.failed = Some((kept, clock::now().after(LOOK)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_kept_is_not_tried_again_at_once() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("limits.yaml");
        fs::write(&file, "resources: []").unwrap();
        let source = FileSource::new(&file);
        let document = Arc::new(Document::built_in());
        // A file of this name cannot be put in the place of a folder.
        let place = home.path().join("file.last-good.json");
        fs::create_dir(&place).unwrap();
        let mut keeper = Keeper::new(source, home.path());
        keeper.keep(Arc::clone(&document)).await;

        fs::remove_dir(&place).unwrap();
        keeper.keep(Arc::clone(&document)).await;
        assert!(!place.exists());
        // Another is not put off.
        let other = Arc::new(Document::built_in());
        keeper.keep(other).await;
        assert!(place.is_file());

        fs::remove_file(&place).unwrap();
        fs::create_dir(&place).unwrap();
        keeper.keep(Arc::clone(&document)).await;
        fs::remove_dir(&place).unwrap();
        advance(LOOK).await;
        keeper.keep(document).await;
        assert!(place.is_file());
    }
}
