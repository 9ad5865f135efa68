//! Token verification, following the best current practices of RFC 8725.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use doorman_config::Grants;
use doorman_openapi::Moment;
use jsonwebtoken::{
    Algorithm, Header, Validation, decode, decode_header, errors::ErrorKind, get_current_timestamp,
};
use serde_json::Value;

use super::{
    caller::Caller,
    claims::{Claims, MalformedClaim, UngrantedTokens},
    keys::Key,
    token_cache::{TokenCache, TokenDigest},
};

/// A cached token is verified again after this time, in case the wall clock was set meanwhile.
const MAX_CACHED: Duration = Duration::from_secs(300);

/// Accepted `typ` headers (RFC 7519, section 5.1; RFC 9068, section 2.1). Tokens of other types
/// have other purposes.
const TYPES: [&str; 4] = ["jwt", "application/jwt", "at+jwt", "application/at+jwt"];

/// The check that a token failed, for operators: the log and `doorman token inspect` name it.
///
/// In the order of the checks. The caller of a server learns only whether a token that a known key
/// signed has expired or is not yet valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FailedCheck {
    /// It is no signed JWT.
    Malformed,
    /// Its type is that of another kind of token, or it has critical extensions.
    Header,
    /// No key is for its algorithm.
    Algorithm,
    /// No known key has its `kid` and its algorithm.
    UnknownKey,
    /// No known key made its signature.
    Signature,
    /// A claim is missing or malformed.
    Claims,
    /// The key that signed it is not that of its `iss`.
    Issuer,
    /// Its `aud` does not name the server.
    Audience,
    /// Its `nbf` is in the future.
    NotYetValid,
    /// Its `exp` is in the past.
    Expired,
}

impl FailedCheck {
    /// The name of the check.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Header => "header",
            Self::Algorithm => "algorithm",
            Self::UnknownKey => "unknown key",
            Self::Signature => "signature",
            Self::Claims => "claims",
            Self::Issuer => "issuer",
            Self::Audience => "audience",
            Self::NotYetValid => "not yet valid",
            Self::Expired => "expired",
        }
    }

    /// The failed check, in a sentence.
    #[must_use]
    pub fn explanation(self) -> &'static str {
        match self {
            Self::Malformed => "it is no signed JWT of at most 8192 bytes",
            Self::Header => {
                "its `typ` is neither `JWT` nor `at+jwt`, or it has critical extensions (`crit`)"
            }
            Self::Algorithm => "the server has no key for its `alg`",
            Self::UnknownKey => "no key of the server has its `kid` and `alg`",
            Self::Signature => "no key of the server made its signature",
            Self::Claims => "one of `exp`, `iss`, `sub` and `scope` is missing or malformed",
            Self::Issuer => "its `iss` is not the issuer of the key that signed it",
            Self::Audience => "its `aud` does not name the server's audience",
            Self::NotYetValid => "its `nbf` is in the future",
            Self::Expired => "its `exp` is in the past",
        }
    }
}

/// The status of a token, without verifying it.
#[derive(Debug)]
pub(crate) enum TokenStatus {
    /// Verified, with its bearer.
    Verified(Caller),
    /// It was valid before, and must be verified again.
    Stale,
    Unknown,
    /// The request has no token.
    Absent,
}

/// An issuer and its keys. A key of one issuer is not valid for another.
#[derive(Debug)]
pub(super) struct TrustedIssuer {
    pub(super) name: String,
    pub(super) keys: Vec<Key>,
    pub(super) ungranted: UngrantedTokens,
}

/// Verifies tokens by fixed keys and grants. A change of either makes another verifier.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) issuers: Vec<TrustedIssuer>,
    pub(super) audience: String,
    pub(super) leeway: Duration,
    pub(super) grants: Grants,
    pub(super) cache: TokenCache,
}

impl Verifier {
    pub(super) fn token_status(&self, token: &str, now: Moment) -> TokenStatus {
        let digest = TokenCache::digest(token);
        match self.cache.get(&digest, now) {
            Some(caller) => TokenStatus::Verified(caller),
            None if self.cache.contains(&digest) => TokenStatus::Stale,
            None => TokenStatus::Unknown,
        }
    }

    /// The bearer of a valid token.
    pub(super) fn verify(&self, token: &str, now: Moment) -> Result<Caller, FailedCheck> {
        let digest = TokenCache::digest(token);
        if let Some(caller) = self.cache.get(&digest, now) {
            return Ok(caller);
        }
        self.verify_uncached(digest, token, now)
            .inspect_err(|_| self.cache.remove(&digest))
    }

