//! Tokens that were found good.

use doorman_openapi::Moment;
use foldhash::fast::RandomState;
use quick_cache::{
    Weighter,
    sync::{Cache, DefaultLifecycle},
};

use super::super::VerifiedClaims;

/// How many bytes of tokens are remembered; their claims take a few times as much.
const ROOM: u64 = 8 * 1024 * 1024;
/// Tokens are about so long.
const USUAL_LENGTH: u64 = 512;

/// A bounded memory: when it is full, those go that are asked for least. Only good tokens come in, so that nobody without one can
/// push others out.
pub(super) struct Known(Cache<Box<str>, Entry, Bytes, RandomState>);

#[derive(Clone)]
struct Entry {
    claims: VerifiedClaims,
    until: Moment,
}

#[derive(Clone)]
struct Bytes;

impl Known {
    pub(super) fn new() -> Self {
        let tokens = usize::try_from(ROOM / USUAL_LENGTH).unwrap_or(usize::MAX);
        let hasher = RandomState::default();
        let lifecycle = DefaultLifecycle::default();
        Self(Cache::with(tokens, ROOM, Bytes, hasher, lifecycle))
    }

    /// The claims of a token that is known and has not ended. It is compared byte by byte, not by a hash.
    pub(super) fn get(&self, token: &str, now: Moment) -> Option<VerifiedClaims> {
        let entry = self.0.get(token)?;
        (now < entry.until).then_some(entry.claims)
    }

    pub(super) fn insert(&self, token: &str, claims: VerifiedClaims, until: Moment) {
        self.0.insert(token.into(), Entry { claims, until });
    }
}

impl Weighter<Box<str>, Entry> for Bytes {
    fn weight(&self, token: &Box<str>, _: &Entry) -> u64 {
        u64::try_from(token.len()).unwrap_or(u64::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn claims(name: &str) -> VerifiedClaims {
        VerifiedClaims::new(&json!({"sub": name})).unwrap()
    }

    #[test]
    fn a_token_is_known_until_its_end() {
        let known = Known::new();
        let now = Moment::ORIGIN.after(Duration::from_secs(1));
        let end = now.after(Duration::from_secs(10));
        known.insert("token", claims("alice"), end);
        assert_eq!(known.get("token", now), Some(claims("alice")));
        assert_eq!(known.get("other", now), None);
        assert_eq!(known.get("token", end), None);
    }

    #[test]
    fn there_is_room_for_so_much_and_no_more() {
        let known = Known::new();
        let end = Moment::ORIGIN.after(Duration::from_secs(10));
        for number in 0..5_000 {
            known.insert(&format!("{number:04000}"), claims("alice"), end);
        }
        assert!(known.0.weight() <= ROOM);
        assert!(known.0.len() > 1_000, "{}", known.0.len());
    }
}
