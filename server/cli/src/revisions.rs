//! `doorman diff` and `doorman rollback`: past documents.

use std::{io, path::PathBuf, str::FromStr};

use doorman_config::{Document, DocumentDiff};

use super::{
    document::{self, Location, LocationArguments},
    failure::Failure,
    output::warn,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A number is a revision; `doorman history` lists them. Anything else is a file.\n\n\
    Examples:\n  doorman diff 7\n  doorman diff 7 9\n  doorman diff limits.yaml\n  \
    doorman diff 7 --store ./doorman-data/doorman.db"
)]
pub(super) struct DiffArguments {
    /// The document before: a revision or a file
    before: Reference,
    /// The document after: a revision or a file; default: the active document
    after: Option<Reference>,
    #[command(flatten)]
    location: LocationArguments,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The document of the revision becomes active again, as a new revision. If the document changes in the\n\
    meantime, nothing is changed.\n\n\
    Examples:\n  doorman rollback 7 --dry-run\n  doorman rollback 7\n  \
    doorman rollback 7 --store ./doorman-data/doorman.db"
)]
pub(super) struct RollbackArguments {
    /// The revision to return to; `doorman history` lists them
    #[arg(value_parser = document::revision)]
    revision: u64,
    /// Print the changes without applying them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    location: LocationArguments,
}

/// A document to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reference {
    Revision(u64),
    File(PathBuf),
}

impl FromStr for Reference {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return document::revision(text).map(Self::Revision);
        }
        if text.is_empty() {
            return Err("must be a revision, such as 7, or a file");
        }
        Ok(Self::File(text.into()))
    }
}

impl Reference {
    async fn document(&self, location: &Location) -> Result<Document, Failure> {
        match self {
            Self::Revision(revision) => location.document(Some(*revision)).await,
            Self::File(path) => document::load(path, &mut io::stderr()),
        }
    }
}

pub(super) async fn diff(arguments: DiffArguments) -> Result<String, Failure> {
    let location = arguments.location.location()?;
    let before = arguments.before.document(&location).await?;
    let after = match arguments.after {
        Some(after) => after.document(&location).await?,
        None => location.document(None).await?,
    };
    let diff = DocumentDiff::between(&before, &after);
    if diff.is_empty() {
        return Ok(format!("no difference: version {}\n", after.version()));
    }
    Ok(diff.lines().map(|line| line + "\n").collect())
}

pub(super) async fn rollback(arguments: RollbackArguments) -> Result<String, Failure> {
    let revision = arguments.revision;
    let location = arguments.location.location()?;
    let document = location.document(Some(revision)).await?;
    for warning in document.warnings() {
        warn(&mut io::stderr(), warning);
    }
    let command = format!("rollback {revision}");
    location
        .replace(&document, arguments.dry_run, &command)
        .await
}
