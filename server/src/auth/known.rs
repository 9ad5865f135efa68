//! Tokens that were found good, so that a holder that renews every few seconds costs one signature check, and not one each time.

use doorman_openapi::Moment;
use foldhash::fast::RandomState;
use quick_cache::{
    Weighter,
    sync::{Cache, DefaultLifecycle},
};
use sha2::{Digest, Sha256};

use super::caller::Caller;

/// How many bytes of tokens are remembered, by their own length; what they come to takes about as much, and 32 times as much at worst. What
/// grants say is shared by all of them.
const ROOM: u64 = 8 * 1024 * 1024;
/// Tokens are about so long.
const USUAL_LENGTH: u64 = 512;

/// A bounded memory by the hash of each token, so that the memory of the process holds no tokens. When it is full, those go that are
/// asked for least; only good tokens come in, so that nobody without one can push others out.
pub(super) struct Known(Cache<[u8; 32], Entry, Bytes, RandomState>);

#[derive(Clone)]
struct Entry {
    /// Absent when it must be verified again, whatever the time.
    caller: Option<Caller>,
    until: Moment,
    length: u64,
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

    /// By what a token is known.
    pub(super) fn digest(token: &str) -> [u8; 32] {
        Sha256::digest(token).into()
    }

    /// The bearer of a token that is known and has not ended.
    pub(super) fn get(&self, digest: &[u8; 32], now: Moment) -> Option<Caller> {
        let entry = self.0.get(digest)?;
        entry.caller.filter(|_| now < entry.until)
    }

    /// The same tokens, of which no more is known than that they have counted.
    pub(super) fn to_verify_anew(&self) -> Self {
        let after = Self::new();
        for (digest, entry) in self.0.iter() {
            after.0.insert(
                digest,
                Entry {
                    caller: None,
                    ..entry
                },
            );
        }
        after
    }

    /// Whether a token is known, be it that it must be verified again.
    pub(super) fn remembers(&self, digest: &[u8; 32]) -> bool {
        self.0.peek(digest).is_some()
    }

    /// A token does not count any more.
    pub(super) fn forget(&self, digest: &[u8; 32]) {
        self.0.remove(digest);
    }

    pub(super) fn insert(&self, digest: [u8; 32], length: usize, caller: Caller, until: Moment) {
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        let entry = Entry {
            caller: Some(caller),
            until,
            length,
        };
        self.0.insert(digest, entry);
    }
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known")
            .field("tokens", &self.0.len())
            .finish_non_exhaustive()
    }
}

impl Weighter<[u8; 32], Entry> for Bytes {
    fn weight(&self, _: &[u8; 32], entry: &Entry) -> u64 {
        entry.length.max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_token_is_known_until_its_end() {
        let known = Known::new();
        let now = Moment::ORIGIN.after(Duration::from_secs(1));
        let end = now.after(Duration::from_secs(10));
        let digest = Known::digest("token");
        known.insert(digest, 5, Caller::ANONYMOUS, end);
        assert!(known.get(&digest, now).is_some());
        assert!(known.get(&Known::digest("other"), now).is_none());
        assert!(known.get(&digest, end).is_none());
        assert!(known.remembers(&digest));
        let anew = known.to_verify_anew();
        assert!(anew.get(&digest, now).is_none());
        assert!(anew.remembers(&digest));
        known.forget(&digest);
        assert!(!known.remembers(&digest));
    }

    #[test]
    fn there_is_room_for_so_much_and_no_more() {
        let known = Known::new();
        let end = Moment::ORIGIN.after(Duration::from_secs(10));
        for number in 0..5_000 {
            let digest = Known::digest(&number.to_string());
            known.insert(digest, 4_000, Caller::ANONYMOUS, end);
        }
        assert!(known.0.weight() <= ROOM);
        assert!(known.0.len() > 1_000, "{}", known.0.len());
    }
}
