//! Cache of verified tokens: a holder that renews every few seconds costs one signature check.

use doorman_openapi::Moment;
use foldhash::fast::RandomState;
use quick_cache::{
    Weighter,
    sync::{Cache, DefaultLifecycle},
};
use sha2::{Digest, Sha256};

use super::caller::Caller;

/// Size limit by the length of the tokens, in bytes. The entries take about as much, and 32 times
/// as much at worst. Restrictions of a grant are shared.
const CAPACITY: u64 = 8 * 1024 * 1024;

const ESTIMATED_TOKEN: u64 = 512;

pub(super) type TokenDigest = [u8; 32];

/// A bounded cache by the hash of each token, so that process memory holds no tokens. Only valid
/// tokens enter it, so invalid ones evict nothing.
pub(super) struct TokenCache(Cache<TokenDigest, Entry, TokenLength, RandomState>);

#[derive(Clone)]
struct Entry {
    /// `None`: the token must be verified again.
    caller: Option<Caller>,
    until: Moment,
    length: u64,
}

impl TokenCache {
    pub(super) fn new() -> Self {
        let tokens = usize::try_from(CAPACITY / ESTIMATED_TOKEN).unwrap_or(usize::MAX);
        let hasher = RandomState::default();
        let lifecycle = DefaultLifecycle::default();
        Self(Cache::with(
            tokens,
            CAPACITY,
            TokenLength,
            hasher,
            lifecycle,
        ))
    }

    pub(super) fn digest(token: &str) -> TokenDigest {
        Sha256::digest(token).into()
    }

    /// The bearer of a cached token that has not expired.
    pub(super) fn get(&self, digest: &TokenDigest, now: Moment) -> Option<Caller> {
        let entry = self.0.get(digest)?;
        entry.caller.filter(|_| now < entry.until)
    }

    /// A cache with the same tokens, which must all be verified again.
    pub(super) fn invalidated(&self) -> Self {
        let after = Self::new();
        for (digest, entry) in self.0.iter() {
            let entry = Entry {
                caller: None,
                ..entry
            };
            after.0.insert(digest, entry);
        }
        after
    }

    /// Whether the token was valid when it was last verified.
    pub(super) fn contains(&self, digest: &TokenDigest) -> bool {
        self.0.peek(digest).is_some()
    }

    pub(super) fn remove(&self, digest: &TokenDigest) {
        self.0.remove(digest);
    }

    pub(super) fn insert(&self, digest: TokenDigest, length: usize, caller: Caller, until: Moment) {
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        let entry = Entry {
            caller: Some(caller),
            until,
            length,
        };
        self.0.insert(digest, entry);
    }
}

impl std::fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenCache")
            .field("tokens", &self.0.len())
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct TokenLength;

impl Weighter<TokenDigest, Entry> for TokenLength {
    fn weight(&self, _: &TokenDigest, entry: &Entry) -> u64 {
        entry.length.max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn token_is_cached_until_it_expires() {
        let cache = TokenCache::new();
        let now = Moment::ORIGIN.after(Duration::from_secs(1));
        let end = now.after(Duration::from_secs(10));
        let digest = TokenCache::digest("token");
        cache.insert(digest, 5, Caller::ANONYMOUS, end);
        assert!(cache.get(&digest, now).is_some());
        assert!(cache.get(&TokenCache::digest("other"), now).is_none());
        assert!(cache.get(&digest, end).is_none());
        assert!(cache.contains(&digest));
        let invalidated = cache.invalidated();
        assert!(invalidated.get(&digest, now).is_none());
        assert!(invalidated.contains(&digest));
        cache.remove(&digest);
        assert!(!cache.contains(&digest));
    }

    #[test]
    fn cache_size_is_bounded() {
        let cache = TokenCache::new();
        let end = Moment::ORIGIN.after(Duration::from_secs(10));
        for number in 0..5_000 {
            let digest = TokenCache::digest(&number.to_string());
            cache.insert(digest, 4_000, Caller::ANONYMOUS, end);
        }
        assert!(cache.0.weight() <= CAPACITY);
        assert!(cache.0.len() > 1_000, "{}", cache.0.len());
    }
}
