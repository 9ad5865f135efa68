//! Where a command finds the document: at a server that runs, or in the store of one that does not.

use std::path::PathBuf;

use doorman_config::{Document, LoadError, StoreReader};
use doorman_openapi::paths;
use reqwest::header::HeaderValue;
use serde_json::value::RawValue;

use super::{
    client::{Client, ServerArgument},
    failure::Failure,
};

#[derive(Debug, clap::Args)]
pub(super) struct PlaceArguments {
    #[command(flatten)]
    server: ServerArgument,
    /// Instead of a server that runs, the store of one that does not: a path such as ./doorman-data/doorman.db
    #[arg(long, env = "DOORMAN_STORE", value_name = "PATH")]
    store: Option<PathBuf>,
}

/// Where the document is.
#[derive(Debug)]
pub(super) enum Place {
    Server(Client),
    Store(PathBuf),
}

impl PlaceArguments {
    pub(super) fn place(self) -> Result<Place, Failure> {
        Ok(match self.store {
            Some(path) => Place::Store(path),
            None => Place::Server(Client::new(self.server)?),
        })
    }
}

/// The document that a server has in force, and its `ETag`.
pub(super) async fn of_server(client: &Client) -> Result<(Document, Option<HeaderValue>), Failure> {
    let (text, tag): (Box<RawValue>, _) = client.get_tagged(paths::TEMPLATES).await?;
    Ok((parse(text.get())?, tag))
}

/// The document of a revision in a store; of the newest when none is named.
pub(super) fn of_store(store: &StoreReader, revision: Option<u64>) -> Result<Document, Failure> {
    match store.document(revision)? {
        Some(text) => parse(&text),
        None => Err(Failure::new(match revision {
            Some(revision) => format!("no document is kept of revision {revision}"),
            None => "the store has no document".to_owned(),
        })),
    }
}

/// Reads what was checked when it was written: by a server of another version, maybe.
fn parse(text: &str) -> Result<Document, Failure> {
    Document::parse_json(text).map_err(|faults| {
        Failure::new(format!(
            "this program does not take the document:\n{faults}"
        ))
    })
}

/// A document in a file.
pub(super) fn of_file(file: &std::path::Path) -> Result<Document, Failure> {
    doorman_config::FileSource::new(file)
        .load()
        .map_err(|error: LoadError| Failure::of_document(&error))
}
