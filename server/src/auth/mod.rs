//! Who sends a request, and what it may do.
//!
//! A request walks `bearer` (the token in its headers) → `verify` (does the token count, by one `key` of an issuer that is trusted) →
//! `claims` (what it says, or a grant says for it) → `caller`. `known` spares the way to tokens that have walked it. Keys and grants
//! come from `source`s, of which one may be `remote`; they are `follow`ed, and a change of any of them is `learn`ed: it makes another
//! verifier, which verifies each token anew.
//! What a caller may do is decided by its scopes and [restrictions](doorman_config::Restrictions), in `http`.

mod bearer;
mod caller;
mod claims;
mod follow;
mod jwks;
mod key;
mod known;
mod learn;
mod mint;
mod remote;
mod settings;
mod source;
mod verify;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};

use arc_swap::ArcSwap;
use axum::http::HeaderMap;
use doorman_config::Grants;
use doorman_openapi::Moment;
use jsonwebtoken::crypto;

use self::{
    bearer::NoToken,
    claims::WithoutGrant,
    jwks::InvalidSet,
    key::Key,
    known::Known,
    remote::Remote,
    source::{Place, Purpose, Source},
    verify::{Invalid, Trust, Verifier},
};
pub(crate) use self::{caller::Caller, verify::TokenStatus};
pub use self::{
    mint::{InvalidToken, Token},
    settings::{AuthSettings, InvalidJwksSource, JwksSource, KeyAlgorithm, UnknownAlgorithm},
};
use crate::util::{clock, small_file};

/// Whose tokens count cannot be made out. One line that names the flag.
#[derive(Debug)]
pub struct AuthError {
    flag: &'static str,
    place: Option<String>,
    why: String,
}

impl AuthError {
    fn new(flag: &'static str, place: Option<String>, why: impl Into<String>) -> Self {
        Self {
            flag,
            place,
            why: why.into(),
        }
    }
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.flag)?;
        if let Some(place) = &self.place {
            write!(f, " {place}")?;
        }
        write!(f, ": {}", self.why)
    }
}

impl std::error::Error for AuthError {}

/// Why it is not known who sends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unauthenticated {
    /// It does not say.
    NoToken,
    /// What it says is no token, or too long, or said twice.
    Malformed,
    /// Its token does not count.
    Invalid,
    /// Its token does not count yet.
    NotYetValid,
    /// Its token counts no more.
    Expired,
    /// The keys of the issuer have not come yet.
    KeysUnavailable,
}

/// Tells who sends a request.
#[derive(Debug)]
pub(crate) struct Auth {
    settings: AuthSettings,
    /// Locked for moments only. The verifier changes along with it.
    sources: Mutex<Arc<Vec<Source>>>,
    /// Whether each of them has been good once.
    has_come: AtomicBool,
    remote: Option<Remote>,
    verifier: ArcSwap<Verifier>,
}

impl Auth {
    /// Reads all files. What is at an address comes later. Blocks on the file system.
    ///
    /// # Errors
    /// [`AuthError`] when a file cannot be read or used, or the settings do not go together.
    pub(crate) fn load(settings: AuthSettings) -> Result<Self, AuthError> {
        // Without it, a build in which somebody else has switched on jsonwebtoken's other provider would panic at the first token. If
        // the program has chosen one already, that stays.
        crypto::aws_lc::DEFAULT_PROVIDER.install_default().ok();
        check(&settings)?;
        let mut sources = sources(&settings);
        for source in &mut sources {
            if let Place::File(path) = &source.place {
                let bytes = small_file::read(path).map_err(|error| {
                    AuthError::new(
                        source.purpose.flag(),
                        Some(source.name()),
                        error.to_string(),
                    )
                })?;
                source.take(bytes);
            }
        }
        let remote = match &settings.jwks {
            Some(JwksSource::Url(url)) => Some(Remote::new(
                url.clone(),
                authorities(&settings)?.as_deref(),
                settings.jwks_token_file.clone(),
            )?),
            Some(JwksSource::File(_)) | None => None,
        };
        let verifier = verifier(&settings, &sources)?;
        Ok(Self {
            settings,
            // What is in files has come by now.
            has_come: AtomicBool::new(remote.is_none()),
            sources: Mutex::new(Arc::new(sources)),
            remote,
            verifier: ArcSwap::from_pointee(verifier),
        })
    }

