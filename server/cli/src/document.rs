//! `doorman check`, `import`, `export` and `history`: the document.

use std::{
    fmt::Write,
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use axum::http::Method;
use doorman_config::{Document, DocumentDiff, FileSource, NewChange, OpenedStore, Store};
use doorman_openapi::{DryRun, HistoryPage, PastChange, paths};
use reqwest::header::HeaderValue;
use serde_json::{json, value::RawValue};

use super::{
    client::{Client, ServerArguments, host_name},
    failure::Failure,
    output::{self, JsonFlag, cell, warn},
    serve_flags::at_least_one,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  doorman check limits.yaml")]
pub(super) struct CheckArguments {
    /// The document, in YAML or JSON
    file: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "An invalid document changes nothing. Holders learn of a change at their next refresh.\n\n\
    Examples:\n  doorman import limits.yaml --dry-run\n  doorman import limits.yaml\n  \
    doorman import limits.yaml --store ./doorman-data/doorman.db"
)]
pub(super) struct ImportArguments {
    /// The document, in YAML or JSON
    file: PathBuf,
    /// Print the changes without applying them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    location: LocationArguments,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Defaults are written out; comments are lost.\n\nExamples:\n  doorman export > limits.yaml\n  doorman export --revision 7\n  \
    doorman export --store ./doorman-data/doorman.db --revision 7"
)]
pub(super) struct ExportArguments {
    /// Print this revision; `doorman history` lists them
    #[arg(long, value_name = "N", value_parser = revision)]
    revision: Option<u64>,
    #[command(flatten)]
    output: JsonFlag,
    #[command(flatten)]
    location: LocationArguments,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  doorman history\n  doorman history --limit 5 --json\n  doorman history --store ./doorman-data/doorman.db"
)]
pub(super) struct HistoryArguments {
    /// Maximum number of changes, newest first
    #[arg(long, value_name = "N", default_value = "50", value_parser = at_least_one::<NonZeroUsize>)]
    limit: NonZeroUsize,
    #[command(flatten)]
    output: JsonFlag,
    #[command(flatten)]
    location: LocationArguments,
}

#[derive(Debug, clap::Args)]
pub(super) struct LocationArguments {
    /// Use the store of a stopped server, such as ./doorman-data/doorman.db, instead of a running
    /// server
    #[arg(long, value_name = "PATH")]
    store: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArguments,
}

pub(super) fn revision(text: &str) -> Result<u64, &'static str> {
    text.parse()
        .map_err(|_| "must be a revision, such as 7; doorman history lists them")
}

pub(super) enum Location {
    Server(Client),
    Store(PathBuf),
}

impl Location {
    /// A revision of the document; `None`: the active or newest one.
    pub(super) async fn document(&self, revision: Option<u64>) -> Result<Document, Failure> {
        match (self, revision) {
            (Self::Server(client), None) => Ok(fetch(client).await?.0),
            (Self::Server(client), Some(revision)) => {
                let path = paths::REVISION.replace("{revision}", &revision.to_string());
                let text: Box<RawValue> = client.get(&path).await?;
                parse(text.get())
            }
            (Self::Store(path), None) => newest(&Store::open_to_read(path)?),
            (Self::Store(path), Some(revision)) => {
                Ok(Store::open_to_read(path)?.revision(revision)?.parse()?)
            }
        }
    }

    /// Replaces the document, or prints what that would change. `command` is for the history.
    pub(super) async fn replace(
        &self,
        new: &Document,
        is_dry_run: bool,
        command: &str,
    ) -> Result<String, Failure> {
        match (self, is_dry_run) {
            (Self::Server(client), true) => dry_run(client, new).await,
            (Self::Server(client), false) => put(client, new).await,
            (Self::Store(path), true) => {
                let old = newest(&Store::open_to_read(path)?)?;
                Ok(describe("would change", &old, new))
            }
            (Self::Store(path), false) => write(path, new, command, &mut io::stderr()),
        }
    }
}

impl LocationArguments {
    pub(super) fn location(self) -> Result<Location, Failure> {
        Ok(match self.store {
            Some(path) => Location::Store(path),
            None => Location::Server(Client::new(&self.server)?),
        })
    }
}

pub(super) fn load(file: &Path, stderr: &mut impl io::Write) -> Result<Document, Failure> {
    let document = FileSource::new(file)
        .load()
        .map_err(|error| Failure::from_document(&error))?;
    for warning in document.warnings() {
        warn(stderr, &warning.in_file(&file.display().to_string()));
    }
    Ok(document)
}

async fn fetch(client: &Client) -> Result<(Document, Option<HeaderValue>), Failure> {
    let (text, etag): (Box<RawValue>, _) = client.get_with_etag(paths::TEMPLATES).await?;
    Ok((parse(text.get())?, etag))
}

fn newest(store: &Store) -> Result<Document, Failure> {
    match store.newest_document()? {
        Some(text) => parse(&text),
        None => Err(Failure::new("the store has no document")),
    }
}

/// Parses a document that a server has accepted, maybe one of another release.
fn parse(text: &str) -> Result<Document, Failure> {
    Document::parse_json(text).map_err(|errors| {
        Failure::new(format!(
            "the document is invalid for this version of doorman:\n{errors}"
        ))
    })
}

pub(super) fn check(
    arguments: &CheckArguments,
    stderr: &mut impl io::Write,
) -> Result<String, Failure> {
    let document = load(&arguments.file, stderr)?;
    let templates = counted(&document.templates().len(), "template");
    let rules = match document.rules().len() {
        0 => String::new(),
        count => format!(", {}", counted(&count, "rule")),
    };
    Ok(format!(
        "{}: ok, {templates}{rules}, version {}\n",
        arguments.file.display(),
        document.version()
    ))
}

