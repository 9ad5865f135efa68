//! HTTP client for the key set of an issuer.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use doorman_openapi::Moment;
use reqwest::{
    Certificate,
    header::{self, HeaderMap, HeaderValue},
    redirect,
};
use tokio::sync::Mutex;

use super::{AuthError, AuthSettings, bearer::MAX_TOKEN};
use crate::util::{
    clock,
    small_file::{self, MAX_BYTES},
};

/// Timeout of a whole response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The shortest time between two requests: tokens with invented key IDs must not become load on
/// the issuer.
pub(super) const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// Keys are fetched again after this time even if none is missing.
const MAX_AGE: Duration = Duration::from_secs(600);

/// Fetches the key set at a URL.
#[derive(Debug)]
pub(super) struct JwksClient {
    url: String,
    /// The file with the bearer token for the issuer.
    token: Option<PathBuf>,
    http: reqwest::Client,
    /// Added to each request.
    pub(super) outgoing_headers: fn() -> HeaderMap,
    /// Locked during a request, so that concurrent callers share it.
    last_attempt: Mutex<Option<Moment>>,
}

impl JwksClient {
    /// Reads the files that the settings name. Blocks on the file system.
    pub(super) fn new(url: String, settings: &AuthSettings) -> Result<Self, AuthError> {
        let in_file = |flag, path: &Path, error: io::Error| {
            AuthError::new(flag, Some(path.display().to_string()), error.to_string())
        };
        if let Some(path) = &settings.jwks_token_file {
            authorization(path).map_err(|error| in_file("--auth-jwks-token-file", path, error))?;
        }
        let mut builder = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .no_proxy()
            // Only the operator decides which host is asked.
            .redirect(redirect::Policy::none())
            .user_agent(concat!("doorman/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = &settings.jwks_ca {
            let pem =
                small_file::read(path).map_err(|error| in_file("--auth-jwks-ca", path, error))?;
            let invalid = |reason: String| AuthError::new("--auth-jwks-ca", None, reason);
            let certificates =
                Certificate::from_pem_bundle(&pem).map_err(|error| invalid(error.to_string()))?;
            if certificates.is_empty() {
                return Err(invalid("must have a certificate in PEM".to_owned()));
            }
            builder = builder.tls_certs_merge(certificates);
        } else if url.starts_with("http:") {
            // Plain HTTP works without installed certificate authorities.
            builder = builder.tls_certs_only([]);
        }
        let http = builder
            .build()
            .map_err(|error| AuthError::new("--auth-jwks", None, error.to_string()))?;
        Ok(Self {
            url,
            token: settings.jwks_token_file.clone(),
            http,
            outgoing_headers: HeaderMap::new,
            last_attempt: Mutex::new(None),
        })
    }

    /// Fetches the key set, unless that was tried within [`MIN_INTERVAL`]. `apply` runs before a
    /// concurrent call returns.
    ///
    /// # Cancel safety
    /// When it is dropped during a request, the next request waits for the interval.
    pub(super) async fn fetch(&self, apply: impl FnOnce(Vec<u8>)) {
        let mut last = self.last_attempt.lock().await;
        if last.is_some_and(|last| clock::now() < last.after(MIN_INTERVAL)) {
            return;
        }
        *last = Some(clock::now());
        match self.request().await {
            Ok(body) => apply(body),
            Err(error) => {
                tracing::warn!(url = self.url, %error, "cannot fetch keys; previous keys stay active");
            }
        }
    }

    pub(super) async fn is_stale(&self, now: Moment) -> bool {
        let last = *self.last_attempt.lock().await;
        last.is_none_or(|last| now >= last.after(MAX_AGE))
    }

    async fn request(&self) -> io::Result<Vec<u8>> {
        let mut headers = (self.outgoing_headers)();
        if let Some(path) = self.token.clone() {
            let flag = format!("--auth-jwks-token-file {}", path.display());
            let token = tokio::task::spawn_blocking(move || authorization(&path)).await?;
            let token = token.map_err(|error| io::Error::other(format!("{flag}: {error}")))?;
            headers.insert(header::AUTHORIZATION, token);
        }
        let mut response = self
            .http
            .get(&self.url)
            .headers(headers)
            .send()
            .await
            .and_then(reqwest::Response::error_for_status)
            .map_err(io::Error::other)?;
        if !response.status().is_success() {
            let status = response.status();
            return Err(io::Error::other(format!("unexpected status {status}")));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(io::Error::other)? {
            if body.len().saturating_add(chunk.len()) > MAX_BYTES {
                return Err(io::Error::other("response is larger than 1 MiB"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// The `Authorization` header with the token in a file. Blocks on the file system.
fn authorization(path: &Path) -> io::Result<HeaderValue> {
    let bytes = small_file::read(path)?;
    let token = bytes.trim_ascii();
    if !(1..=MAX_TOKEN).contains(&token.len()) {
        return Err(io::Error::other("a token must have 1 to 8192 bytes"));
    }
    // The error must not repeat the token.
    let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat())
        .map_err(|_| io::Error::other("a token must not have control characters"))?;
    value.set_sensitive(true);
    Ok(value)
}
