//! Token verification, following the best current practices of RFC 8725.

use std::time::Duration;

use doorman_config::Grants;
use doorman_openapi::Moment;
use jsonwebtoken::{
    Header, Validation, decode, decode_header, errors::ErrorKind, get_current_timestamp,
};

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

/// A token is rejected. Only tokens signed by a known key get a more precise reason than
/// [`Invalid`](Self::Invalid).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum VerifyError {
    Invalid,
    /// No known key has the token's `kid`.
    UnknownKey,
    NotYetValid,
    Expired,
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
    pub(super) fn verify(&self, token: &str, now: Moment) -> Result<Caller, VerifyError> {
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
    ) -> Result<Caller, VerifyError> {
        let header = decode_header(token).map_err(|_| VerifyError::Invalid)?;
        // No critical extension (RFC 7515, section 4.1.11) is supported.
        if header.crit.is_some() || !is_accepted_type(header.typ.as_deref()) {
            return Err(VerifyError::Invalid);
        }
        let (claims, ungranted) = self.verified_claims(token, &header)?;
        // The wall clock is read once. The cache uses a clock that nobody sets.
        let expiry = claims.exp + self.leeway.as_secs_f64();
        let left = (expiry - get_current_timestamp() as f64).clamp(0.0, MAX_CACHED.as_secs_f64());
        let left = Duration::try_from_secs_f64(left).map_err(|_| VerifyError::Invalid)?;
        let identity = claims
            .into_identity(&self.grants, ungranted)
            .map_err(|MalformedClaim| VerifyError::Invalid)?;
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
    ) -> Result<(Claims, UngrantedTokens), VerifyError> {
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
            Some(_) => VerifyError::UnknownKey,
            None => VerifyError::Invalid,
        }))
    }

    fn verify_signature(
        &self,
        token: &str,
        key: &Key,
        issuer: &str,
    ) -> Result<Claims, VerifyError> {
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
                ErrorKind::ExpiredSignature => VerifyError::Expired,
                ErrorKind::ImmatureSignature => VerifyError::NotYetValid,
                _ => VerifyError::Invalid,
            })
    }
}

fn is_accepted_type(typ: Option<&str>) -> bool {
    typ.is_none_or(|typ| TYPES.iter().any(|it| it.eq_ignore_ascii_case(typ)))
}
