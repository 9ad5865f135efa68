//! Keys that an issuer publishes at an address.

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

use super::{AuthError, bearer::LONGEST_TOKEN};
use crate::util::small_file::{self, MAX_BYTES};

/// How long an answer may take, whole.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long to leave the issuer alone after it was asked: tokens with made-up names of keys must not become a load on it.
pub(super) const PAUSE: Duration = Duration::from_secs(10);

/// After so long the keys are asked for again, whether anything was missing or not.
const STALE: Duration = Duration::from_secs(600);

/// The address, and when it was last asked.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) url: String,
    /// The file with the token to ask with.
    token: Option<PathBuf>,
    http: reqwest::Client,
    /// Headers of each request, such as those of the trace that it belongs to.
    pub(super) outgoing_headers: fn() -> HeaderMap,
    /// Locked while it is being asked: however many need a key at one time, it is asked once.
    asked: tokio::sync::Mutex<Option<Moment>>,
}

/// How an asking ended.
#[derive(Debug)]
pub(super) enum Asked {
    /// With an answer.
    Answer(Vec<u8>),
    /// Without one.
    Nothing(String),
    /// It was asked a moment ago.
    TooSoon,
}

impl Remote {
    /// Blocks on the file system: a token that cannot be read is a mistake that is better known at the start.
    pub(super) fn new(
        url: String,
        ca: Option<&[u8]>,
        token: Option<PathBuf>,
    ) -> Result<Self, AuthError> {
        if let Some(path) = &token {
            authorization(path).map_err(|error| {
                let place = Some(path.display().to_string());
                AuthError::new("--auth-jwks-token-file", place, error.to_string())
            })?;
        }
        let wrong = |why: String| AuthError::new("--auth-jwks-ca", None, why);
        let mut builder = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .no_proxy()
            // Who is asked is the operator's word, and no answer changes it.
            .redirect(redirect::Policy::none())
            .user_agent(concat!("doorman/", env!("CARGO_PKG_VERSION")));
        if let Some(pem) = ca {
            let certificates =
                Certificate::from_pem_bundle(pem).map_err(|error| wrong(error.to_string()))?;
            if certificates.is_empty() {
                return Err(wrong("has no certificate in PEM".to_owned()));
            }
            builder = builder.tls_certs_merge(certificates);
        } else if url.starts_with("http:") {
            // Authorities that nobody is asked for need not be installed.
            builder = builder.tls_certs_only([]);
        }
        let http = builder
            .build()
            .map_err(|error| AuthError::new("--auth-jwks", None, error.to_string()))?;
        Ok(Self {
            url,
            token,
            http,
            outgoing_headers: HeaderMap::new,
            asked: tokio::sync::Mutex::new(None),
        })
    }

    /// Asks, unless that was done less than a pause ago. `learn` is called with the outcome before anybody else may ask.
    ///
    /// # Cancel safety
    /// When it is dropped while it asks, the next one waits out the pause.
    pub(super) async fn ask<T>(
        &self,
        now: impl Fn() -> Moment,
        learn: impl FnOnce(Asked) -> T,
    ) -> T {
        let mut asked = self.asked.lock().await;
        if asked.is_some_and(|before| now() < before.after(PAUSE)) {
            return learn(Asked::TooSoon);
        }
        *asked = Some(now());
        learn(match self.fetch().await {
            Ok(answer) => Asked::Answer(answer),
            Err(error) => Asked::Nothing(error.to_string()),
        })
    }

    /// Whether it should be asked though nobody misses anything.
    pub(super) async fn is_stale(&self, now: Moment) -> bool {
        let asked = *self.asked.lock().await;
        asked.is_none_or(|before| now >= before.after(STALE))
    }

    async fn fetch(&self) -> io::Result<Vec<u8>> {
        // It may be a request that needs the key.
        let mut headers = (self.outgoing_headers)();
        if let Some(path) = self.token.clone() {
            let named = format!("--auth-jwks-token-file {}", path.display());
            let token = tokio::task::spawn_blocking(move || authorization(&path)).await?;
            let token = token.map_err(|error| io::Error::other(format!("{named}: {error}")))?;
            headers.insert(header::AUTHORIZATION, token);
        }
        let mut answer = self
            .http
            .get(&self.url)
            .headers(headers)
            .send()
            .await
            .and_then(reqwest::Response::error_for_status)
            .map_err(io::Error::other)?;
        if !answer.status().is_success() {
            return Err(io::Error::other(format!("it answers {}", answer.status())));
        }
        let mut bytes = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(io::Error::other)? {
            if bytes.len().saturating_add(part.len()) > MAX_BYTES {
                return Err(io::Error::other("its answer is larger than 1 MiB"));
            }
            bytes.extend_from_slice(&part);
        }
        Ok(bytes)
    }
}

/// What `Authorization` says with the token in a file, white space around it ignored. Blocks on the file system.
fn authorization(path: &Path) -> io::Result<HeaderValue> {
    let bytes = small_file::read(path)?;
    let token = bytes.trim_ascii();
    if !(1..=LONGEST_TOKEN).contains(&token.len()) {
        return Err(io::Error::other("a token has 1 to 8192 bytes"));
    }
    // What is wrong with it is not said by repeating it.
    let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat())
        .map_err(|_| io::Error::other("it has characters that no token has"))?;
    value.set_sensitive(true);
    Ok(value)
}
