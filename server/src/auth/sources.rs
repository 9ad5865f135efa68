//! Sources of keys and grants, and the verifier that they make.
//!
//! A source is a file or the URL of a key set. Its last valid content stays active until it has
//! other valid content.

use std::{fmt, path::PathBuf, sync::Arc};

use doorman_config::Grants;
use doorman_jwt::{InvalidSet, Key, TokenChecks, read_set};

use super::{
    AuthError, AuthSettings, JwksSource,
    claims::UngrantedTokens,
    verify::{TrustedIssuer, Verifier},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceKind {
    Secret,
    Key,
    Jwks,
    Grants,
}

/// A source and its content. Debug output omits the content, which may be secret.
#[derive(Clone)]
pub(super) struct Source {
    kind: SourceKind,
    pub(super) location: JwksSource,
    /// The last valid content; `None` until the first fetch.
    valid: Option<Vec<u8>>,
    /// Whether there was other valid content before.
    has_changed: bool,
    /// The current content if it is invalid. It is logged once.
    pub(super) invalid: Option<Vec<u8>>,
}

impl Source {
    fn new(kind: SourceKind, location: JwksSource) -> Self {
        Self {
            kind,
            location,
            valid: None,
            has_changed: false,
            invalid: None,
        }
    }

    pub(super) fn set_valid(&mut self, content: Vec<u8>) {
        self.has_changed = self.valid.replace(content).is_some();
        self.invalid = None;
    }

    /// Whether this is the last content, valid or not.
    pub(super) fn is_known(&self, content: &[u8]) -> bool {
        self.valid.as_deref() == Some(content) || self.invalid.as_deref() == Some(content)
    }

    /// Whether a set without usable keys revokes all former keys. At the start, and in a file, it
    /// is a mistake instead.
    fn may_revoke_all(&self) -> bool {
        self.has_changed && matches!(self.location, JwksSource::Url(_))
    }

    /// The flag that names the source.
    pub(super) fn flag(&self) -> &'static str {
        match self.kind {
            SourceKind::Secret => "--auth-secret-file",
            SourceKind::Key => "--auth-key-file",
            SourceKind::Jwks => "--auth-jwks",
            SourceKind::Grants => "--auth-grants",
        }
    }

    pub(super) fn error(&self, reason: &(impl ToString + ?Sized)) -> AuthError {
        AuthError::new(
            self.flag(),
            Some(self.location.to_string()),
            reason.to_string(),
        )
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("kind", &self.kind)
            .field("location", &self.location)
            .finish_non_exhaustive()
    }
}

/// The sources that the settings name, without content.
pub(super) fn of_settings(settings: &AuthSettings) -> Vec<Source> {
    let of_file = |kind| move |path: &PathBuf| Source::new(kind, JwksSource::File(path.clone()));
    let of_jwks = |location: &JwksSource| Source::new(SourceKind::Jwks, location.clone());
    let secrets = settings.secret_files.iter();
    secrets
        .map(of_file(SourceKind::Secret))
        .chain(settings.key_files.iter().map(of_file(SourceKind::Key)))
        .chain(settings.jwks.iter().map(of_jwks))
        .chain(settings.grants.iter().map(of_file(SourceKind::Grants)))
        .collect()
}

/// The valid content of all sources.
#[derive(Default)]
struct Contents {
    secrets: Vec<Key>,
    keys: Vec<Key>,
    grants: Grants,
}

impl Contents {
    /// # Errors
    /// Content is invalid.
    fn read(settings: &AuthSettings, sources: &[Source]) -> Result<Self, AuthError> {
        let allowed: Vec<_> = settings.algorithms.iter().map(|it| it.0).collect();
        let mut contents = Self::default();
        for source in sources {
            let Some(content) = &source.valid else {
                continue;
            };
            match source.kind {
                SourceKind::Secret => {
                    let key = Key::from_secret(content.trim_ascii());
                    contents.secrets.push(key.map_err(|it| source.error(&it))?);
                }
                SourceKind::Key => {
                    let key = Key::from_pem(content).map_err(|it| source.error(&it))?;
                    if !allowed.contains(&key.algorithm) {
                        return Err(source.error("must be for an algorithm of --auth-algorithms"));
                    }
                    contents.keys.push(key);
                }
                SourceKind::Jwks => match read_set(content, &allowed) {
                    Ok(set) => contents.keys.extend(set),
                    Err(it @ InvalidSet::NoKey) => {
                        let error = source.error(&format!("{it} that --auth-algorithms allows"));
                        if !source.may_revoke_all() {
                            return Err(error);
                        }
                        // Rejecting it would keep keys active that the issuer has revoked.
                        tracing::error!(
                            "no usable keys; tokens from this issuer are rejected: {error}"
                        );
                    }
                    Err(it) => return Err(source.error(&it)),
                },
                SourceKind::Grants => {
                    let text =
                        str::from_utf8(content).map_err(|_| source.error("must be UTF-8"))?;
                    contents.grants =
                        Grants::parse(text).map_err(|errors| source.error(&errors))?;
                }
            }
        }
        Ok(contents)
    }
}

/// The verifier that the valid content of all sources makes.
///
/// # Errors
/// Content is invalid.
pub(super) fn verifier(settings: &AuthSettings, sources: &[Source]) -> Result<Verifier, AuthError> {
    let contents = Contents::read(settings, sources)?;
    let checks = |issuer| TokenChecks::new(issuer, &settings.audience, settings.leeway);
    let mut issuers = Vec::new();
    if !contents.secrets.is_empty() {
        issuers.push(TrustedIssuer {
            checks: checks(&settings.secret_issuer),
            keys: contents.secrets,
            // The operator has the secret, and could as well write a grant.
            ungranted: UngrantedTokens::UseClaims,
        });
    }
    if let Some(name) = &settings.issuer {
        issuers.push(TrustedIssuer {
            checks: checks(name),
            keys: contents.keys,
            ungranted: match settings.grants {
                Some(_) => UngrantedTokens::Deny,
                None => UngrantedTokens::UseClaims,
            },
        });
    }
    Ok(Verifier {
        issuers,
        grants: contents.grants,
        is_complete: sources.iter().all(|source| source.valid.is_some()),
        generation: 0,
        cache: Arc::default(),
    })
}
