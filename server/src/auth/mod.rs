//! Authentication by bearer tokens (JWT).
//!
//! `bearer` finds the token of a request, `verify` checks it by the keys of trusted issuers, and
//! `claims` or a grant make a [`Caller`] of it. The package `doorman-jwt` has the checks, the keys
//! and the cache of valid tokens. A change of any of the `sources` (files, and a URL that
//! `jwks_client` fetches) makes a new verifier.
//! `inspect` explains a token to its issuer; callers of a server learn less.

mod bearer;
mod caller;
mod claims;
mod inspect;
mod jwks_client;
mod mint;
mod settings;
mod sources;
mod verify;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use axum::http::HeaderMap;
use doorman_jwt::install_provider;
use doorman_openapi::Moment;
use futures_util::future::{join, join_all};
use tokio::{
    task,
    time::{MissedTickBehavior, interval},
};

pub(crate) use self::{caller::Caller, verify::TokenStatus};
pub use self::{
    inspect::{DecodedToken, Verdict, check_token},
    mint::{SignError, Token},
    settings::{
        AuthError, AuthSettings, InvalidJwksSource, JwksSource, KeyAlgorithm, UnknownAlgorithm,
    },
    verify::FailedCheck,
};
use self::{jwks_client::JwksClient, sources::Source, verify::Verifier};
use crate::util::{clock, follow::FileFollower, small_file};

/// How often the age of fetched keys is checked.
const AGE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A request is not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unauthenticated {
    /// No `Authorization` header, or one of another scheme.
    NoToken,
    /// Several `Authorization` headers, or a token that is empty, too long or ill-formed.
    Malformed,
    Invalid(FailedCheck),
    /// The issuer's keys have not been fetched yet.
    KeysUnavailable,
}

