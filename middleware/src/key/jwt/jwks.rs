//! Key sets that an issuer rotates: read from a file or URL in the background.

#[cfg(feature = "reqwest")]
mod client;

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, Guard};
use doorman_holder::LogThrottle;
use tokio::{
    runtime::Handle,
    sync::Notify,
    task::spawn_blocking,
    time::{sleep, timeout},
};

#[cfg(feature = "reqwest")]
use self::client::JwksClient;
use super::key_set::{self, InvalidSet, KeySet};
use crate::clock;

/// The largest key set, in bytes.
const MAX_BYTES: usize = 1024 * 1024;
/// The shortest time between two reads: tokens with invented key ids must not become load on the
/// issuer.
const MIN_INTERVAL: Duration = Duration::from_secs(10);
/// A URL is read again after this time even if no key is missing.
#[cfg(feature = "reqwest")]
const MAX_AGE: Duration = Duration::from_secs(600);

/// Where an issuer publishes its keys, as a JSON Web Key Set (RFC 7517): for
/// [`JwtVerifier::jwks`](super::JwtVerifier::jwks).
#[derive(Clone)]
pub struct Jwks {
    location: Location,
    /// Certificate authority in PEM.
    #[cfg(feature = "reqwest")]
    authority: Option<Vec<u8>>,
}

#[derive(Clone)]
enum Location {
    File(PathBuf),
    #[cfg(feature = "reqwest")]
    Url(String),
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
        Self {
            location: Location::File(path.into()),
            #[cfg(feature = "reqwest")]
            authority: None,
        }
    }

    /// A URL, which is fetched again every ten minutes, and when a token names an unknown key, but
    /// at most every ten seconds. Redirects are not followed, and no proxies of the environment
    /// used.
    #[cfg(feature = "reqwest")]
    pub fn url(url: impl Into<String>) -> Self {
        Self {
            location: Location::Url(url.into()),
            authority: None,
        }
    }

    /// The authority of the URL's certificate, in PEM, in addition to those of the system.
    #[cfg(feature = "reqwest")]
    #[must_use]
    pub fn certificate_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority = Some(pem.into());
        self
    }

    fn name(&self) -> String {
        match &self.location {
            Location::File(path) => path.display().to_string(),
            // Before an @ there may be a password.
            #[cfg(feature = "reqwest")]
            Location::Url(url) if url.contains('@') => "***".to_owned(),
            #[cfg(feature = "reqwest")]
            Location::Url(url) => url.clone(),
        }
    }

    fn source(self) -> Result<Source, String> {
        match self.location {
            Location::File(path) => Ok(Source::File(path)),
            #[cfg(feature = "reqwest")]
            Location::Url(url) => JwksClient::new(&url, self.authority.as_deref()).map(Source::Url),
        }
    }

    /// Reads the keys for the first time and follows them until the result is dropped. A file must
    /// be valid. A URL is tried again.
    pub(super) async fn follow(self) -> Result<Arc<RotatedKeys>, InvalidJwks> {
        let name = self.name();
        let invalid = |reason: String| InvalidJwks {
            location: name.clone(),
            reason,
        };
        let runtime =
            Handle::try_current().map_err(|_| invalid("needs a tokio runtime".to_owned()))?;
        let mut follower = Follower {
            source: self.source().map_err(invalid)?,
            name: name.clone(),
            last: None,
            generation: 0,
            log: LogThrottle::default(),
        };
        let keys = Arc::new(RotatedKeys {
            current: ArcSwap::default(),
            wanted: AtomicBool::new(false),
            wake: Arc::default(),
        });
        let read = follower.read(&keys).await;
        if let (Err(reason), Source::File(_)) = (&read, &follower.source) {
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

/// The keys that a task keeps current. Its readers never wait.
pub(super) struct RotatedKeys {
    current: ArcSwap<KeySet>,
    /// A token named an unknown key.
    wanted: AtomicBool,
    wake: Arc<Notify>,
}

impl RotatedKeys {
    pub(super) fn current(&self) -> Guard<Arc<KeySet>> {
        self.current.load()
    }

    /// Asks for the keys to be read again, because a token names an unknown one.
    pub(super) fn request_refresh(&self) {
        if !self.wanted.swap(true, Ordering::Relaxed) {
            self.wake.notify_one();
        }
    }
}

impl Drop for RotatedKeys {
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
    async fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::File(path) => {
                let path = path.clone();
                let read = spawn_blocking(move || read_file(&path)).await;
                let text = read.map_err(io::Error::other).and_then(|text| text);
                text.map_err(|error| error.to_string())
            }
            #[cfg(feature = "reqwest")]
            Self::Url(client) => client.fetch().await,
        }
    }

    /// How long valid keys are used without reading them again.
    fn max_age(&self) -> Duration {
        match self {
            Self::File(_) => MIN_INTERVAL,
            #[cfg(feature = "reqwest")]
            Self::Url(_) => MAX_AGE,
        }
    }

    /// Whether a set without usable keys revokes all former keys. In a file it is a mistake.
    fn may_revoke_all(&self) -> bool {
        match self {
            Self::File(_) => false,
            #[cfg(feature = "reqwest")]
            Self::Url(_) => true,
        }
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut file = File::open(path)?.take(MAX_BYTES as u64 + 1);
    file.read_to_end(&mut text)?;
    if text.len() > MAX_BYTES {
        return Err(io::Error::other("is larger than 1 MiB"));
    }
    Ok(text)
}

/// Reads the keys again and again. The last valid ones stay in use when that fails.
struct Follower {
    source: Source,
    name: String,
    /// The last valid text.
    last: Option<Vec<u8>>,
    generation: u64,
    log: LogThrottle,
}

impl Follower {
    async fn run(mut self, keys: Weak<RotatedKeys>, wake: Arc<Notify>, mut loaded: bool) {
        loop {
            sleep(MIN_INTERVAL).await;
            if loaded {
                let rest = self.source.max_age().saturating_sub(MIN_INTERVAL);
                // Either way the keys are read.
                timeout(rest, wake.notified()).await.ok();
            }
            let Some(keys) = keys.upgrade() else {
                return;
            };
            keys.wanted.store(false, Ordering::Relaxed);
            let read = self.read(&keys).await;
            loaded = self.log_failure(read);
        }
    }

    /// Reads the keys, and replaces the current ones if they are valid and new.
    async fn read(&mut self, keys: &RotatedKeys) -> Result<(), String> {
        let text = self.source.read().await?;
        if self.last.as_ref() == Some(&text) {
            return Ok(());
        }
        let set = match key_set::read(&text) {
            Ok(set) => set,
            // Rejecting it would keep keys in use that the issuer has revoked.
            Err(error @ InvalidSet::NoKey) if self.may_revoke_all() => {
                tracing::error!(jwks = self.name, %error, "all keys revoked; tokens are rejected");
                Vec::new()
            }
            Err(error) => return Err(error.to_string()),
        };
        self.generation = self.generation.wrapping_add(1);
        if self.last.replace(text).is_some() {
            tracing::info!(jwks = self.name, keys = set.len(), "keys of tokens changed");
        }
        keys.current.store(Arc::new(KeySet {
            keys: set,
            generation: self.generation,
        }));
        Ok(())
    }

    fn may_revoke_all(&self) -> bool {
        self.last.is_some() && self.source.may_revoke_all()
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