    /// Sends these headers along with each request for the issuer's keys.
    #[must_use]
    pub(crate) fn with_outgoing_headers(mut self, headers: fn() -> HeaderMap) -> Self {
        if let Some(remote) = &mut self.remote {
            remote.outgoing_headers = headers;
        }
        self
    }

    /// What is known, without any work to speak of, of who sends a request with these headers.
    pub(crate) fn token_status(&self, headers: &HeaderMap, now: Moment) -> TokenStatus {
        match bearer::token(headers) {
            Ok(token) => self.verifier.load().token_status(token, now),
            Err(NoToken::Absent | NoToken::Malformed) => TokenStatus::Absent,
        }
    }

    /// Who sends a request with these headers. A token by a key that is not known may wait until the issuer has been asked for it.
    pub(crate) async fn authenticate(
        &self,
        headers: &HeaderMap,
    ) -> Result<Caller, Unauthenticated> {
        let token = bearer::token(headers).map_err(|why| match why {
            NoToken::Absent => Unauthenticated::NoToken,
            NoToken::Malformed => Unauthenticated::Malformed,
        })?;
        // Asked before each verifying: were it asked afterwards, keys that come in between would be taken for keys that were tried.
        let has_come = self.has_come();
        let verified = self.verifier.load().verify(token, clock::now());
        let may_help = match verified {
            _ if self.remote.is_none() => false,
            Err(Invalid::UnknownKey) => true,
            Err(Invalid::Other) => !has_come,
            Ok(_) | Err(Invalid::Early | Invalid::Expired) => false,
        };
        if !may_help {
            return verified.map_err(Into::into);
        }
        self.learn_keys().await;
        let has_come = self.has_come();
        let verified = self.verifier.load().verify(token, clock::now());
        verified.map_err(|invalid| {
            if has_come {
                invalid.into()
            } else {
                Unauthenticated::KeysUnavailable
            }
        })
    }
}

impl From<Invalid> for Unauthenticated {
    fn from(invalid: Invalid) -> Self {
        match invalid {
            Invalid::Other | Invalid::UnknownKey => Self::Invalid,
            Invalid::Early => Self::NotYetValid,
            Invalid::Expired => Self::Expired,
        }
    }
}

/// What does not depend on any file.
fn check(settings: &AuthSettings) -> Result<(), AuthError> {
    let public = !settings.key_files.is_empty() || settings.jwks.is_some();
    let wrong = |flag, why: &str| Err(AuthError::new(flag, None, why));
    if settings.secret_files.is_empty() && !public {
        return wrong(
            "--auth-secret-file, --auth-key-file or --auth-jwks",
            "one of them must say whose tokens count",
        );
    }
    if settings.audience.is_empty() {
        return wrong("--auth-audience", "must not be empty");
    }
    if settings.leeway > Duration::from_secs(300) {
        return wrong("--auth-leeway", "must be 300 seconds at most");
    }
    // Said without the address, so that it does not end up in a log after all.
    if settings
        .jwks
        .as_ref()
        .is_some_and(JwksSource::holds_credentials)
    {
        return wrong(
            "--auth-jwks",
            "must not hold a user or a password: addresses are written to logs",
        );
    }
    if let (Some(JwksSource::File(_)), Some(_)) = (&settings.jwks, &settings.jwks_token_file) {
        return wrong(
            "--auth-jwks-token-file",
            "is of use only where --auth-jwks is an address",
        );
    }
    match &settings.issuer {
        Some(issuer) if issuer.is_empty() => wrong("--auth-issuer", "must not be empty"),
        None if public => wrong(
            "--auth-issuer",
            "is missing; must be what tokens that are signed with a key name as `iss`",
        ),
        Some(_) if !public => wrong(
            "--auth-issuer",
            "is of tokens that are signed with a key: give --auth-key-file or --auth-jwks, or --auth-secret-issuer instead",
        ),
        // A key of one issuer counts for no other, so they must be told apart.
        Some(issuer) if !settings.secret_files.is_empty() && *issuer == settings.secret_issuer => {
            wrong("--auth-issuer", "must not be that of --auth-secret-issuer")
        }
        Some(_) | None => Ok(()),
    }
}

