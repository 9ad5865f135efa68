//! Sources of keys and grants, and the verifier that they make.
//!
//! A source is a file or the URL of a key set. Its last valid content stays active until it has
//! other valid content.

use std::{fmt, path::PathBuf};

use doorman_config::Grants;

use super::{
    AuthError, AuthSettings, JwksSource,
    claims::UngrantedTokens,
    keys::{self, InvalidSet, Key},
    token_cache::TokenCache,
    verify::{TrustedIssuer, Verifier},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceKind {
    Secret,
    Key,
    Jwks,
    Grants,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Location {
    File(PathBuf),
    Url(String),
}

/// A source and its content. Debug output omits the content, which may be secret.
#[derive(Clone)]
pub(super) struct Source {
    kind: SourceKind,
    pub(super) location: Location,
    /// The last valid content; `None` until the first fetch.
    valid: Option<Vec<u8>>,
    /// Whether there was other valid content before.
    has_changed: bool,
    /// The current content if it is invalid. It is logged once.
    invalid: Option<Vec<u8>>,
}

impl Source {
    fn new(kind: SourceKind, location: Location) -> Self {
        Self {
            kind,
            location,
            valid: None,
            has_changed: false,
            invalid: None,
        }
    }

    fn file(kind: SourceKind, path: &std::path::Path) -> Self {
        Self::new(kind, Location::File(path.to_owned()))
    }

    pub(super) fn set_valid(&mut self, content: Vec<u8>) {
        self.has_changed = self.valid.replace(content).is_some();
        self.invalid = None;
    }

    pub(super) fn set_invalid(&mut self, content: Vec<u8>) {
        self.invalid = Some(content);
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.valid.is_some()
    }

    /// Whether this is the last content, valid or not.
    pub(super) fn is_known(&self, content: &[u8]) -> bool {
        self.valid.as_deref() == Some(content) || self.invalid.as_deref() == Some(content)
    }

    /// Whether a set without usable keys revokes all former keys. At the start, and in a file, it
    /// is a mistake instead.
    fn may_revoke_all(&self) -> bool {
        self.has_changed && matches!(self.location, Location::Url(_))
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

    /// The path or URL.
    pub(super) fn name(&self) -> String {
        match &self.location {
            Location::File(path) => path.display().to_string(),
            Location::Url(url) => url.clone(),
        }
    }

    pub(super) fn error(&self, reason: &(impl ToString + ?Sized)) -> AuthError {
        AuthError::new(self.flag(), Some(self.name()), reason.to_string())
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
    let secrets = settings.secret_files.iter();
    let keys = settings.key_files.iter();
    let mut sources: Vec<_> = secrets
        .map(|path| Source::file(SourceKind::Secret, path))
        .chain(keys.map(|path| Source::file(SourceKind::Key, path)))
        .collect();
    sources.extend(settings.jwks.iter().map(|jwks| match jwks {
        JwksSource::File(path) => Source::file(SourceKind::Jwks, path),
        JwksSource::Url(url) => Source::new(SourceKind::Jwks, Location::Url(url.clone())),
    }));
    let grants = settings.grants.iter();
    sources.extend(grants.map(|path| Source::file(SourceKind::Grants, path)));
    sources
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
        let allowed: Vec<_> = settings
            .algorithms
            .iter()
            .map(|it| it.algorithm())
            .collect();
        let mut contents = Self::default();
        for source in sources {
            let Some(content) = &source.valid else {
                continue;
            };
            match source.kind {
                SourceKind::Secret => {
                    contents
                        .secrets
                        .push(Key::from_secret(content).map_err(|it| source.error(&it))?);
                }
                SourceKind::Key => {
                    let key = Key::from_pem(content).map_err(|it| source.error(&it))?;
                    if !allowed.contains(&key.algorithm) {
                        return Err(source.error("must be for an algorithm of --auth-algorithms"));
                    }
                    contents.keys.push(key);
                }
                SourceKind::Jwks => match keys::read_set(content, &allowed) {
                    Ok(set) => contents.keys.extend(set),
                    // Rejecting it would keep keys active that the issuer has revoked.
                    Err(it @ (InvalidSet::Empty | InvalidSet::NoKey))
                        if source.may_revoke_all() =>
                    {
                        tracing::error!(
                            "no usable keys; tokens from this issuer are rejected: {}",
                            source.error(&it)
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
    let Contents {
        secrets,
        keys,
        grants,
    } = Contents::read(settings, sources)?;
    let mut issuers = Vec::new();
    if !secrets.is_empty() {
        issuers.push(TrustedIssuer {
            name: settings.secret_issuer.clone(),
            keys: secrets,
            // The operator has the secret, and could as well write a grant.
            ungranted: UngrantedTokens::UseClaims,
        });
    }
    if let Some(name) = settings.issuer.clone() {
        issuers.push(TrustedIssuer {
            name,
            keys,
            ungranted: match settings.grants {
                Some(_) => UngrantedTokens::Deny,
                None => UngrantedTokens::UseClaims,
            },
        });
    }
    Ok(Verifier {
        issuers,
        audience: settings.audience.clone(),
        leeway: settings.leeway,
        grants,
        cache: TokenCache::new(),
    })
}
