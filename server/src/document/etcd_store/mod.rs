//! The document in etcd, which all servers of a node share.
//!
//! A write is one transaction, guarded by etcd's revision of the key of the newest change: if
//! another server has written, nothing is stored. Every server polls that key, because watches over
//! the JSON gateway are unreliable. An invalid document never replaces the active one.

mod history;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use doorman_config::{Document, LastGoodFile, RevisionError, StoredDocument};
use doorman_openapi::{Moment, PastChange};
use tokio::{
    sync::Mutex,
    task,
    time::{self, MissedTickBehavior},
};

use self::history::{Evicted, History, Keys, StoredChange};
use super::{ActiveDocument, file::LastValidWriter};
use crate::{etcd::EtcdClient, etcd::EtcdError, leasing::LedgerUnavailable, util::clock};
use doorman_core::{
    etcd::Compare, etcd::EtcdCall, etcd::EtcdReply, etcd::KeyValue, etcd::Op, etcd::Txn,
    etcd::TxnReply,
};

/// Interval of the polls: all servers agree within a second.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// A poll is repeated anyway.
pub(super) const POLL: Patience = Patience {
    timeout: Duration::from_secs(1),
    attempts: 1,
};

/// Of other calls: one endpoint may be frozen, another one restarting.
pub(super) const CALL: Patience = Patience {
    timeout: Duration::from_millis(1500),
    attempts: 3,
};

/// How long etcd may be away before it counts as an error.
const OUTAGE: Duration = Duration::from_secs(3);

/// How long a start waits for etcd if the data directory has a document, and if not.
const START_TIMEOUTS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];

/// The most documents of the history that a start tries.
const MAX_TRIED: usize = 100;

/// No key has this revision.
const UNSEEN: u64 = i64::MAX.unsigned_abs();

/// The author of changes that no caller made.
const SERVER: &str = "doorman";

/// A document in etcd.
#[derive(Debug)]
pub(crate) struct EtcdStore {
    client: EtcdClient,
    keys: Keys,
    /// The name of the source.
    name: String,
    data_dir: PathBuf,
    /// Locked during a change and a poll, so that documents are activated in their order.
    pub(super) seen: Mutex<Seen>,
}

/// The attempts of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Of each attempt.
    timeout: Duration,
    attempts: u32,
}

/// The part of the store that this server has seen.
#[derive(Debug)]
pub(super) struct Seen {
    /// etcd's revision of the newest change; 0: there is none.
    modified: u64,
    /// The largest revision of a change.
    revision: u64,
    /// Why the newest document is invalid.
    invalid: Option<String>,
    /// Since when etcd cannot be read, and whether that was reported.
    outage: Option<(Moment, bool)>,
}

/// Why the document in etcd cannot be read or changed. Nothing was changed unless it says so.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EtcdFailure {
    #[error("cannot read the document from etcd: {0}")]
    Read(#[from] EtcdError),
    #[error("nothing was changed: cannot write to etcd: {0}")]
    Write(EtcdError),
    #[error("the outcome of the change is unknown: {0}; read the document before you try again")]
    Unknown(EtcdError),
    #[error(
        "nothing was changed: the document has {bytes} bytes of JSON, and etcd refuses it: {error}"
    )]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The answer of etcd.
        error: EtcdError,
    },
    #[error("nothing was changed: other servers are changing the document")]
    Contended,
    /// The document is stored, but not active.
    #[error("the ledger cannot be used")]
    Ledger(LedgerUnavailable),
}

impl EtcdFailure {
    /// Of a write of a document with so many bytes.
    fn of_write(error: EtcdError, bytes: u64) -> Self {
        if error.is_ambiguous() {
            Self::Unknown(error)
        } else if error.is_too_large() {
            Self::TooLarge { bytes, error }
        } else {
            Self::Write(error)
        }
    }

    /// Whether another attempt fails, too.
    fn is_refused(&self) -> bool {
        match self {
            Self::Read(error) | Self::Write(error) => error.is_refused(),
            Self::TooLarge { .. } => true,
            Self::Unknown(_) | Self::Contended | Self::Ledger(_) => false,
        }
    }
}

/// The newest document, unless it was seen before.
enum Newest {
    Seen,
    Absent,
    Valid(Arc<Document>),
    Invalid(String),
}

