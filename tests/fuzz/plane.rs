//! A control plane to call without a connection, fresh for every input.

use std::{cell::RefCell, sync::Arc};

use axum::Router;
use bytes::Bytes;
use doorman_config::Document;
use doorman_openapi::Problem;
use doorman_server::{Server, Settings};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use serde::de::DeserializeOwned;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt as _;

thread_local! {
    /// Nothing of an input outlives it here: tasks end with the server that started them.
    static RUNTIME: RefCell<Runtime> = RefCell::new(
        Builder::new_current_thread().enable_all().build().expect("there is room for a runtime"),
    );
}

/// A server that has just started, and has nothing to learn.
#[derive(Debug)]
pub(super) struct Plane {
    /// Put together once, which takes longer than a call.
    router: Router,
    _server: Server,
    _directory: tempfile::TempDir,
}

/// What came back.
pub(super) type Reply = Response<Bytes>;

impl Plane {
    pub(super) fn new(document: &str) -> Self {
        let directory = directory();
        let settings = Settings {
            listen: ([127, 0, 0, 1], 0).into(),
            data_dir: directory.path().to_owned(),
            document: Arc::new(Document::parse(document).expect("the document is valid")),
            ..Settings::default()
        };
        let server = block_on(Server::bind(settings)).expect("a server starts");
        Self {
            router: server.router(),
            _server: server,
            _directory: directory,
        }
    }

    pub(super) fn post(&self, path: &str, body: &[u8]) -> Reply {
        let body = Full::from(Bytes::copy_from_slice(body));
        let request = Request::post(path).header("content-type", "application/json");
        self.call(request.body(body).expect("the path is one"))
    }

    /// Reads what operators look at.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        let request = Request::get(path).body(Full::default());
        read(&self.call(request.expect("the path is one")))
    }

    fn call(&self, request: Request<Full<Bytes>>) -> Reply {
        block_on(async {
            let Ok(answer) = self.router.clone().oneshot(request).await;
            let (parts, body) = answer.into_parts();
            let body = body.collect().await.expect("an answer does not break off");
            Response::from_parts(parts, body.to_bytes())
        })
    }
}

/// Reads an answer that is as documented.
pub(super) fn read<T: DeserializeOwned>(reply: &Reply) -> T {
    assert_eq!(reply.status(), 200, "{reply:?}");
    assert_eq!(reply.headers()["content-type"], "application/json");
    serde_json::from_slice(reply.body()).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
}

/// Reads the problem that every refusal is.
pub(super) fn problem(reply: &Reply) -> Problem {
    assert_eq!(
        reply.headers()["content-type"],
        Problem::MEDIA_TYPE,
        "{reply:?}"
    );
    let problem: Problem =
        serde_json::from_slice(reply.body()).unwrap_or_else(|error| panic!("{error}: {reply:?}"));
    assert_eq!(problem.status, reply.status().as_u16());
    problem
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.with_borrow(|runtime| runtime.block_on(future))
}

/// In memory where that can be had: a server waits for its disk before it answers.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("there is room for a directory")
}
