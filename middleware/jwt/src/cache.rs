//! Cache of verified tokens: a caller that sends one again and again costs one signature check.

use std::{fmt, hash::Hash};

use doorman_openapi::Moment;
use foldhash::fast::RandomState;
use quick_cache::{
    Equivalent, Weighter,
    sync::{Cache, DefaultLifecycle},
};

/// Size limit by the length of the tokens, in bytes. The entries take about as much, and 32 times
/// as much at worst.
const CAPACITY: u64 = 8 * 1024 * 1024;

/// The expected number of cached tokens, of half a kilobyte each.
const TOKENS: usize = 16 * 1024;

/// A bounded cache by the token or a hash of it. Only valid tokens enter it, so invalid ones evict
/// nothing. Keys have a generation: another number after every change, with which all tokens must
/// be verified again.
pub struct TokenCache<K, V>(Cache<K, Entry<V>, TokenLength, RandomState>);

#[derive(Clone)]
struct Entry<V> {
    value: V,
    until: Moment,
    /// Of the keys that verified it.
    generation: u64,
    length: u64,
}

impl<K: Eq + Hash, V: Clone> TokenCache<K, V> {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        let hasher = RandomState::default();
        let lifecycle = DefaultLifecycle::default();
        Self(Cache::with(
            TOKENS,
            CAPACITY,
            TokenLength,
            hasher,
            lifecycle,
        ))
    }

    /// The value of a token that these keys have verified, and that has not expired.
    pub fn get<Q>(&self, token: &Q, generation: u64, now: Moment) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let entry = self.0.get(token)?;
        (now < entry.until && entry.generation == generation).then_some(entry.value)
    }

    /// Whether the token was valid when it was last verified.
    pub fn contains<Q>(&self, token: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.0.peek(token).is_some()
    }

    /// Removes a token that is not valid any more.
    pub fn remove<Q>(&self, token: &Q)
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.0.remove(token);
    }

    /// Adds a token of this length that keys of the generation have verified.
    pub fn insert(&self, token: K, length: usize, value: V, generation: u64, until: Moment) {
        let entry = Entry {
            value,
            until,
            generation,
            length: u64::try_from(length).unwrap_or(u64::MAX),
        };
        self.0.insert(token, entry);
    }
}

impl<K: Eq + Hash, V: Clone> Default for TokenCache<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> fmt::Debug for TokenCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenCache").finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct TokenLength;

impl<K, V> Weighter<K, Entry<V>> for TokenLength {
    fn weight(&self, _: &K, entry: &Entry<V>) -> u64 {
        entry.length.max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn token_is_cached_until_it_expires() {
        let cache: TokenCache<Box<str>, _> = TokenCache::new();
        let now = Moment::ORIGIN.after(Duration::from_secs(1));
        let end = now.after(Duration::from_secs(10));
        cache.insert("token".into(), 5, "alice", 7, end);
        assert_eq!(cache.get("token", 7, now), Some("alice"));
        assert_eq!(cache.get("other", 7, now), None);
        assert_eq!(cache.get("token", 8, now), None, "other keys");
        assert_eq!(cache.get("token", 7, end), None);
        assert!(cache.contains("token") && !cache.contains("other"));
        cache.remove("token");
        assert!(!cache.contains("token"));
    }

    #[test]
    fn cache_size_is_bounded() {
        let cache: TokenCache<String, _> = TokenCache::new();
        let end = Moment::ORIGIN.after(Duration::from_secs(10));
        for number in 0..5_000 {
            cache.insert(number.to_string(), 4_000, "alice", 0, end);
        }
        assert!(cache.0.weight() <= CAPACITY);
        assert!(cache.0.len() > 1_000, "{}", cache.0.len());
    }
}
