//! Tests of the router without connections.

mod allowed_hosts;
mod authentication;
mod bodies;
mod concurrent_edits;
mod cursors;
mod docs;
mod documents;
mod hints;
mod lease_list;
mod leases;
mod metrics;
mod openapi;
mod outcomes;
mod patches;
mod priorities;
mod probes;
mod quota;
mod read_throttle;
mod request_context;
mod resource_list;
mod restrictions;
mod revisions;
mod routing;
mod rules;
mod standby;
mod token_attacks;
mod tree;

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, StatusCode},
};
use doorman_config::{Document, Store};
use doorman_openapi::{Epoch, Moment, NodeId, Problem, ServerCapacityResponse, ServerId};
use http_body_util::BodyExt;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::{
    auth::Auth, document::ActiveDocument, document::DocumentEditor, document::DocumentStore,
    http::AllowedHosts, http::BodyBuffer, http::state::AppParts, http::state::AppState,
    http::state::ServerInfo, leasing::SharedLedger, net::ConnectionMetrics,
    observe::metrics::RequestMetrics, quota::CallerLimit, quota::Quotas, upstream::ParentNode,
    util::clock,
};
use doorman_core::{
    election::View, ledger, ledger::Ledger, ledger::Predecessor, ledger::UnmatchedPolicy,
    reign::DurableBound, reign::Reign,
};

/// A new server with the built-in document.
fn app() -> AppState {
    app_with(Document::built_in())
}

const SETTINGS: ledger::Settings = ledger::Settings {
    max_leases: 1_000_000,
    unmatched: UnmatchedPolicy::Grant,
    predecessor: Predecessor::None,
    epoch: Epoch::ZERO,
};

/// A new server with this document.
fn app_with(document: Document) -> AppState {
    // The bound covers all leases.
    app_of(document, SETTINGS, Moment::NEVER)
}

/// A new server with a durable bound that never moves.
fn app_of(document: Document, settings: ledger::Settings, bound: Moment) -> AppState {
    let document = Arc::new(document);
    let epoch = Epoch::new(7).unwrap();
    let core = Ledger::new(Arc::clone(&document), settings, clock::now());
    let server = ServerInfo {
        etcd: None,
        parent: None,
        server_id: ServerId::new("host-a:7300").unwrap(),
        node: NodeId::new("node-a").unwrap(),
        max_leases: settings.max_leases,
        advertise: "http://127.0.0.1:7300".to_owned(),
        config_source: "built-in".to_owned(),
        assumed_first_start: false,
        earlier_leases: Arc::default(),
        started: clock::now(),
    };
    let bound = DurableBound::new(bound, u64::MAX);
    let ledger = Arc::new(SharedLedger::with_document(Arc::clone(&document)));
    ledger.begin(Reign::new(epoch, Moment::NEVER, core, bound));
    let view = View {
        address: Some(server.advertise.clone()),
        epoch: Some(epoch),
        longest: None,
        unread_since: None,
        has_read: true,
    };
    let document = Arc::new(ActiveDocument::new(Arc::clone(&ledger), document));
    AppState::from(AppParts {
        editor: Arc::new(DocumentEditor::new(
            Arc::clone(&document),
            DocumentStore::ReadOnly,
            "built-in",
        )),
        ledger,
        document,
        quotas: Arc::new(Quotas::new(CallerLimit::Usual)),
        allowed_hosts: AllowedHosts::any(&server.advertise),
        server: Arc::new(server),
        master: watch::channel(view).1,
        offer: Arc::default(),
        handovers: crate::mastership::handover_counts(),
        draining: Arc::default(),
        cursor_key: Arc::default(),
        body_buffer: BodyBuffer::default(),
        auth: None,
        tls: None,
        requests: RequestMetrics::default(),
        connections: ConnectionMetrics::default(),
    })
}

/// A server below this parent node.
fn node_app() -> (AppState, Arc<ParentNode>) {
    let servers = ["http://127.0.0.1:7399".parse().unwrap()];
    let parent = Arc::new(ParentNode::new(&servers, clock::now()));
    let app = app().with(|parts| {
        let server = Arc::get_mut(&mut parts.server).expect("it is not shared yet");
        server.parent = Some(Arc::clone(&parent));
        let document = Arc::new(Document::built_in());
        let ledger = Ledger::new(document, SETTINGS, clock::now()).of_parent();
        let bound = DurableBound::new(Moment::NEVER, u64::MAX);
        let epoch = Epoch::new(7).unwrap();
        parts
            .ledger
            .begin(Reign::new(epoch, Moment::NEVER, ledger, bound));
    });
    (app, parent)
}

