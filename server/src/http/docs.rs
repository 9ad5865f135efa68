//! The document of the API, and a page to read and try it, both out of the binary: neither refers to anything elsewhere.

use std::sync::{Arc, LazyLock};

use axum::{
    Router,
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    http::{HeaderName, HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use doorman_openapi::{OPENAPI_JSON, ProblemType, paths};
use utoipa_axum::{router::OpenApiRouter, routes};
use utoipa_swagger_ui::Config;

use super::{internal_error, openapi_without_tokens, refusal::Refusal};
use crate::app::App;

/// What the page may load: itself. The browser holds to it even if the page does not.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
     frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(get_openapi))
}

/// The page, which is for people and no part of the API.
pub(super) fn pages() -> Router<Arc<App>> {
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
    responses((
        status = OK,
        description = "The document",
        body = serde_json::Value,
        content_type = "application/json"
    ))
)]
async fn get_openapi(
    State(app): State<Arc<App>>,
) -> ([(HeaderName, &'static str); 1], &'static str) {
    // Written once: it is the same for as long as the process lives. The document is built of text and numbers alone, so this cannot fail.
    static WITHOUT_TOKENS: LazyLock<String> =
        LazyLock::new(|| openapi_without_tokens().to_json().unwrap_or_default());

    let document = match app.auth() {
        Some(_) => OPENAPI_JSON,
        None => WITHOUT_TOKENS.as_str(),
    };
    ([(header::CONTENT_TYPE, "application/json")], document)
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
    let mut response = Body::from(served.bytes.into_owned()).into_response();
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
