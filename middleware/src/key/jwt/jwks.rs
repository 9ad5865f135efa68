//! Key sets that an issuer rotates: read from a file or URL in the background.

use std::{
    fmt, io,
    path::PathBuf,
    sync::{Arc, Weak},
};

use arc_swap::{ArcSwap, Guard};
use doorman_holder::LogThrottle;
#[cfg(feature = "reqwest")]
use doorman_jwt::JwksClient;
use doorman_jwt::{InvalidSet, Key, MAX_AGE, MIN_INTERVAL, read_file, read_set};
#[cfg(feature = "reqwest")]
use http::HeaderMap;
use tokio::{
    runtime::Handle,
    sync::Notify,
    task::spawn_blocking,
    time::{sleep, timeout},
};

use crate::clock;

/// Where an issuer publishes its keys, as a JSON Web Key Set (RFC 7517): for
/// [`JwtVerifier::jwks`](super::JwtVerifier::jwks).
#[derive(Clone)]
pub struct Jwks(Location);

#[derive(Clone)]
enum Location {
    File(PathBuf),
    #[cfg(feature = "reqwest")]
    Url {
        url: String,
        /// Certificate authority in PEM.
        authority: Option<Vec<u8>>,
    },
}

/// Why a key set cannot be used.
#[derive(thiserror::Error)]
#[error("key set {location}: {reason}")]
pub struct InvalidJwks {
    location: String,
    reason: String,
}

crate::error::debug_as_text!(InvalidJwks);

impl Jwks {
    /// A file, which is read again every ten seconds.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Location::File(path.into()))
    }

    /// A URL, which is fetched again every ten minutes, and when a token is signed with an unknown
    /// key, but at most every ten seconds. Redirects are not followed, and no proxies of the
    /// environment used.
    #[cfg(feature = "reqwest")]
    pub fn url(url: impl Into<String>) -> Self {
        Self(Location::Url {
            url: url.into(),
            authority: None,
        })
    }

    /// The authority of the URL's certificate, in PEM, in addition to those of the system.
    #[cfg(feature = "reqwest")]
    #[must_use]
    pub fn certificate_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        if let Location::Url { authority, .. } = &mut self.0 {
            *authority = Some(pem.into());
        }
        self
    }

    fn name(&self) -> String {
        match &self.0 {
            Location::File(path) => path.display().to_string(),
            // Before an @ there may be a password.
            #[cfg(feature = "reqwest")]
            Location::Url { url, .. } if url.contains('@') => "***".to_owned(),
            #[cfg(feature = "reqwest")]
            Location::Url { url, .. } => url.clone(),
        }
    }

    /// Reads the keys for the first time and follows them until the result is dropped. A file must
    /// be valid. A URL is tried again.
    pub(super) async fn follow(self) -> Result<Arc<CurrentKeys>, InvalidJwks> {
        let name = self.name();
        let invalid = |reason: String| InvalidJwks {
            location: name.clone(),
            reason,
        };
        let runtime =
            Handle::try_current().map_err(|_| invalid("needs a tokio runtime".to_owned()))?;
        let mut follower = Follower {
            source: Source::new(self.0).map_err(invalid)?,
            name: name.clone(),
            last: None,
            log: LogThrottle::default(),
        };
        let keys = Arc::new(CurrentKeys::from(Vec::new()));
        let read = follower.read(&keys).await;
        if let (Err(reason), true) = (&read, follower.source.is_file()) {
            return Err(invalid(reason.clone()));
        }
        let loaded = follower.log_failure(read);
        let (weak, wake) = (Arc::downgrade(&keys), Arc::clone(&keys.wake));
        runtime.spawn(follower.run(weak, wake, loaded));
        Ok(keys)
    }
}

impl fmt::Debug for Jwks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Jwks").field(&self.name()).finish()
    }
}

/// The keys that are valid at one time.
pub(super) struct KeySet {
    pub(super) keys: Vec<Key>,
    /// Another number after every change. A cached token is valid with its own set only.
    pub(super) generation: u64,
}

