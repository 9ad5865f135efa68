//! The document of the API, and a page to read and try it, both out of the binary: neither refers to anything elsewhere.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use axum::{
    Extension, Router,
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use bytes::Bytes;
use doorman_openapi::{OPENAPI_JSON, ProblemType, paths};
use sha2::{Digest as _, Sha256};
use utoipa_axum::{router::OpenApiRouter, routes};
use utoipa_swagger_ui::Config;

use super::{
    answers::Static, conditional, internal_error, openapi_without_tokens, refusal::Refusal,
};
use crate::{auth::Auth, http::state::AppState};

/// What the page may load: itself. The browser holds to it even if the page does not.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
     frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_openapi))
}

/// The page, which is for people and no part of the API.
pub(super) fn pages() -> Router<AppState> {
    Router::new()
        .route("/", get(|| async { see("docs/") }))
        .route(paths::DOCS, get(|| async { see("docs/") }))
        .route("/docs/", get(|| page("")))
        .route(
            "/docs/{file}",
            get(|file: Result<Path<String>, PathRejection>| async move {
                match file {
                    Ok(Path(file)) => page(&file).await,
                    // A name that is no text is the name of nothing.
                    Err(_) => Err(no_such_file()),
                }
            }),
        )
}

/// Read this document
///
/// The OpenAPI 3.1 document of the control plane. Where no tokens are asked for, it says so.
#[utoipa::path(
    get,
    path = paths::OPENAPI,
    tag = "views",
    params(
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "The `ETag` of an earlier answer")
    ),
    responses(
        (
            status = OK,
            description = "The document",
            body = serde_json::Value,
            content_type = "application/json",
            headers(
                ("ETag" = String, description = "The version of the document, in quotes; strong"),
                ("Cache-Control" = String, description = "`no-cache`: to be asked for again each time")
            )
        ),
        (status = NOT_MODIFIED, description = "The document is that of the `ETag` sent")
    )
)]
async fn get_openapi(State(auth): State<Option<Arc<Auth>>>, headers: HeaderMap) -> Response<Body> {
    static WITH_TOKENS: LazyLock<Written> = LazyLock::new(|| Written::new(OPENAPI_JSON));
    // Written once: it is the same for as long as the process lives. The document is built of text and numbers alone, so this cannot fail.
    static TEXT: LazyLock<String> =
        LazyLock::new(|| openapi_without_tokens().to_json().unwrap_or_default());
    static WITHOUT_TOKENS: LazyLock<Written> = LazyLock::new(|| Written::new(&TEXT));

    let document: &'static Written = match auth {
        Some(_) => &WITH_TOKENS,
        None => &WITHOUT_TOKENS,
    };
    conditional::respond(&headers, &document.version, || {
        let media_type = [(header::CONTENT_TYPE, "application/json")];
        (media_type, Extension(Static), document.text).into_response()
    })
}

/// A text that never changes, with its version: half of its SHA-256.
struct Written {
    text: &'static str,
    version: String,
}

impl Written {
    fn new(text: &'static str) -> Self {
        let digest: [u8; 32] = Sha256::digest(text).into();
        let half = digest.first_chunk().copied().unwrap_or_default();
        Self {
            text,
            version: format!("{:032x}", u128::from_be_bytes(half)),
        }
    }
}

/// A relative reference, so that it also leads there behind a proxy that serves us below a path of its own.
fn see(relative: &'static str) -> (StatusCode, [(HeaderName, &'static str); 1]) {
    (StatusCode::SEE_OTHER, [(header::LOCATION, relative)])
}

fn no_such_file() -> Refusal {
    Refusal::new(
        ProblemType::NotFound,
        "the documentation page has no such file",
    )
}

async fn page(file: &str) -> Result<Response<Body>, Refusal> {
    static CONFIG: LazyLock<Arc<Config<'static>>> = LazyLock::new(|| {
        Arc::new(
            Config::from("../openapi.json")
                .validator_url("none")
                .display_operation_id(true)
                .try_it_out_enabled(true),
        )
    });

    let served = utoipa_swagger_ui::serve(file, Arc::clone(&CONFIG)).map_err(|error| {
        tracing::error!(%error, file, "a file of the documentation page cannot be served");
        internal_error()
    })?;
    let Some(served) = served else {
        return Err(no_such_file());
    };
    // All files but the small one that says where the document is are sent from where they lie in the program.
    let (bytes, is_static) = match served.bytes {
        Cow::Borrowed(bytes) => (Bytes::from_static(bytes), true),
        Cow::Owned(bytes) => (bytes.into(), false),
    };
    let mut response = Body::from(bytes).into_response();
    if is_static {
        response.extensions_mut().insert(Static);
    }
    let headers = response.headers_mut();
    if let Ok(media_type) = HeaderValue::try_from(served.content_type) {
        headers.insert(header::CONTENT_TYPE, media_type);
    }
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(CONTENT_SECURITY_POLICY),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}
