//! The document follows its source while the server runs; a bad change never replaces a good document.
//!
//! A change is seen because the directory is watched, or at the latest by the next look, and taken when the source has held still for a
//! moment: an edit in place can be read half-way, and half a document may well be a valid one. Nobody's lease is touched by it: what
//! stands stands until its next refresh.

mod in_force;
mod keeper;

#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use doorman_config::{Document, FileSource, RawDocument};
use tokio::{task, time::sleep};

use crate::{http::state::App, util::watch::Watch};

use self::keeper::Keeper;

pub(crate) use self::in_force::InForce;

/// How often it looks by itself: not every file system tells of changes, and a link may point to where nobody watches.
const LOOK: Duration = Duration::from_secs(5);
/// How long the source must hold still.
const STILL: Duration = Duration::from_millis(250);
/// How often it is looked at for that; one that never holds still is taken as it is.
const PATIENCE: u32 = 20;

/// The source, and the data directory.
#[derive(Debug, Clone)]
pub(crate) struct Followed {
    source: FileSource,
    data_dir: PathBuf,
}

impl Followed {
    /// Of a server with this data directory.
    pub(crate) fn new(source: FileSource, data_dir: &Path) -> Self {
        Self {
            source,
            data_dir: data_dir.to_owned(),
        }
    }
}

/// What the source held, or why it could not be read.
type Seen = Result<RawDocument, String>;

/// Follows the source until the books are in doubt.
pub(crate) async fn follow(app: Arc<App>, followed: Followed) {
    let Followed { source, data_dir } = &followed;
    let mut keeper = Keeper::new(source.clone(), data_dir);
    let mut watch = Watch::of([source.directory()]);
    let mut seen = None;
    loop {
        let now = settled(source, seen.as_ref()).await;
        if seen.as_ref() != Some(&now) && !consider(&app, source, &now).await {
            return;
        }
        seen = Some(now);
        let document = Arc::clone(app.in_force().document());
        keeper.keep(document).await;
        tokio::select! {
            () = watch.changed() => {}
            () = sleep(LOOK) => {}
        }
    }
}

/// What the source holds once it holds still; at once when it is what was seen before.
async fn settled(source: &FileSource, seen: Option<&Seen>) -> Seen {
    let mut now = read(source).await;
    for _ in 0..PATIENCE {
        if seen == Some(&now) {
            break;
        }
        sleep(STILL).await;
        let then = std::mem::replace(&mut now, read(source).await);
        if then == now {
            break;
        }
    }
    now
}

async fn read(source: &FileSource) -> Seen {
    let source = source.clone();
    let read = task::spawn_blocking(move || source.read()).await;
    read.map_err(|error| error.to_string())?
        .map_err(|error| error.full_message())
}

/// Puts a document in force if there is a new and good one; `false` when the books are in doubt.
async fn consider(app: &App, source: &FileSource, seen: &Seen) -> bool {
    let document = match seen.clone() {
        Ok(unread) => parse(unread).await,
        Err(reason) => Err(reason),
    };
    let document = match document {
        Ok(document) => document,
        // As the start has found it, and told.
        Err(reason) if app.in_force().has_refused(&reason) => return true,
        Err(reason) => {
            tracing::error!(%source, "the document is wrong, and the one before stays in force:\n{reason}");
            app.in_force().refuse(&reason);
            return true;
        }
    };
    let document = Arc::new(document);
    if *app.in_force().document() == document {
        app.in_force().is_current();
        return true;
    }
    for warning in document.warnings() {
        tracing::warn!(%source, "{warning}");
    }
    if app.put_in_force(&document).is_err() {
        return false;
    }
    tracing::info!(%source, version = document.version(), "a new document is in force");
    true
}

async fn parse(unread: RawDocument) -> Result<Document, String> {
    let parsed = task::spawn_blocking(move || unread.document()).await;
    parsed
        .map_err(|error| error.to_string())?
        .map_err(|error| error.full_message())
}
