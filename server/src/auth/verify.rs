//! Which tokens count. Following the best practices of RFC 8725.

use std::time::Duration;

use doorman_config::Grants;
use doorman_openapi::Moment;
use jsonwebtoken::{
    Header, Validation, decode, decode_header, errors::ErrorKind, get_current_timestamp,
};

use super::{
    caller::Caller,
    claims::{Claims, Mistyped, WithoutGrant},
    key::Key,
    known::Known,
};

/// A token is verified again after so long, in case the wall clock was set meanwhile.
const VERIFIED_FOR: Duration = Duration::from_secs(300);

/// Types that a token for an API may have (RFC 7519 section 5.1, RFC 9068 section 2.1). Others are made for other purposes.
const TYPES: [&str; 4] = ["jwt", "application/jwt", "at+jwt", "application/at+jwt"];

/// Why a token does not count. What goes beyond [`Other`](Self::Other) is told only of tokens that one of our keys has signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Invalid {
    /// Nobody whom we trust has made it, or not in this form, or for us.
    Other,
    /// It names a key that we do not know.
    UnknownKey,
    /// It counts later.
    Early,
    /// It has ended.
    Expired,
}

/// What is known of a token before it is verified.
#[derive(Debug)]
pub(crate) enum TokenStatus {
    /// It counts, and who its bearer is.
    Verified(Caller),
    /// It has counted, maybe by other keys, and must be verified again.
    Stale,
    /// Nothing.
    Unknown,
    /// There is none.
    Absent,
}

/// An issuer that is trusted, with its keys. A key of one issuer counts for no other.
#[derive(Debug)]
pub(super) struct Trust {
    pub(super) issuer: String,
    pub(super) keys: Vec<Key>,
    pub(super) without_grant: WithoutGrant,
}

/// All that decides whether a token counts, and what for. When any of it changes there is another one, which knows
/// of no token whom it speaks of.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) trusted: Vec<Trust>,
    pub(super) audience: String,
    pub(super) leeway: Duration,
    pub(super) grants: Grants,
    pub(super) known: Known,
}

impl Verifier {
    /// What is known of a token without verifying it.
    pub(super) fn token_status(&self, token: &str, now: Moment) -> TokenStatus {
        let digest = Known::digest(token);
        match self.known.get(&digest, now) {
            Some(caller) => TokenStatus::Verified(caller),
            None if self.known.remembers(&digest) => TokenStatus::Stale,
            None => TokenStatus::Unknown,
        }
    }

    /// The bearer of a token that counts.
    pub(super) fn verify(&self, token: &str, now: Moment) -> Result<Caller, Invalid> {
        let digest = Known::digest(token);
        if let Some(caller) = self.known.get(&digest, now) {
            return Ok(caller);
        }
        self.verify_anew(digest, token, now)
            .inspect_err(|_| self.known.forget(&digest))
    }

    fn verify_anew(&self, digest: [u8; 32], token: &str, now: Moment) -> Result<Caller, Invalid> {
        let header = decode_header(token).map_err(|_| Invalid::Other)?;
        // Extensions that must be understood, RFC 7515 section 4.1.11: there is none that is.
        if header.crit.is_some() || !is_for_us(header.typ.as_deref()) {
            return Err(Invalid::Other);
        }
        let (claims, without_grant) = self.claims(token, &header)?;
        // The wall clock is asked once; from here on it is the clock that nobody sets.
        let end = claims.exp + self.leeway.as_secs_f64();
        let left = (end - get_current_timestamp() as f64).clamp(0.0, VERIFIED_FOR.as_secs_f64());
        let left = Duration::try_from_secs_f64(left).map_err(|_| Invalid::Other)?;
        let identity = claims
            .identity(&self.grants, without_grant)
            .map_err(|Mistyped| Invalid::Other)?;
        let caller = Caller::new(identity);
        let until = now.after(left);
        self.known
            .insert(digest, token.len(), caller.clone(), until);
        Ok(caller)
    }

    /// The claims of a token that one of our keys has signed, and what they come to without a grant. Its `kid` is a name to look up and nothing else; `jku`, `x5u` and `jwk`,
    /// by which a token would bring its key along, are not looked at.
    fn claims(&self, token: &str, header: &Header) -> Result<(Claims, WithoutGrant), Invalid> {
        let mut why = None;
        for trust in &self.trusted {
            let keys = trust.keys.iter().filter(|key| {
                let named = key.id.is_none() || header.kid.is_none() || key.id == header.kid;
                named && key.algorithm == header.alg
            });
            for key in keys {
                match self.check(token, key, &trust.issuer) {
                    Ok(claims) => return Ok((claims, trust.without_grant)),
                    Err(invalid) => why = why.max(Some(invalid)),
                }
            }
        }
        Err(why.unwrap_or(match header.kid {
            Some(_) => Invalid::UnknownKey,
            None => Invalid::Other,
        }))
    }

    fn check(&self, token: &str, key: &Key, issuer: &str) -> Result<Claims, Invalid> {
        let mut validation = Validation::new(key.algorithm);
        validation.set_issuer(&[issuer]);
        validation.set_audience(&[&self.audience]);
        // Claims that are absent would pass, and `nbf` is not looked at, unless it is said.
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.validate_nbf = true;
        validation.leeway = self.leeway.as_secs();
        match decode::<Claims>(token, &key.key, &validation) {
            Ok(data) => Ok(data.claims),
            Err(error) => Err(match error.kind() {
                ErrorKind::ExpiredSignature => Invalid::Expired,
                ErrorKind::ImmatureSignature => Invalid::Early,
                _ => Invalid::Other,
            }),
        }
    }
}

fn is_for_us(typ: Option<&str>) -> bool {
    typ.is_none_or(|typ| TYPES.iter().any(|it| it.eq_ignore_ascii_case(typ)))
}