fn counted(count: &impl ToString, noun: &str) -> String {
    let count = count.to_string();
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

pub(super) async fn export(arguments: ExportArguments) -> Result<String, Failure> {
    let location = arguments.location.location()?;
    let document = location.document(arguments.revision).await?;
    let text = if arguments.output.json {
        document.to_pretty_json()
    } else {
        document.to_yaml()
    };
    Ok(format!("{}\n", text.trim_end()))
}

pub(super) async fn history(arguments: HistoryArguments) -> Result<String, Failure> {
    let limit = arguments.limit.get();
    let changes: Vec<PastChange> = match arguments.location.location()? {
        Location::Server(client) => {
            let into_parts = |page: HistoryPage| (page.changes, page.next_cursor);
            let changes = client.list(paths::HISTORY, limit, into_parts).await?;
            // A store begins with a change.
            if changes.is_empty() {
                let note = "no history: the document comes from a file; the server's log has its \
                            changes";
                output::note(&mut io::stderr(), note);
            }
            changes
        }
        Location::Store(path) => Store::open_to_read(&path)?.history(None, limit)?,
    };
    if arguments.output.json {
        return output::pretty_json(&json!({"changes": changes}));
    }
    let rows = changes.into_iter().map(|change| {
        [
            // A restricted token learns no revisions.
            cell((change.revision > 0).then_some(change.revision)),
            output::time(change.changed_at).to_string(),
            change.changed_by,
            change.change,
        ]
    });
    Ok(output::table(["REVISION", "CHANGED", "BY", "CHANGE"], rows))
}

pub(super) async fn import(arguments: ImportArguments) -> Result<String, Failure> {
    let new = load(&arguments.file, &mut io::stderr())?;
    let location = arguments.location.location()?;
    location.replace(&new, arguments.dry_run, "import").await
}

/// The warnings in the response to a change.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Changed {
    #[serde(default)]
    pub(super) warnings: Option<Vec<String>>,
}

async fn put(client: &Client, new: &Document) -> Result<String, Failure> {
    let (old, etag) = fetch(client).await?;
    // With the ETag, the server rejects the change if the document has changed since.
    let changed: Changed = client
        .change(Method::PUT, paths::TEMPLATES, etag.as_ref(), new.to_json())
        .await
        .map_err(Failure::of_concurrent_change)?;
    warn_of_rest(&changed.warnings.unwrap_or_default(), new);
    Ok(describe("changed", &old, new))
}

async fn dry_run(client: &Client, new: &Document) -> Result<String, Failure> {
    let (old, etag) = fetch(client).await?;
    let path = format!("{}?dry_run=true", paths::TEMPLATES);
    let dry_run: DryRun = client
        .change(Method::PUT, &path, etag.as_ref(), new.to_json())
        .await
        .map_err(Failure::of_concurrent_change)?;
    warn_of_rest(&dry_run.warnings, new);
    Ok(describe("would change", &old, new) + &effects(&dry_run)?)
}

/// Prints warnings of a server. Those of the document itself have been printed, with their position
/// in the file.
fn warn_of_rest(warnings: &[String], new: &Document) {
    let is_printed =
        |warning: &str| (new.warnings().iter()).any(|own| warning.ends_with(own.message()));
    for warning in warnings.iter().filter(|it| !is_printed(it)) {
        warn(&mut io::stderr(), warning);
    }
}

/// The effects of a change on live resources, one line each.
pub(super) fn effects(dry_run: &DryRun) -> Result<String, Failure> {
    let mut text = String::new();
    for effect in &dry_run.resources {
        let verb = if effect.clients == 1 { "has" } else { "have" };
        writeln!(
            text,
            "  {}: {} ({} {verb} {})",
            effect.resource_id,
            effect.changes.join(", "),
            counted(&effect.clients, "client"),
            effect.sum_has
        )?;
    }
    let more = dry_run
        .resource_count
        .saturating_sub(dry_run.resources.len());
    if more > 0 {
        writeln!(text, "  and {}", counted(&more, "more resource"))?;
    }
    if !dry_run.looked_at_all {
        text.push_str("  not all live resources were examined\n");
    }
    Ok(text)
}

/// Writes to a store that no server uses, and locks it meanwhile.
fn write(
    path: &Path,
    new: &Document,
    command: &str,
    stderr: &mut impl io::Write,
) -> Result<String, Failure> {
    let now = unix_seconds();
    let is_new = !path.exists();
    let OpenedStore {
        mut store,
        document: old,
        problems,
        read_only,
    } = Store::open(path, new, now)?;
    for problem in problems.into_iter().chain(read_only) {
        warn(stderr, &problem);
    }
    if is_new && old == *new {
        return Ok(format!("created a store with version {}\n", new.version()));
    }
    let diff = DocumentDiff::between(&old, new);
    if !diff.is_empty() {
        let change = NewChange {
            changed_at: now,
            changed_by: &author(command),
            change: &diff.summary(),
        };
        if let Err(error) = store.append(new, &change)?.copy {
            warn(
                stderr,
                &format!("cannot write the copy of the document beside the store: {error}"),
            );
        }
    }
    Ok(describe("changed", &old, new))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the history has the time of the wall clock"
)]
fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn author(command: &str) -> String {
    let user = std::env::var("USER").unwrap_or_else(|_| "unknown".to_owned());
    format!("doorman {command} by {user}@{}", host_name())
}

fn describe(verb: &str, old: &Document, new: &Document) -> String {
    let diff = DocumentDiff::between(old, new);
    if diff.is_empty() {
        return format!("nothing to change: version {}\n", new.version());
    }
    let lines = diff.lines().map(|line| format!("{verb}: {line}\n"));
    lines.collect::<String>() + &format!("version {}\n", new.version())
}