/// Keys that stay, or that a task keeps current. Their readers never wait.
pub(super) struct CurrentKeys {
    set: ArcSwap<KeySet>,
    /// Wakes the task.
    wake: Arc<Notify>,
}

impl From<Vec<Key>> for CurrentKeys {
    fn from(keys: Vec<Key>) -> Self {
        let generation = 0;
        Self {
            set: ArcSwap::from_pointee(KeySet { keys, generation }),
            wake: Arc::default(),
        }
    }
}

impl CurrentKeys {
    pub(super) fn get(&self) -> Guard<Arc<KeySet>> {
        self.set.load()
    }

    /// Asks for the keys to be read again, because a token was signed with an unknown one.
    pub(super) fn request_refresh(&self) {
        self.wake.notify_one();
    }
}

impl Drop for CurrentKeys {
    /// Ends the task.
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

enum Source {
    File(PathBuf),
    #[cfg(feature = "reqwest")]
    Url(JwksClient),
}

impl Source {
    fn new(location: Location) -> Result<Self, String> {
        match location {
            Location::File(path) => Ok(Self::File(path)),
            #[cfg(feature = "reqwest")]
            Location::Url { url, authority } => {
                let agent = concat!("tower-doorman/", env!("CARGO_PKG_VERSION"));
                let client = JwksClient::new(&url, authority.as_deref(), agent, None);
                client.map(Self::Url).map_err(|invalid| invalid.to_string())
            }
        }
    }

    async fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::File(path) => {
                let path = path.clone();
                let read = spawn_blocking(move || read_file(&path)).await;
                let text = read.map_err(io::Error::other).and_then(|text| text);
                text.map_err(|error| error.to_string())
            }
            #[cfg(feature = "reqwest")]
            Self::Url(client) => client.fetch(HeaderMap::new()).await,
        }
    }

    fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }
}

/// Reads the keys again and again. The last valid ones stay in use when that fails.
struct Follower {
    source: Source,
    name: String,
    /// The last valid text.
    last: Option<Vec<u8>>,
    log: LogThrottle,
}

impl Follower {
    async fn run(mut self, keys: Weak<CurrentKeys>, wake: Arc<Notify>, mut loaded: bool) {
        loop {
            sleep(MIN_INTERVAL).await;
            if loaded && !self.source.is_file() {
                let rest = MAX_AGE.saturating_sub(MIN_INTERVAL);
                // Either way the keys are read.
                timeout(rest, wake.notified()).await.ok();
            }
            let Some(keys) = keys.upgrade() else {
                return;
            };
            let read = self.read(&keys).await;
            loaded = self.log_failure(read);
        }
    }

    /// Reads the keys, and replaces the current ones if they are valid and new.
    async fn read(&mut self, keys: &CurrentKeys) -> Result<(), String> {
        let text = self.source.read().await?;
        if self.last.as_ref() == Some(&text) {
            return Ok(());
        }
        let set = match read_set(&text, &Key::PUBLIC) {
            Ok(set) => set,
            // The issuer has revoked its former keys. In a file, or at first, it is a mistake.
            Err(error @ InvalidSet::NoKey) if self.last.is_some() && !self.source.is_file() => {
                tracing::error!(jwks = self.name, %error, "all keys revoked; tokens are rejected");
                Vec::new()
            }
            Err(error) => return Err(error.to_string()),
        };
        if self.last.replace(text).is_some() {
            tracing::info!(jwks = self.name, keys = set.len(), "keys of tokens changed");
        }
        keys.set.store(Arc::new(KeySet {
            generation: keys.get().generation.wrapping_add(1),
            keys: set,
        }));
        Ok(())
    }

    /// Whether the keys were read.
    fn log_failure(&mut self, read: Result<(), String>) -> bool {
        match read {
            Ok(()) => {
                if self.log.resolve() {
                    tracing::info!(jwks = self.name, "keys of tokens can be read again");
                }
                true
            }
            Err(reason) => {
                if self.log.try_log(clock::now()).is_some() {
                    let jwks = &self.name;
                    tracing::warn!(jwks, reason, "cannot read keys; previous keys stay in use");
                }
                false
            }
        }
    }
}
