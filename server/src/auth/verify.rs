//! Tokens to callers: `doorman-jwt` verifies them, and claims or a grant make the identity.

use std::{sync::Arc, time::Duration};

use doorman_config::Grants;
pub use doorman_jwt::FailedCheck;
use doorman_jwt::{Key, TokenCache, TokenChecks};
use doorman_openapi::Moment;
use jsonwebtoken::Algorithm;
use sha2::{Digest, Sha256};

use super::{
    caller::Caller,
    claims::{Claims, MalformedClaim, UngrantedTokens},
    inspect::DecodedToken,
};

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
    pub(super) checks: TokenChecks,
    pub(super) keys: Vec<Key>,
    pub(super) ungranted: UngrantedTokens,
}

/// Verifies tokens by fixed keys and grants. A change of either makes another verifier.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) issuers: Vec<TrustedIssuer>,
    pub(super) grants: Grants,
    /// Whether each source has had valid content.
    pub(super) is_complete: bool,
    /// Of the keys and grants.
    pub(super) generation: u64,
    /// By the hash of each token, so that process memory holds no tokens. Restrictions of a grant
    /// are shared.
    pub(super) cache: Arc<TokenCache<[u8; 32], Caller>>,
}

impl Verifier {
    /// The verifier that follows another one, whose cached tokens must all be verified again.
    pub(super) fn succeeding(self, former: &Self) -> Self {
        Self {
            generation: former.generation.wrapping_add(1),
            cache: Arc::clone(&former.cache),
            ..self
        }
    }

    pub(super) fn token_status(&self, token: &str, now: Moment) -> TokenStatus {
        let digest = digest(token);
        match self.cache.get(&digest, self.generation, now) {
            Some(caller) => TokenStatus::Verified(caller),
            None if self.cache.contains(&digest) => TokenStatus::Stale,
            None => TokenStatus::Unknown,
        }
    }

    /// The bearer of a valid token.
    pub(super) fn verify(&self, token: &str, now: Moment) -> Result<Caller, FailedCheck> {
        let digest = digest(token);
        if let Some(caller) = self.cache.get(&digest, self.generation, now) {
            return Ok(caller);
        }
        let verified = self.verify_uncached(token);
        let (caller, time) = verified.inspect_err(|_| self.cache.remove(&digest))?;
        let (length, until) = (token.len(), now.after(time));
        self.cache
            .insert(digest, length, caller.clone(), self.generation, until);
        Ok(caller)
    }

    /// Also returns how long the caller may be cached.
    fn verify_uncached(&self, token: &str) -> Result<(Caller, Duration), FailedCheck> {
        let mut failed = FailedCheck::Malformed;
        for issuer in &self.issuers {
            match issuer.checks.verify::<Claims>(token, &issuer.keys) {
                Ok(claims) => {
                    let time = issuer.checks.cache_time(claims.exp);
                    let identity = claims.into_identity(&self.grants, issuer.ungranted);
                    let identity = identity.map_err(|MalformedClaim| FailedCheck::Claims)?;
                    return Ok((Caller::new(identity), time));
                }
                Err(check) => failed = failed.max(check),
            }
        }
        if failed == FailedCheck::Malformed && has_unsupported_algorithm(token) {
            failed = FailedCheck::Algorithm;
        }
        Err(failed)
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// Tells an algorithm that nobody supports, such as `none`, from a header that is no header.
fn has_unsupported_algorithm(token: &str) -> bool {
    let decoded = DecodedToken::parse(token);
    let algorithm = decoded
        .as_ref()
        .and_then(|it| it.header.get("alg")?.as_str());
    algorithm.is_some_and(|name| name.parse::<Algorithm>().is_err())
}