impl Unauthenticated {
    /// The check that failed, for the log.
    pub(crate) fn failed_check(self) -> &'static str {
        match self {
            Self::NoToken => "no token",
            Self::Malformed => "authorization header",
            Self::Invalid(check) => check.name(),
            Self::KeysUnavailable => "keys unavailable",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Auth {
    settings: AuthSettings,
    /// Locked during a change of the verifier.
    sources: Mutex<Vec<Source>>,
    jwks: Option<JwksClient>,
    verifier: ArcSwap<Verifier>,
}

impl Auth {
    /// Reads all files. A key set at a URL is fetched later. Blocks on the file system.
    ///
    /// # Errors
    /// A file cannot be read or is invalid, or the settings contradict each other.
    pub(crate) fn load(settings: AuthSettings) -> Result<Self, AuthError> {
        install_provider();
        settings.validate()?;
        let mut sources = sources::of_settings(&settings);
        for source in &mut sources {
            if let JwksSource::File(path) = &source.location {
                let content = small_file::read(path).map_err(|error| source.error(&error))?;
                source.set_valid(content);
            }
        }
        let jwks = match &settings.jwks {
            Some(JwksSource::Url(url)) => Some(JwksClient::new(url.clone(), &settings)?),
            Some(JwksSource::File(_)) | None => None,
        };
        let verifier = sources::verifier(&settings, &sources)?;
        Ok(Self {
            settings,
            sources: Mutex::new(sources),
            jwks,
            verifier: ArcSwap::from_pointee(verifier),
        })
    }

    /// Adds headers to each request for the issuer's keys.
    #[must_use]
    pub(crate) fn with_outgoing_headers(mut self, headers: fn() -> HeaderMap) -> Self {
        if let Some(jwks) = &mut self.jwks {
            jwks.outgoing_headers = headers;
        }
        self
    }

    /// The status of a request's token, without verifying it.
    pub(crate) fn token_status(&self, headers: &HeaderMap, now: Moment) -> TokenStatus {
        match bearer::token(headers) {
            Ok(token) => self.verifier.load().token_status(token, now),
            Err(_) => TokenStatus::Absent,
        }
    }

    /// The caller of a request.
    pub(crate) async fn authenticate(
        &self,
        headers: &HeaderMap,
    ) -> Result<Caller, Unauthenticated> {
        self.verify(bearer::token(headers)?).await
    }

    /// The bearer of a token. One with an unknown key may wait for a fetch of the keys.
    async fn verify(&self, token: &str) -> Result<Caller, Unauthenticated> {
        let verify = || {
            let verifier = self.verifier.load();
            (verifier.verify(token, clock::now()), verifier.is_complete)
        };
        let (verified, is_complete) = verify();
        let may_fetch_help = match verified {
            _ if self.jwks.is_none() => false,
            Err(FailedCheck::UnknownKey) => true,
            Ok(_) | Err(FailedCheck::NotYetValid | FailedCheck::Expired) => false,
            Err(_) => !is_complete,
        };
        if !may_fetch_help {
            return verified.map_err(Unauthenticated::Invalid);
        }
        self.fetch_keys().await;
        let (verified, is_complete) = verify();
        verified.map_err(|check| {
            if is_complete {
                Unauthenticated::Invalid(check)
            } else {
                Unauthenticated::KeysUnavailable
            }
        })
    }

    /// Follows changes of the files and the key set.
    ///
    /// # Cancel safety
    /// The last applied change stays active.
    pub(crate) async fn follow(self: Arc<Self>) {
        let files: Vec<_> = (self.sources().iter().enumerate())
            .filter_map(|(index, source)| match &source.location {
                JwksSource::File(path) => Some((index, path.clone())),
                JwksSource::Url(_) => None,
            })
            .collect();
        let files = files
            .into_iter()
            .map(|(index, path)| Arc::clone(&self).follow_file(index, path));
        join(join_all(files), self.refresh_keys()).await;
    }

    async fn follow_file(self: Arc<Self>, index: usize, path: PathBuf) {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            Some(_) | None => Path::new(".").to_owned(),
        };
        // A file that cannot be read may be about to be replaced.
        let read = move || small_file::read(&path).ok();
        let mut follower = FileFollower::new([&*directory], read);
        loop {
            let content = follower
                .next(|content| content.as_ref().is_none_or(|it| self.is_known(index, it)))
                .await;
            let Some(content) = content.filter(|it| !self.is_known(index, it)) else {
                continue;
            };
            let auth = Arc::clone(&self);
            let updated = task::spawn_blocking(move || auth.update(index, content)).await;
            if let Err(error) = updated {
                tracing::error!(%error, "applying changed keys or grants failed");
            }
        }
    }

    async fn refresh_keys(&self) {
        let Some(jwks) = &self.jwks else { return };
        let mut checks = interval(AGE_CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            checks.tick().await;
            if !self.verifier.load().is_complete || jwks.is_stale(clock::now()).await {
                self.fetch_keys().await;
            }
        }
    }

    async fn fetch_keys(&self) {
        let Some(jwks) = &self.jwks else { return };
        jwks.fetch(|content| {
            let is_remote = |source: &Source| matches!(source.location, JwksSource::Url(_));
            let index = self.sources().iter().position(is_remote);
            if let Some(index) = index {
                self.update(index, content);
            }
        })
        .await;
    }

    /// Activates new content of a source, if it is valid.
    fn update(&self, index: usize, content: Vec<u8>) {
        let mut sources = self.sources();
        let mut changed = sources.clone();
        let Some(source) = changed.get_mut(index) else {
            return;
        };
        if source.is_known(&content) {
            return;
        }
        source.set_valid(content.clone());
        let (flag, name) = (source.flag(), source.location.to_string());
        match sources::verifier(&self.settings, &changed) {
            Ok(verifier) => {
                let verifier = verifier.succeeding(&self.verifier.load());
                *sources = changed;
                self.verifier.store(Arc::new(verifier));
                tracing::info!(from = name, "{flag} changed and is active");
            }
            Err(error) => {
                if let Some(source) = sources.get_mut(index) {
                    source.invalid = Some(content);
                }
                tracing::error!("invalid change; previous keys and grants stay active: {error}");
            }
        }
    }

    fn is_known(&self, index: usize, content: &[u8]) -> bool {
        self.sources()
            .get(index)
            .is_some_and(|source| source.is_known(content))
    }

    fn sources(&self) -> MutexGuard<'_, Vec<Source>> {
        // A panic leaves the sources and the verifier as they were.
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
