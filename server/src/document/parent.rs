//! The rules of the parent node: fetched by every server of a node, and served to its clients.
//!
//! The last valid ones are stored in the data directory, for a start while the parent is away.
//! Until a server has any it serves none: without rules, layers would not limit anything.

use std::{path::Path, sync::Arc, time::Duration};

use axum::http::HeaderValue;
use doorman_config::{Document, LastGoodFile};
use doorman_openapi::RulesResponse;
use tokio::{task, time::sleep};
use tower_doorman::lease::{
    ControlPlaneClient, FetchedRules, HttpTransport, RequestError, TransportError,
};

use super::{ActiveDocument, file::LastValidWriter};
use crate::{
    upstream::{ParentNode, ParentSettings},
    util::{clock, log_throttle::LogThrottle},
};

const INTERVAL: Duration = Duration::from_secs(10);
/// Jitter of the interval, so that nodes do not ask in step.
const JITTER: f64 = 0.1;
/// The interval while the server has no rules yet, or does not know the root.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct ParentRules {
    client: ControlPlaneClient<HttpTransport>,
    parent: Arc<ParentNode>,
    /// The server to ask next.
    server: usize,
    etag: Option<HeaderValue>,
    stored: LastValidWriter,
    failures: LogThrottle,
}

impl ParentRules {
    /// # Errors
    /// The file of the certificate authorities cannot be used.
    pub(crate) fn new(
        settings: &ParentSettings,
        parent: Arc<ParentNode>,
        source: String,
        data_dir: &Path,
    ) -> Result<Self, TransportError> {
        Ok(Self {
            client: settings.client()?,
            parent,
            server: 0,
            etag: None,
            stored: LastValidWriter::new(source, data_dir),
            failures: LogThrottle::per_minute(),
        })
    }

    /// A document with the rules that were stored for a source. Blocks on the file system.
    pub(crate) fn stored(source: &str, data_dir: &Path, document: &Document) -> Option<Document> {
        let stored = LastGoodFile::in_dir(data_dir).load(&source)?;
        document.with_rules(&stored.rules_for(None).rules).ok()
    }

    /// Follows the rules until the ledger is poisoned.
    pub(crate) async fn follow(mut self, active: Arc<ActiveDocument>) {
        loop {
            if !self.fetch(&active).await {
                return;
            }
            if self.parent.has_rules() {
                self.stored.write(active.get()).await;
            }
            let is_complete = self.parent.has_rules() && self.parent.root().is_some();
            let interval = if is_complete {
                INTERVAL
            } else {
                FIRST_INTERVAL
            };
            let jitter = 1.0 - JITTER + 2.0 * JITTER * fastrand::f64();
            tokio::select! {
                server = self.parent.rules_changed() => self.server = server.unwrap_or(self.server),
                () = sleep(interval.mul_f64(jitter)) => {}
            }
        }
    }

    /// Asks one server after the other until one answers. `false` when the ledger is poisoned.
    async fn fetch(&mut self, active: &ActiveDocument) -> bool {
        let servers = self.parent.servers().len();
        let mut error = String::new();
        let mut failed = None;
        for _ in 0..servers {
            let asked = self.server;
            let etag = self.etag.clone();
            let rules = self.client.fetch_rules(asked, None, etag, TIMEOUT).await;
            match rules.result {
                Ok(FetchedRules::NotModified) => return self.on_answer(active).await,
                Ok(FetchedRules::Modified { rules, etag }) => match parse(active, rules).await {
                    Ok(document) => {
                        if !apply(active, document) {
                            return false;
                        }
                        self.etag = etag;
                        self.parent.set_has_rules();
                        return self.on_answer(active).await;
                    }
                    Err(invalid) => error = format!("invalid rules: {invalid}"),
                },
                Err(RequestError { failure, reason }) => {
                    error = reason;
                    failed = Some(failure);
                }
            }
            error = format!("{}: {error}", self.client.address(asked));
            self.server = (asked + 1) % servers;
        }
        let now = clock::now();
        self.parent.on_rules_failure(failed.as_ref(), &error, now);
        active.report(&format!("cannot fetch the rules of the parent: {error}"));
        if self.failures.admit(now).is_some() {
            tracing::warn!(
                problem = self.parent.problem(now),
                "cannot fetch the rules of the parent; keeping the last known rules, if any: {error}"
            );
        }
        true
    }

    async fn on_answer(&mut self, active: &ActiveDocument) -> bool {
        self.parent.on_rules(self.server);
        active.clear_error();
        // Its place in the tree. A server that is not master asks for no leases.
        match self.client.discover(self.server, TIMEOUT).await.result {
            Ok(discovery) => self.parent.on_discovery(&discovery, clock::now()),
            Err(RequestError { reason, .. }) => {
                tracing::debug!(reason, "discovery of the parent failed");
            }
        }
        true
    }
}

async fn parse(active: &ActiveDocument, rules: RulesResponse) -> Result<Document, String> {
    let before = active.get();
    let parsed = task::spawn_blocking(move || before.with_rules(&rules.rules)).await;
    parsed
        .map_err(|error| error.to_string())?
        .map_err(|errors| errors.to_string())
}

/// `false` when the ledger is poisoned.
fn apply(active: &ActiveDocument, document: Document) -> bool {
    if *active.get() == document {
        return true;
    }
    let document = Arc::new(document);
    if active.activate(&document).is_err() {
        return false;
    }
    let rules = document.rules().len();
    tracing::info!(
        rules,
        version = document.version(),
        "rules of the parent changed"
    );
    true
}
