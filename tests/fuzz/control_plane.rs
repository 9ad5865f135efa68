//! A control plane without a network, new for every input.

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
    /// Tasks end with the server that started them, so inputs do not affect each other.
    static RUNTIME: RefCell<Runtime> = RefCell::new(
        Builder::new_current_thread().enable_all().build().expect("a runtime"),
    );
}

/// A new server, not in learning mode.
#[derive(Debug)]
pub(super) struct ControlPlane {
    /// Built once: that takes longer than a call.
    router: Router,
    _server: Server,
    _directory: tempfile::TempDir,
}

impl ControlPlane {
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

    pub(super) fn post(&self, path: &str, body: &[u8]) -> Response<Bytes> {
        let body = Full::from(Bytes::copy_from_slice(body));
        let request = Request::post(path).header("content-type", "application/json");
        self.call(request.body(body).expect("a valid path"))
    }

    /// GETs JSON.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        let request = Request::get(path).body(Full::default());
        read(&self.call(request.expect("a valid path")))
    }

    fn call(&self, request: Request<Full<Bytes>>) -> Response<Bytes> {
        block_on(async {
            let Ok(response) = self.router.clone().oneshot(request).await;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.expect("a complete body");
            Response::from_parts(parts, body.to_bytes())
        })
    }
}

/// Parses a successful response.
pub(super) fn read<T: DeserializeOwned>(response: &Response<Bytes>) -> T {
    assert_eq!(response.status(), 200, "{response:?}");
    assert_eq!(response.headers()["content-type"], "application/json");
    serde_json::from_slice(response.body()).unwrap_or_else(|error| panic!("{error}: {response:?}"))
}

/// Parses the problem document of a failed response.
pub(super) fn problem(response: &Response<Bytes>) -> Problem {
    assert_eq!(
        response.headers()["content-type"],
        Problem::MEDIA_TYPE,
        "{response:?}"
    );
    let problem: Problem = serde_json::from_slice(response.body())
        .unwrap_or_else(|error| panic!("{error}: {response:?}"));
    assert_eq!(problem.status, response.status().as_u16());
    problem
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.with_borrow(|runtime| runtime.block_on(future))
}

/// In memory where possible: the server waits for its disk before it responds.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a temporary directory")
}
