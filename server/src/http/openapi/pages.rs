//! `/openapi.json` and the documentation page, both served from the binary.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock, OnceLock},
};

use axum::{
    Extension, Router,
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    http::{HeaderMap, HeaderName, Response, StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use bytes::Bytes;
use doorman_openapi::{OPENAPI_JSON, ProblemType, paths};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use utoipa_swagger_ui::Config;

use super::complete::{NotModified, operations};
use crate::http::{
    error::ApiError,
    response::{buffer::StaticBody, conditional},
    state::AppState,
};

/// The page may load only itself.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// The documentation page, which is not part of the API.
pub(in crate::http) fn pages() -> Router<AppState> {
    Router::new()
        .route("/", get(|| async { see_other("docs/") }))
        .route(paths::DOCS, get(|| async { see_other("docs/") }))
        .route("/docs/", get(|| async { page("") }))
        .route(
            "/docs/{file}",
            get(|file: Result<Path<String>, PathRejection>| async move {
                match file {
                    Ok(Path(file)) => page(&file),
                    Err(_) => Err(no_such_file()),
                }
            }),
        )
}

/// Read this document
///
/// The OpenAPI 3.1 document of the control plane. Without authentication it has no security
/// requirements.
#[utoipa::path(
    get,
    path = paths::OPENAPI,
    responses((status = OK, description = "The document", body = Value), NotModified)
)]
pub(in crate::http) async fn get_openapi(
    State(app): State<AppState>,
    headers: HeaderMap,
) -> Response<Body> {
    static WITH_TOKENS: LazyLock<StaticText> = LazyLock::new(|| StaticText::new(OPENAPI_JSON));
    static TEXT: LazyLock<String> = LazyLock::new(without_tokens);
    static WITHOUT_TOKENS: LazyLock<StaticText> = LazyLock::new(|| StaticText::new(&TEXT));

    match app.auth {
        Some(_) => WITH_TOKENS.respond(&headers),
        None => WITHOUT_TOKENS.respond(&headers),
    }
}

fn without_tokens() -> String {
    let mut document: Value = serde_json::from_str(OPENAPI_JSON).unwrap_or_default();
    let operations = operations(&mut document).map(|(_, _, operation)| operation);
    for operation in operations.filter_map(Value::as_object_mut) {
        operation.remove("security");
        let responses = operation.get_mut("responses");
        responses.and_then(|it| it.as_object_mut()?.remove("401"));
    }
    let components = document.get_mut("components");
    components.and_then(|it| it.as_object_mut()?.remove("securitySchemes"));
    document.to_string()
}

/// A constant JSON text and its version: half of its SHA-256.
pub(in crate::http) struct StaticText {
    text: &'static str,
    version: String,
}

impl StaticText {
    pub(in crate::http) fn new(text: &'static str) -> Self {
        let digest: [u8; 32] = Sha256::digest(text).into();
        let half = digest.first_chunk().copied().unwrap_or_default();
        Self {
            text,
            version: format!("{:032x}", u128::from_be_bytes(half)),
        }
    }

    pub(in crate::http) fn respond(&self, headers: &HeaderMap) -> Response<Body> {
        conditional::respond(headers, &self.version, || {
            let media_type = [(header::CONTENT_TYPE, "application/json")];
            (media_type, Extension(StaticBody), self.text).into_response()
        })
    }
}

/// Redirects relatively, for proxies that add a path prefix.
fn see_other(relative: &'static str) -> (StatusCode, [(HeaderName, &'static str); 1]) {
    (StatusCode::SEE_OTHER, [(header::LOCATION, relative)])
}

fn no_such_file() -> ApiError {
    ApiError::new(
        ProblemType::NotFound,
        "the documentation page has no such file",
    )
}

/// The page with a text for browsers without JavaScript.
fn with_noscript(page: &[u8]) -> String {
    let page = String::from_utf8_lossy(page);
    page.replacen(
        "<body>",
        "<body>\n    <noscript>This page needs JavaScript. The calls are described in \
         <a href=\"../openapi.json\">openapi.json</a>.</noscript>",
        1,
    )
}

fn page(file: &str) -> Result<Response<Body>, ApiError> {
    static CONFIG: LazyLock<Arc<Config<'static>>> = LazyLock::new(|| {
        Arc::new(
            Config::from("../openapi.json")
                .validator_url("none")
                .display_operation_id(true)
                .try_it_out_enabled(true),
        )
    });

    static INDEX: OnceLock<String> = OnceLock::new();

    let served = utoipa_swagger_ui::serve(file, Arc::clone(&CONFIG)).map_err(|error| {
        tracing::error!(%error, file, "cannot serve documentation page");
        ApiError::internal()
    })?;
    let Some(mut served) = served else {
        return Err(no_such_file());
    };
    if matches!(file, "" | "index.html") {
        let index = INDEX.get_or_init(|| with_noscript(&served.bytes));
        served.bytes = Cow::Borrowed(index.as_bytes());
    }
    // All files but the small one that names the document are constants of the binary.
    let body = match served.bytes {
        Cow::Borrowed(bytes) => (Extension(StaticBody), Bytes::from_static(bytes)).into_response(),
        Cow::Owned(bytes) => Body::from(bytes).into_response(),
    };
    let headers = [
        (header::CONTENT_TYPE, &*served.content_type),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, body).into_response())
}
