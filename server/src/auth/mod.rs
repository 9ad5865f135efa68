//! Authentication by bearer tokens (JWT).
//!
//! `bearer` finds the token of a request, `verify` checks it by the keys of trusted issuers, and
//! `claims` or a grant make a [`Caller`] of it. `token_cache` remembers valid tokens. A change of
//! any of the `sources` (files, and a URL that `jwks_client` fetches) makes a new verifier.
//! `inspect` explains a token to its issuer; callers of a server learn less.

mod bearer;
mod caller;
mod claims;
mod inspect;
mod jwks_client;
mod keys;
mod mint;
mod settings;
mod sources;
mod token_cache;
mod verify;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use axum::http::HeaderMap;
use doorman_openapi::Moment;
use futures_util::future::{join, join_all};
use jsonwebtoken::crypto;
use tokio::{
    task,
    time::{MissedTickBehavior, interval},
};

use self::{
    bearer::NoToken,
    jwks_client::JwksClient,
    sources::{Location, Source},
    verify::Verifier,
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
use crate::util::{clock, follow::FileFollower, small_file};

/// How often the age of fetched keys is checked.
const AGE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A request is not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unauthenticated {
    NoToken,
    /// The `Authorization` header is ill-formed, too long or not the only one.
    Malformed,
    Invalid(FailedCheck),
    NotYetValid,
    Expired,
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
            Self::NotYetValid => FailedCheck::NotYetValid.name(),
            Self::Expired => FailedCheck::Expired.name(),
            Self::KeysUnavailable => "keys unavailable",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Auth {
    settings: AuthSettings,
    /// Locked during a change of the verifier.
    sources: Mutex<Vec<Source>>,
    /// Whether each source has had valid content.
    is_loaded: AtomicBool,
    jwks: Option<JwksClient>,
    verifier: ArcSwap<Verifier>,
}

impl Auth {
    /// Reads all files. A key set at a URL is fetched later. Blocks on the file system.
    ///
    /// # Errors
    /// A file cannot be read or is invalid, or the settings contradict each other.
    pub(crate) fn load(settings: AuthSettings) -> Result<Self, AuthError> {
        // Otherwise jsonwebtoken panics at the first token if a dependency enables its other
        // provider, too. A provider that the program has installed before stays.
        crypto::aws_lc::DEFAULT_PROVIDER.install_default().ok();
        settings.validate()?;
        let mut sources = sources::of_settings(&settings);
        for source in &mut sources {
            if let Location::File(path) = &source.location {
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
            is_loaded: AtomicBool::new(jwks.is_none()),
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
            Err(NoToken::Absent | NoToken::Malformed) => TokenStatus::Absent,
        }
    }

    /// The caller of a request. A token with an unknown key may wait for a fetch of the keys.
    pub(crate) async fn authenticate(
        &self,
        headers: &HeaderMap,
    ) -> Result<Caller, Unauthenticated> {
        let token = bearer::token(headers).map_err(|error| match error {
            NoToken::Absent => Unauthenticated::NoToken,
            NoToken::Malformed => Unauthenticated::Malformed,
        })?;
        // Read before each verification: otherwise keys that arrive meanwhile would count as tried.
        let was_loaded = self.is_loaded();
        let verified = self.verifier.load().verify(token, clock::now());
        let may_fetch_help = match verified {
            _ if self.jwks.is_none() => false,
            Err(FailedCheck::UnknownKey) => true,
            Ok(_) | Err(FailedCheck::NotYetValid | FailedCheck::Expired) => false,
            Err(_) => !was_loaded,
        };
        if !may_fetch_help {
            return verified.map_err(Into::into);
        }
        self.fetch_keys().await;
        let was_loaded = self.is_loaded();
        let verified = self.verifier.load().verify(token, clock::now());
        verified.map_err(|error| {
            if was_loaded {
                error.into()
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
                Location::File(path) => Some((index, path.clone())),
                Location::Url(_) => None,
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
            if !self.is_loaded() || jwks.is_stale(clock::now()).await {
                self.fetch_keys().await;
            }
        }
    }

    async fn fetch_keys(&self) {
        let Some(jwks) = &self.jwks else { return };
        jwks.fetch(|content| {
            let is_remote = |source: &Source| matches!(source.location, Location::Url(_));
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
        let (flag, name) = (source.flag(), source.name());
        match sources::verifier(&self.settings, &changed) {
            Ok(mut verifier) => {
                verifier.cache = self.verifier.load().cache.invalidated();
                let is_loaded = changed.iter().all(Source::is_loaded);
                *sources = changed;
                self.verifier.store(Arc::new(verifier));
                self.is_loaded.store(is_loaded, Release);
                tracing::info!(from = name, "{flag} changed and is active");
            }
            Err(error) => {
                if let Some(source) = sources.get_mut(index) {
                    source.set_invalid(content);
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

    /// Whether each source has had valid content. A verifier loaded afterwards has all keys.
    fn is_loaded(&self) -> bool {
        self.is_loaded.load(Acquire)
    }
}

impl From<FailedCheck> for Unauthenticated {
    fn from(check: FailedCheck) -> Self {
        match check {
            FailedCheck::NotYetValid => Self::NotYetValid,
            FailedCheck::Expired => Self::Expired,
            check => Self::Invalid(check),
        }
    }
}