impl EtcdStore {
    /// Reads the newest document; if there is none, `first` becomes the first one. Returns the
    /// document to start with, and why it is not the newest.
    ///
    /// No stored document prevents a start, and etcd does not, if the data directory has the last
    /// valid document.
    ///
    /// # Errors
    /// [`EtcdFailure`] if there is no document.
    pub(crate) async fn open(
        client: EtcdClient,
        prefix: &str,
        data_dir: &Path,
        first: Arc<Document>,
    ) -> Result<(Self, Arc<Document>, Option<String>), EtcdFailure> {
        let store = Self {
            client,
            keys: Keys::new(prefix),
            name: format!("etcd:{prefix}"),
            data_dir: data_dir.to_owned(),
            seen: Mutex::new(Seen {
                modified: UNSEEN,
                revision: 0,
                invalid: None,
                outage: None,
            }),
        };
        let last_good = store.last_good().await;
        let [short, long] = START_TIMEOUTS;
        let patience = if last_good.is_some() { short } else { long };
        let give_up = clock::now().after(patience);
        loop {
            let fallback = last_good.as_ref().unwrap_or(&first);
            let error = match store.start(fallback).await {
                Ok((document, error)) => return Ok((store, document, error)),
                Err(error) => error,
            };
            if clock::now() >= give_up || error.is_refused() {
                let Some(document) = last_good else {
                    return Err(error);
                };
                let error =
                    format!("{error}; the last valid document in the data directory is used");
                return Ok((store, document, Some(error)));
            }
            time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn start(
        &self,
        fallback: &Arc<Document>,
    ) -> Result<(Arc<Document>, Option<String>), EtcdFailure> {
        let mut seen = self.seen.lock().await;
        match self.newest(&mut seen, POLL).await? {
            Newest::Valid(document) => {
                for warning in document.warnings() {
                    tracing::warn!(source = self.name, "{warning}");
                }
                Ok((document, None))
            }
            Newest::Absent => {
                let change = "the first document";
                let written = self.write(&mut seen, fallback, SERVER, change).await?;
                written.ok_or(EtcdFailure::Contended)?;
                Ok((Arc::clone(fallback), None))
            }
            Newest::Invalid(error) => {
                let document = self.newest_valid().await?;
                seen.invalid = Some(error.clone());
                let document = document.unwrap_or_else(|| Arc::clone(fallback));
                Ok((document, Some(error)))
            }
            // Only a poll can have seen it.
            Newest::Seen => Err(EtcdFailure::Contended),
        }
    }

    async fn last_good(&self) -> Option<Arc<Document>> {
        let (file, name) = (LastGoodFile::in_dir(&self.data_dir), self.name.clone());
        let loaded = task::spawn_blocking(move || file.load(&name)).await;
        loaded.ok().flatten().map(Arc::new)
    }

    /// The newest valid document of the history.
    async fn newest_valid(&self) -> Result<Option<Arc<Document>>, EtcdFailure> {
        let history = self.read_history().await?;
        for change in history.before(None).take(MAX_TRIED) {
            let document = self.document(change, CALL).await?;
            if let Ok(document) = document {
                return Ok(Some(document));
            }
        }
        Ok(None)
    }

    /// Activates the newest document until the ledger is poisoned, and stores it in the data
    /// directory for a start without etcd.
    pub(crate) async fn follow(self: Arc<Self>, active: Arc<ActiveDocument>) {
        let mut last_valid = LastValidWriter::new(self.name.clone(), &self.data_dir);
        let mut interval = time::interval(POLL_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let mut seen = self.seen.lock().await;
            match self.refresh(&mut seen, &active, POLL).await {
                Ok(()) => self.end_outage(&mut seen, &active),
                Err(EtcdFailure::Ledger(_)) => return,
                Err(error) => self.report_outage(&mut seen, &active, &error),
            }
            drop(seen);
            last_valid.write(active.get()).await;
        }
    }

    fn report_outage(&self, seen: &mut Seen, active: &ActiveDocument, error: &EtcdFailure) {
        let (since, is_reported) = seen.outage.get_or_insert((clock::now(), false));
        if !*is_reported && clock::now() >= since.after(OUTAGE) {
            *is_reported = true;
            tracing::error!("{error}; the last known document stays active");
            active.report(&format!("{error}; the last known document stays active"));
        }
    }

    fn end_outage(&self, seen: &mut Seen, active: &ActiveDocument) {
        if let Some((_, true)) = seen.outage.take() {
            tracing::info!("document is read from {} again", self.name);
            match &seen.invalid {
                Some(invalid) => active.report(invalid),
                None => active.clear_error(),
            }
        }
    }

    /// Activates the newest document if it is valid.
    pub(super) async fn refresh(
        &self,
        seen: &mut Seen,
        active: &ActiveDocument,
        patience: Patience,
    ) -> Result<(), EtcdFailure> {
        match self.newest(seen, patience).await? {
            Newest::Seen => {}
            Newest::Absent => {
                tracing::error!(
                    "{} has no document any more; writing the active one",
                    self.name
                );
                // If another server was faster, the next poll reads its document.
                let change = "restored, because etcd had no document";
                self.write(seen, &active.get(), SERVER, change).await?;
            }
            Newest::Valid(document) => {
                let reloaded = active.reload(&self.name, &document);
                reloaded.map_err(EtcdFailure::Ledger)?;
                seen.invalid = None;
            }
            Newest::Invalid(error) => {
                tracing::error!("invalid document; the active one stays: {error}");
                active.reject(&error);
                seen.invalid = Some(error);
            }
        }
        Ok(())
    }

    /// Reads the newest document, unless it is the one seen.
    async fn newest(&self, seen: &mut Seen, patience: Patience) -> Result<Newest, EtcdFailure> {
        let poll = Txn {
            compare: vec![self.is_newest(seen.modified)],
            success: Vec::new(),
            failure: vec![Op::Get(self.keys.newest())],
        };
        let reply = self.execute(poll, patience).await?;
        if reply.succeeded {
            return Ok(Newest::Seen);
        }
        let Some(KeyValue {
            value, modified, ..
        }) = first(&reply, 0)
        else {
            seen.modified = 0;
            return Ok(Newest::Absent);
        };
        let newest = match StoredChange::parse(value) {
            Some(change) => {
                let document = self.document(&change.past, patience).await?;
                seen.revision = seen.revision.max(change.past.revision);
                match document {
                    Ok(document) => Newest::Valid(document),
                    Err(error) => Newest::Invalid(format!("{}: {error}", self.name)),
                }
            }
            None => Newest::Invalid(format!("the key {} is not a change", self.keys.newest())),
        };
        seen.modified = *modified;
        Ok(newest)
    }

    /// The document of a change.
    async fn document(
        &self,
        change: &PastChange,
        patience: Patience,
    ) -> Result<Result<Arc<Document>, RevisionError>, EtcdFailure> {
        let key = self.keys.document(change.revision);
        let reply = self.execute(read([Op::Get(key)]), patience).await?;
        let Some(KeyValue { value, .. }) = first(&reply, 0) else {
            return Ok(Err(RevisionError::Unusable {
                revision: change.revision,
                reason: "it is missing".to_owned(),
            }));
        };
        let text = String::from_utf8_lossy(value).into_owned();
        let stored = StoredDocument::new(change.revision, change.version.clone(), text);
        Ok(match task::spawn_blocking(move || stored.parse()).await {
            Ok(parsed) => parsed.map(Arc::new),
            Err(error) => Err(RevisionError::Unusable {
                revision: change.revision,
                reason: error.to_string(),
            }),
        })
    }

    /// Writes a document as the newest one, unless another server has written since it was seen;
    /// then it returns `None`. A write whose answer is lost is repeated: it cannot be executed
    /// twice.
    pub(super) async fn write(
        &self,
        seen: &mut Seen,
        document: &Document,
        by: &str,
        change: &str,
    ) -> Result<Option<u64>, EtcdFailure> {
        let history = self.read_history().await?;
        let revision = history.newest.max(seen.revision).saturating_add(1);
        let text = document.to_json();
        let change = StoredChange {
            past: PastChange {
                revision,
                changed_at: clock::unix_seconds(),
                changed_by: by.to_owned(),
                change: change.to_owned(),
                version: document.version().to_owned(),
            },
            bytes: text.len() as u64,
            write_id: fastrand::u64(..),
        };
        let Evicted { changes, documents } = history.evict(&change);
        let deleted = changes.iter().map(|it| self.keys.change(*it));
        let documents = changes.iter().chain(&documents);
        let deleted = deleted.chain(documents.map(|it| self.keys.document(*it)));
        let mut success = vec![
            put(self.keys.newest(), change.to_json()),
            put(self.keys.change(revision), change.to_json()),
            put(self.keys.document(revision), text.into_bytes()),
        ];
        success.extend(deleted.map(Op::Delete));
        let write = Txn {
            compare: vec![
                self.is_newest(seen.modified),
                Compare::Created {
                    key: self.keys.change(revision),
                    revision: 0,
                },
            ],
            success,
            failure: vec![Op::Get(self.keys.change(revision))],
        };
        let modified = match self.execute(write, CALL).await {
            Ok(reply) if reply.succeeded => reply.revision,
            Ok(reply) => match first(&reply, 0) {
                // It was executed, and its answer was lost.
                Some(found) if StoredChange::parse(&found.value).as_ref() == Some(&change) => {
                    found.modified
                }
                _ => return Ok(None),
            },
            Err(error) => return Err(EtcdFailure::of_write(error, change.bytes)),
        };
        seen.modified = modified;
        seen.revision = revision;
        seen.invalid = None;
        Ok(Some(revision))
    }

    /// Executes a transaction that may be repeated.
    async fn execute(&self, txn: Txn, patience: Patience) -> Result<TxnReply, EtcdError> {
        let mut is_ambiguous = false;
        let mut attempts = patience.attempts;
        loop {
            let call = EtcdCall::Txn(txn.clone());
            let error = match self.client.call(call, patience.timeout).await {
                Ok(EtcdReply::Txn(reply)) => return Ok(reply),
                // The client replies with what was called.
                Ok(_) => return Ok(TxnReply::default()),
                Err(error) => error,
            };
            is_ambiguous |= error.is_ambiguous();
            attempts = attempts.saturating_sub(1);
            if attempts == 0 || error.is_refused() {
                return Err(if is_ambiguous {
                    error.into_ambiguous()
                } else {
                    error
                });
            }
        }
    }

    /// Past changes before a revision, newest first.
    pub(super) async fn history(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<PastChange>, EtcdFailure> {
        let history = self.read_history().await?;
        Ok(history.before(before).take(limit).cloned().collect())
    }

    /// The document of a revision.
    pub(super) async fn revision(
        &self,
        revision: u64,
    ) -> Result<Result<Document, RevisionError>, EtcdFailure> {
        let keys = [self.keys.change(revision), self.keys.document(revision)];
        let reply = self.execute(read(keys.map(Op::Get)), CALL).await?;
        let change = first(&reply, 0).and_then(|it| StoredChange::parse(&it.value));
        let (Some(change), Some(document)) = (change, first(&reply, 1)) else {
            let retained = self.read_history().await?.retained();
            return Ok(Err(RevisionError::Absent { revision, retained }));
        };
        let text = String::from_utf8_lossy(&document.value).into_owned();
        Ok(StoredDocument::new(revision, change.past.version, text).parse())
    }

    async fn read_history(&self) -> Result<History, EtcdFailure> {
        let prefix = self.keys.changes();
        let reply = self.execute(read([Op::GetPrefix(prefix)]), CALL).await?;
        let found = reply.results.first();
        Ok(History::parse(&self.keys, found.map_or(&[], Vec::as_slice)))
    }

    fn is_newest(&self, modified: u64) -> Compare {
        Compare::Modified {
            key: self.keys.newest(),
            revision: modified,
        }
    }
}

fn read(ops: impl IntoIterator<Item = Op>) -> Txn {
    Txn {
        success: ops.into_iter().collect(),
        ..Txn::default()
    }
}

fn put(key: String, value: Vec<u8>) -> Op {
    Op::Put {
        key,
        value,
        lease: None,
    }
}

/// The key that an operation found.
fn first(reply: &TxnReply, operation: usize) -> Option<&KeyValue> {
    reply.results.get(operation)?.first()
}

#[cfg(test)]
mod tests;
