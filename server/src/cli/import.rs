//! `doorman import`: a document from a file comes into force.

use std::{
    fmt::Write,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use doorman_config::{Document, DocumentDiff, NewChange, OpenedStore, Store, StoreReader};
use doorman_openapi::{DryRun, paths};
use serde_json::value::RawValue;

use super::{
    client::Client,
    failure::Failure,
    place::{self, Place, PlaceArguments},
    time,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "What is wrong with the document is named, and nothing changes. Holders learn of a change at their next refresh.\n\n\
    Examples:\n  doorman import limits.yaml --dry-run\n  doorman import limits.yaml\n  \
    doorman import limits.yaml --store ./doorman-data/doorman.db"
)]
pub(super) struct Arguments {
    /// The document, in YAML or JSON
    file: PathBuf,
    /// Only say what would change
    #[arg(long, env = "DOORMAN_DRY_RUN", value_parser = clap::builder::FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    dry_run: bool,
    #[command(flatten)]
    place: PlaceArguments,
}

pub(super) async fn run(arguments: Arguments) -> Result<String, Failure> {
    let new = place::of_file(&arguments.file)?;
    let mut err = io::stderr().lock();
    for warning in new.warnings() {
        writeln!(err, "warning: {}:{warning}", arguments.file.display())?;
    }
    drop(err);
    match (arguments.place.place()?, arguments.dry_run) {
        (Place::Server(client), true) => try_out(&client, &new).await,
        (Place::Server(client), false) => put(&client, &new).await,
        (Place::Store(path), true) => {
            let old = place::of_store(&StoreReader::open(&path)?, None)?;
            Ok(account("would change", &old, &new))
        }
        (Place::Store(path), false) => write(&path, &new),
    }
}

async fn put(client: &Client, new: &Document) -> Result<String, Failure> {
    let (old, tag) = place::of_server(client).await?;
    // Nobody has changed it meanwhile, or else we are told.
    let _: Box<RawValue> = client
        .put(paths::TEMPLATES, tag.as_ref(), new.to_json())
        .await?;
    Ok(account("changed", &old, new))
}

async fn try_out(client: &Client, new: &Document) -> Result<String, Failure> {
    let (old, tag) = place::of_server(client).await?;
    let path = format!("{}?dry_run=true", paths::TEMPLATES);
    let told: DryRun = client.put(&path, tag.as_ref(), new.to_json()).await?;
    let mut text = account("would change", &old, new);
    for effect in &told.resources {
        let clients = match effect.clients {
            1 => "1 client has".to_owned(),
            clients => format!("{clients} clients have"),
        };
        let changes = effect.changes.join(", ");
        writeln!(
            text,
            "  {}: {changes} ({clients} {})",
            effect.resource_id, effect.sum_has
        )?;
    }
    let more = told.resource_count.saturating_sub(told.resources.len());
    if more > 0 {
        writeln!(text, "  and {more} more resources")?;
    }
    if !told.looked_at_all {
        text.push_str("  not all live resources were looked at\n");
    }
    Ok(text)
}

/// Writes to a store that this process alone uses meanwhile.
fn write(path: &Path, new: &Document) -> Result<String, Failure> {
    let at = time::unix_seconds();
    let is_new = !path.exists();
    let OpenedStore {
        mut store,
        document: old,
        problems,
    } = Store::open(path, new, at)?;
    let mut err = io::stderr().lock();
    for problem in problems {
        writeln!(err, "warning: {problem}")?;
    }
    drop(err);
    if is_new && old == *new {
        return Ok(format!(
            "a new store begins with version {}\n",
            new.version()
        ));
    }
    let diff = DocumentDiff::between(&old, new);
    if !diff.is_empty() {
        let change = NewChange {
            changed_at: at,
            changed_by: &author(),
            change: &diff.summary(),
        };
        let written = store.append(new, &change)?;
        if let Err(error) = written.copy {
            writeln!(
                io::stderr(),
                "warning: the copy of the document beside the store could not be written: {error}"
            )?;
        }
    }
    Ok(account("changed", &old, new))
}

/// Who works on a store by hand.
fn author() -> String {
    let name = rustix::system::uname();
    let user = std::env::var("USER").unwrap_or_else(|_| "somebody".to_owned());
    format!(
        "doorman import by {user}@{}",
        name.nodename().to_string_lossy()
    )
}

/// What leads from one document to the other, a line a change.
fn account(verb: &str, old: &Document, new: &Document) -> String {
    let diff = DocumentDiff::between(old, new);
    if diff.is_empty() {
        return format!("nothing to change: version {}\n", new.version());
    }
    let lines = diff.lines().map(|line| format!("{verb}: {line}\n"));
    lines.collect::<String>() + &format!("version {}\n", new.version())
}
