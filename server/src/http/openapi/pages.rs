//! `/openapi.json` and the documentation page, both served from the binary.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock, OnceLock},
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
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use utoipa_axum::{router::OpenApiRouter, routes};
use utoipa_swagger_ui::Config;

use crate::{
    auth::Auth,
    http::{
        error::ApiError,
        response::{buffer::StaticBody, conditional},
        state::AppState,
    },
};

/// The page may load only itself.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

pub(in crate::http) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_openapi))
}

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
    tag = "views",
    params(
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "The `ETag` of an earlier response")
    ),
    responses(
        (
            status = OK,
            description = "The document",
            body = serde_json::Value,
            content_type = "application/json",
            headers(
                ("ETag" = String, description = "The version of the document"),
                ("Cache-Control" = String, description = "`no-cache`")
            )
        ),
        (status = NOT_MODIFIED, description = "The document has the version of `If-None-Match`")
    )
)]
async fn get_openapi(State(auth): State<Option<Arc<Auth>>>, headers: HeaderMap) -> Response<Body> {
    static WITH_TOKENS: LazyLock<StaticText> = LazyLock::new(|| StaticText::new(OPENAPI_JSON));
    static TEXT: LazyLock<String> = LazyLock::new(without_tokens);
    static WITHOUT_TOKENS: LazyLock<StaticText> = LazyLock::new(|| StaticText::new(&TEXT));

    let document: &'static StaticText = match auth {
        Some(_) => &WITH_TOKENS,
        None => &WITHOUT_TOKENS,
    };
    conditional::respond(&headers, &document.version, || {
        let media_type = [(header::CONTENT_TYPE, "application/json")];
        (media_type, Extension(StaticBody), document.text).into_response()
    })
}

fn without_tokens() -> String {
    let mut document: Value = serde_json::from_str(OPENAPI_JSON).unwrap_or_default();
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    let items = paths.into_iter().flat_map(|paths| paths.values_mut());
    let operations = items
        .filter_map(Value::as_object_mut)
        .flat_map(|item| item.values_mut());
    for operation in operations.filter_map(Value::as_object_mut) {
        operation.remove("security");
        if let Some(responses) = operation
            .get_mut("responses")
            .and_then(Value::as_object_mut)
        {
            responses.remove("401");
        }
    }
    if let Some(components) = document
        .get_mut("components")
        .and_then(Value::as_object_mut)
    {
        components.remove("securitySchemes");
    }
    document.to_string()
}

/// A constant text and its version: half of its SHA-256.
struct StaticText {
    text: &'static str,
    version: String,
}

impl StaticText {
    fn new(text: &'static str) -> Self {
        let digest: [u8; 32] = Sha256::digest(text).into();
        let half = digest.first_chunk().copied().unwrap_or_default();
        Self {
            text,
            version: format!("{:032x}", u128::from_be_bytes(half)),
        }
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
    let mut response = match served.bytes {
        Cow::Borrowed(bytes) => (Extension(StaticBody), Bytes::from_static(bytes)).into_response(),
        Cow::Owned(bytes) => Body::from(bytes).into_response(),
    };
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