    fn verify_uncached(
        &self,
        digest: TokenDigest,
        token: &str,
        now: Moment,
    ) -> Result<Caller, FailedCheck> {
        let header = decode_header(token).map_err(|_| header_error(token))?;
        // No critical extension (RFC 7515, section 4.1.11) is supported.
        if header.crit.is_some() || !is_accepted_type(header.typ.as_deref()) {
            return Err(FailedCheck::Header);
        }
        let (claims, ungranted) = self.verified_claims(token, &header)?;
        // The wall clock is read once. The cache uses a clock that nobody sets.
        let expiry = claims.exp + self.leeway.as_secs_f64();
        let left = (expiry - get_current_timestamp() as f64).clamp(0.0, MAX_CACHED.as_secs_f64());
        let left = Duration::try_from_secs_f64(left).map_err(|_| FailedCheck::Claims)?;
        let identity = claims
            .into_identity(&self.grants, ungranted)
            .map_err(|MalformedClaim| FailedCheck::Claims)?;
        let caller = Caller::new(identity);
        self.cache
            .insert(digest, token.len(), caller.clone(), now.after(left));
        Ok(caller)
    }

    /// The claims of a token that a key of a trusted issuer has signed. Its `kid` only selects
    /// keys; `jku`, `x5u` and `jwk`, which would bring a key along, are ignored.
    fn verified_claims(
        &self,
        token: &str,
        header: &Header,
    ) -> Result<(Claims, UngrantedTokens), FailedCheck> {
        let mut error = None;
        for issuer in &self.issuers {
            let keys = issuer.keys.iter().filter(|key| {
                let is_named = key.id.is_none() || header.kid.is_none() || key.id == header.kid;
                is_named && key.algorithm == header.alg
            });
            for key in keys {
                match self.verify_signature(token, key, &issuer.name) {
                    Ok(claims) => return Ok((claims, issuer.ungranted)),
                    Err(invalid) => error = error.max(Some(invalid)),
                }
            }
        }
        Err(error.unwrap_or(match header.kid {
            Some(_) if is_supported(header.alg) => FailedCheck::UnknownKey,
            _ => FailedCheck::Algorithm,
        }))
    }

    fn verify_signature(
        &self,
        token: &str,
        key: &Key,
        issuer: &str,
    ) -> Result<Claims, FailedCheck> {
        let mut validation = Validation::new(key.algorithm);
        validation.set_issuer(&[issuer]);
        validation.set_audience(&[&self.audience]);
        // By default absent claims are accepted and `nbf` is ignored.
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.validate_nbf = true;
        validation.leeway = self.leeway.as_secs();
        decode::<Claims>(token, &key.key, &validation)
            .map(|data| data.claims)
            .map_err(|error| match error.kind() {
                ErrorKind::ExpiredSignature => FailedCheck::Expired,
                ErrorKind::ImmatureSignature => FailedCheck::NotYetValid,
                ErrorKind::InvalidAudience => FailedCheck::Audience,
                ErrorKind::InvalidIssuer => FailedCheck::Issuer,
                ErrorKind::MissingRequiredClaim(claim) if claim == "aud" => FailedCheck::Audience,
                ErrorKind::MissingRequiredClaim(_)
                | ErrorKind::InvalidClaimFormat(_)
                | ErrorKind::Json(_)
                | ErrorKind::Utf8(_) => FailedCheck::Claims,
                ErrorKind::InvalidToken | ErrorKind::Base64(_) => FailedCheck::Malformed,
                _ => FailedCheck::Signature,
            })
    }
}

/// Whether any key can have the algorithm.
fn is_supported(algorithm: Algorithm) -> bool {
    matches!(
        algorithm,
        Algorithm::HS256 | Algorithm::RS256 | Algorithm::ES256 | Algorithm::EdDSA
    )
}

/// Tells an algorithm that nobody supports, such as `none`, from a header that is no header.
fn header_error(token: &str) -> FailedCheck {
    let header = token.split('.').next().unwrap_or_default();
    let header = URL_SAFE_NO_PAD.decode(header).unwrap_or_default();
    let header: Option<Value> = serde_json::from_slice(&header).ok();
    match header
        .as_ref()
        .and_then(|header| header.get("alg")?.as_str())
    {
        Some(name) if name.parse::<Algorithm>().is_err() => FailedCheck::Algorithm,
        _ => FailedCheck::Malformed,
    }
}

fn is_accepted_type(typ: Option<&str>) -> bool {
    typ.is_none_or(|typ| TYPES.iter().any(|it| it.eq_ignore_ascii_case(typ)))
}
