//! What the source said when it was last good is kept for a start that finds it with a fault.

use std::{io, path::Path, sync::Arc};

use doorman_config::{Document, FileSource, LastGood};
use tokio::task;

/// Keeps the document that is in force.
#[derive(Debug)]
pub(super) struct Keeper {
    source: FileSource,
    last_good: LastGood,
    kept: Option<Arc<Document>>,
    /// Whether it is told already that nothing can be kept.
    fails: bool,
}

impl Keeper {
    /// Of a server with this data directory.
    pub(super) fn new(source: FileSource, data_dir: &Path) -> Self {
        Self {
            source,
            last_good: LastGood::in_folder(data_dir),
            kept: None,
            fails: false,
        }
    }

    /// Keeps a document that is not kept yet. Where that fails, an older one would count at a start, so it is to be tried again.
    pub(super) async fn keep(&mut self, document: Arc<Document>) {
        if self
            .kept
            .as_ref()
            .is_some_and(|kept| Arc::ptr_eq(kept, &document))
        {
            return;
        }
        let (source, last_good) = (self.source.clone(), self.last_good.clone());
        let kept = Arc::clone(&document);
        let done = task::spawn_blocking(move || last_good.keep(&source, &document)).await;
        match done.map_err(io::Error::from).flatten() {
            Ok(()) => {
                if self.fails {
                    tracing::info!("the document is kept again");
                }
                self.fails = false;
                self.kept = Some(kept);
            }
            Err(error) if !self.fails => {
                tracing::warn!(%error, "the document cannot be kept, which is tried again; until then, a start that finds its file with a \
                    fault goes on with what was kept before, if anything was");
                self.fails = true;
            }
            Err(_) => {}
        }
    }
}
