//! Fetching of the key set of an issuer: at a bounded pace, and with a token if one is needed.

use std::{
    io,
    path::{Path, PathBuf},
};

use axum::http::{HeaderMap, HeaderValue, header};
use doorman_jwt::{InvalidClient, MAX_AGE, MAX_TOKEN, MIN_INTERVAL};
use doorman_openapi::Moment;
use tokio::sync::Mutex;

use super::{AuthError, AuthSettings};
use crate::util::{clock, small_file};

/// Fetches the key set at a URL.
#[derive(Debug)]
pub(super) struct JwksClient {
    url: String,
    /// The file with the bearer token for the issuer.
    token: Option<PathBuf>,
    http: doorman_jwt::JwksClient,
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
        let read = |path: &PathBuf| {
            small_file::read(path).map_err(|error| in_file("--auth-jwks-ca", path, error))
        };
        let authority = settings.jwks_ca.as_ref().map(read).transpose()?;
        let agent = concat!("doorman/", env!("CARGO_PKG_VERSION"));
        let proxy = settings.jwks_proxy.as_deref();
        let http = doorman_jwt::JwksClient::new(&url, authority.as_deref(), agent, proxy);
        let http = http.map_err(|invalid| {
            let flag = match invalid {
                InvalidClient::Authority(_) => "--auth-jwks-ca",
                InvalidClient::Proxy => "--auth-jwks-proxy",
                _ => "--auth-jwks",
            };
            AuthError::new(flag, None, invalid.to_string())
        })?;
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

    async fn request(&self) -> Result<Vec<u8>, String> {
        let mut headers = (self.outgoing_headers)();
        if let Some(path) = self.token.clone() {
            let flag = format!("--auth-jwks-token-file {}", path.display());
            let token = tokio::task::spawn_blocking(move || authorization(&path)).await;
            let token = token.map_err(io::Error::other).and_then(|token| token);
            headers.insert(
                header::AUTHORIZATION,
                token.map_err(|error| format!("{flag}: {error}"))?,
            );
        }
        self.http.fetch(headers).await
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