/// The parent of a node leases so much of `db` to it, for 20 s, of a limit of 100.
fn answer_of_parent(app: &AppState, parent: &ParentNode, capacity: f64, reason: &str) {
    let response = serde_json::json!({
        "node": "root",
        "epoch": 9,
        "level": 0,
        "resources": [{
            "resource_id": "db",
            "gets": {"capacity": capacity, "lease_length": 20, "refresh_interval": 5,
                "expiry_time": 0},
            "reason": reason,
            "template": "db",
            "limit": 100,
            "unit": "rate",
            "per": 1,
            "safe_capacity": 50,
            "algorithm": {"kind": "FAIR_SHARE", "lease_length": 20, "refresh_interval": 5}
        }]
    });
    let response: ServerCapacityResponse = serde_json::from_value(response).unwrap();
    let record = |ledger: &mut Ledger, now| {
        let answer = &response.resources[0];
        ledger.parent_requests([&answer.answer.resource_id], now);
        ledger.record_parent_response(answer, now, now);
    };
    app.ledger.with(record).unwrap();
    let now = clock::now();
    parent.on_leases(&response, now, now);
}

/// Changes parts of a server that nobody shares yet.
trait WithParts: Sized {
    fn with(self, change: impl FnOnce(&mut AppParts)) -> Self;

    fn with_auth(self, auth: Option<Arc<Auth>>) -> Self {
        self.with(|parts| parts.auth = auth)
    }

    fn with_limit(self, limit: CallerLimit) -> Self {
        self.with(|parts| parts.quotas = Arc::new(Quotas::new(limit)))
    }

    fn with_allowed_hosts(self, hosts: AllowedHosts) -> Self {
        self.with(|parts| parts.allowed_hosts = hosts)
    }

    fn with_store(self, store: Store) -> Self {
        self.with_document_store(DocumentStore::Sqlite(Mutex::new(store)))
    }

    fn with_document_store(self, store: DocumentStore) -> Self {
        self.with(|parts| {
            let document = Arc::clone(&parts.document);
            parts.editor = Arc::new(DocumentEditor::new(document, store, "store"));
        })
    }
}

impl WithParts for AppState {
    fn with(mut self, change: impl FnOnce(&mut AppParts)) -> Self {
        change(Self::get_mut(&mut self).expect("it is not shared yet"));
        self
    }
}

/// A server with a store in a temporary directory.
struct Stored {
    _home: TempDir,
    app: AppState,
    router: Router,
}

impl Stored {
    fn new() -> Self {
        Self::with(&Document::built_in())
    }

    fn with(document: &Document) -> Self {
        Self::authenticating(document, None)
    }

    fn authenticating(document: &Document, auth: Option<Arc<Auth>>) -> Self {
        let home = TempDir::new().unwrap();
        let opened = Store::open(&home.path().join("doorman.db"), document, 1000).unwrap();
        let app = app_with(opened.document)
            .with_store(opened.store)
            .with_auth(auth);
        Self {
            _home: home,
            router: super::router(app.clone()),
            app,
        }
    }
}

fn router() -> Router {
    super::router(app())
}

#[derive(Debug)]
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Reply {
    fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), "application/json");
        serde_json::from_slice(&self.body).unwrap()
    }

    #[track_caller]
    fn problem(&self, status: u16) -> Problem {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        assert_eq!(self.header("content-type"), Problem::MEDIA_TYPE);
        let problem: Problem = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem.status, status);
        assert!(problem.kind.starts_with("/problems/"), "{problem:?}");
        problem
    }
}

async fn send(router: &Router, request: Request<Body>) -> Reply {
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    Reply {
        status: parts.status,
        headers: parts.headers,
        body: body.collect().await.unwrap().to_bytes().to_vec(),
    }
}

async fn get(router: &Router, uri: &str) -> Reply {
    send(router, Request::get(uri).body(Body::empty()).unwrap()).await
}

async fn post(router: &Router, uri: &str, body: impl Into<Body>) -> Reply {
    let request = Request::post(uri).header("content-type", "application/json");
    send(router, request.body(body.into()).unwrap()).await
}

async fn put(router: &Router, uri: &str, body: impl Into<Body>) -> Reply {
    let request = Request::put(uri).header("content-type", "application/json");
    send(router, request.body(body.into()).unwrap()).await
}