fn sources(settings: &AuthSettings) -> Vec<Source> {
    let files = |purpose, paths: &[std::path::PathBuf]| -> Vec<Source> {
        let places = paths.iter().cloned().map(Place::File);
        places.map(|place| Source::new(purpose, place)).collect()
    };
    let mut sources = files(Purpose::Secret, &settings.secret_files);
    sources.extend(files(Purpose::Key, &settings.key_files));
    sources.extend(settings.jwks.iter().map(|it| {
        let place = match it {
            JwksSource::File(path) => Place::File(path.clone()),
            JwksSource::Url(url) => Place::Remote(url.clone()),
        };
        Source::new(Purpose::Jwks, place)
    }));
    sources.extend(files(Purpose::Grants, settings.grants.as_slice()));
    sources
}

fn authorities(settings: &AuthSettings) -> Result<Option<Vec<u8>>, AuthError> {
    let read = |path: &std::path::PathBuf| {
        small_file::read(path).map_err(|error| {
            let place = Some(path.display().to_string());
            AuthError::new("--auth-jwks-ca", place, error.to_string())
        })
    };
    settings.jwks_ca.as_ref().map(read).transpose()
}

/// What all sources come to.
fn verifier(settings: &AuthSettings, sources: &[Source]) -> Result<Verifier, AuthError> {
    let allowed: Vec<_> = settings
        .algorithms
        .iter()
        .map(|it| it.algorithm())
        .collect();
    let mut secrets = Vec::new();
    let mut keys = Vec::new();
    let mut grants = Grants::default();
    for source in sources {
        let Some(bytes) = &source.good else { continue };
        let wrong = |why: String| AuthError::new(source.purpose.flag(), Some(source.name()), why);
        match source.purpose {
            Purpose::Secret => {
                secrets.push(Key::of_secret(bytes).map_err(|it| wrong(it.to_string()))?);
            }
            Purpose::Key => {
                let key = Key::of_pem(bytes).map_err(|it| wrong(it.to_string()))?;
                if !allowed.contains(&key.algorithm) {
                    return Err(wrong(
                        "is for an algorithm that --auth-algorithms leaves out".to_owned(),
                    ));
                }
                keys.push(key);
            }
            Purpose::Jwks => match jwks::read(bytes, &allowed) {
                Ok(set) => keys.extend(set),
                // Were it refused, keys that the issuer has taken back would count on: those of before are not in it, whatever is.
                Err(it @ (InvalidSet::Empty | InvalidSet::NoKey)) if source.may_take_back() => {
                    tracing::error!("{}; nobody gets in by it", wrong(it.to_string()));
                }
                Err(it) => return Err(wrong(it.to_string())),
            },
            Purpose::Grants => {
                let text = str::from_utf8(bytes).map_err(|_| wrong("must be UTF-8".to_owned()))?;
                grants = Grants::parse(text).map_err(|faults| wrong(faults.to_string()))?;
            }
        }
    }
    let mut trusted = Vec::new();
    if !secrets.is_empty() {
        let issuer = settings.secret_issuer.clone();
        trusted.push(Trust {
            issuer,
            keys: secrets,
            // Who has the secret is the operator, and could as well write the grant.
            without_grant: WithoutGrant::Own,
        });
    }
    if let Some(issuer) = settings.issuer.clone() {
        let without_grant = match settings.grants {
            Some(_) => WithoutGrant::Nothing,
            None => WithoutGrant::Own,
        };
        trusted.push(Trust {
            issuer,
            keys,
            without_grant,
        });
    }
    Ok(Verifier {
        trusted,
        audience: settings.audience.clone(),
        leeway: settings.leeway,
        grants,
        known: Known::new(),
    })
}
