//! The checks of a token.

use std::time::Duration;

use jsonwebtoken::{
    Algorithm, Header, Validation, decode, decode_header,
    errors::{Error, ErrorKind},
    get_current_timestamp,
};
use serde::de::DeserializeOwned;

use crate::{Key, MAX_TOKEN};

/// A cached token is verified again after this time, in case the wall clock was set meanwhile.
const MAX_CACHED: Duration = Duration::from_secs(300);

/// Accepted `typ` headers (RFC 7519, section 5.1; RFC 9068, section 2.1). Tokens of other types
/// have other purposes.
const TYPES: [&str; 4] = ["jwt", "application/jwt", "at+jwt", "application/at+jwt"];

/// The check that a token failed, for operators: logs and `doorman token inspect` name it.
///
/// In the order of the checks. Callers learn only whether a token that a known key signed has
/// expired or is not yet valid.
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

impl From<Error> for FailedCheck {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::ExpiredSignature => Self::Expired,
            ErrorKind::ImmatureSignature => Self::NotYetValid,
            ErrorKind::InvalidAudience => Self::Audience,
            ErrorKind::InvalidIssuer => Self::Issuer,
            ErrorKind::MissingRequiredClaim(claim) if claim == "aud" => Self::Audience,
            ErrorKind::MissingRequiredClaim(claim) if claim == "iss" => Self::Issuer,
            ErrorKind::MissingRequiredClaim(_)
            | ErrorKind::InvalidClaimFormat(_)
            | ErrorKind::Json(_)
            | ErrorKind::Utf8(_) => Self::Claims,
            ErrorKind::InvalidToken | ErrorKind::Base64(_) => Self::Malformed,
            _ => Self::Signature,
        }
    }
}

/// The claims and header that tokens of one issuer must have.
#[derive(Debug, Clone)]
pub struct TokenChecks {
    /// For any algorithm.
    validation: Validation,
}

impl TokenChecks {
    /// Issuer and audience that tokens must name, and the accepted clock skew between issuer and
    /// server, in whole seconds.
    #[must_use]
    pub fn new(issuer: &str, audience: &str, leeway: Duration) -> Self {
        let mut validation = Validation::default();
        validation.set_issuer(&[issuer]);
        validation.set_audience(&[audience]);
        // By default absent claims are accepted and `nbf` is ignored.
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_nbf = true;
        Self { validation }.with_leeway(leeway)
    }

    /// Changes the accepted clock skew, at most a day.
    #[must_use]
    pub fn with_leeway(mut self, leeway: Duration) -> Self {
        const DAY: u64 = 86_400;
        self.validation.leeway = leeway.as_secs().min(DAY);
        self
    }

    /// The claims of a token that one of the issuer's keys has signed.
    ///
    /// Its `kid` only selects keys, and the key determines the algorithm; `jku`, `x5u` and `jwk`,
    /// which would bring a key along, are ignored.
    ///
    /// # Errors
    /// A check failed: the last one that any key reached.
    pub fn verify<C: DeserializeOwned>(&self, token: &str, keys: &[Key]) -> Result<C, FailedCheck> {
        if token.len() > MAX_TOKEN {
            return Err(FailedCheck::Malformed);
        }
        let header = decode_header(token).map_err(|_| FailedCheck::Malformed)?;
        // No critical extension (RFC 7515, section 4.1.11) is supported.
        if header.crit.is_some() || !is_accepted_type(header.typ.as_deref()) {
            return Err(FailedCheck::Header);
        }
        let mut failed = None;
        for key in keys.iter().filter(|key| is_selected(key, &header)) {
            let mut validation = self.validation.clone();
            validation.algorithms = vec![key.algorithm];
            match decode(token, &key.key, &validation) {
                Ok(data) => return Ok(data.claims),
                Err(error) => failed = failed.max(Some(error.into())),
            }
        }
        Err(failed.unwrap_or(match header.kid {
            Some(_) if is_supported(header.alg) => FailedCheck::UnknownKey,
            _ => FailedCheck::Algorithm,
        }))
    }

    /// How long a token with this `exp` may be cached. The wall clock is read once: caches use a
    /// clock that nobody sets.
    #[must_use]
    pub fn cache_time(&self, exp: f64) -> Duration {
        let end = exp + self.validation.leeway as f64;
        let left = end - get_current_timestamp() as f64;
        Duration::try_from_secs_f64(left.clamp(0.0, MAX_CACHED.as_secs_f64())).unwrap_or_default()
    }
}

fn is_selected(key: &Key, header: &Header) -> bool {
    let is_named = key.id.is_none() || header.kid.is_none() || key.id == header.kid;
    is_named && key.algorithm == header.alg
}

/// Whether any key can have the algorithm.
fn is_supported(algorithm: Algorithm) -> bool {
    algorithm == Algorithm::HS256 || Key::PUBLIC.contains(&algorithm)
}

fn is_accepted_type(typ: Option<&str>) -> bool {
    typ.is_none_or(|typ| TYPES.iter().any(|it| it.eq_ignore_ascii_case(typ)))
}
