//! Hand-over of the ledger to the next master, by a secret that is valid once.

use std::{
    error::Error,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::{Bytes, BytesMut};
use doorman_openapi::{Epoch, paths};
use tokio::sync::watch;

use crate::{durability, election::Handover, ledger::Ledger, reign::Reign, util::clock};

/// The longest wait for a ledger.
const FETCH_TIME: Duration = Duration::from_secs(2);
/// The largest ledger that is fetched, in bytes.
const MAX_BYTES: usize = 1 << 28;
const SECRET_BYTES: usize = 32;

/// The ledger that a server offers after its resignation.
#[derive(Debug)]
pub(crate) struct HandoverOffer {
    secret: String,
    /// `None`: the server has not resigned, or the ledger was taken.
    offered: Mutex<Option<Box<Reign>>>,
    taken: watch::Sender<bool>,
}

impl Default for HandoverOffer {
    fn default() -> Self {
        let mut secret = [0; SECRET_BYTES];
        // Without randomness there is no secret, and no hand-over.
        let is_random = aws_lc_rs::rand::fill(&mut secret).is_ok();
        Self {
            secret: if is_random {
                BASE64_URL_SAFE_NO_PAD.encode(secret)
            } else {
                String::new()
            },
            offered: Mutex::default(),
            taken: watch::Sender::new(false),
        }
    }
}

impl HandoverOffer {
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    pub(crate) fn set(&self, reign: Reign) {
        *self.offered() = Some(Box::new(reign));
    }

    /// The ledger that nobody has taken, with its epoch.
    pub(crate) fn take_rest(&self) -> Option<(Ledger, Epoch)> {
        let reign = self.offered().take()?;
        let epoch = reign.epoch();
        Some((reign.into_ledger(), epoch))
    }

    /// The text of the ledger of this epoch, to the bearer of the secret, once. Blocks for as long
    /// as it takes to write it.
    pub(crate) fn take(&self, asked: Epoch, secret: &[u8]) -> Option<Vec<u8>> {
        let is_valid = !self.secret.is_empty()
            && verify_slices_are_equal(self.secret.as_bytes(), secret).is_ok();
        let is_this = |reign: &mut Box<Reign>| is_valid && reign.epoch() == asked;
        let reign = self.offered().take_if(is_this)?;
        let (epoch, ledger) = (reign.epoch(), reign.into_ledger());
        let mut text = Vec::new();
        let written = durability::write_text(&ledger, epoch, clock::now(), &mut text);
        self.taken.send_replace(true);
        written.is_ok().then_some(text)
    }

    /// Waits until the ledger was taken.
    pub(crate) async fn taken(&self) {
        // The sender is this value.
        drop(self.taken.subscribe().wait_for(|taken| *taken).await);
    }

    fn offered(&self) -> MutexGuard<'_, Option<Box<Reign>>> {
        // Every statement leaves it consistent.
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The TLS files for the other servers of the node cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{flag}{}: {reason}", path.display())]
pub struct PeersError {
    flag: &'static str,
    path: PathBuf,
    reason: String,
}

impl PeersError {
    fn new(flag: &'static str, path: &Path, reason: String) -> Self {
        Self {
            flag,
            path: path.to_owned(),
            reason,
        }
    }
}

fn read(path: &Path, invalid: impl FnOnce(String) -> PeersError) -> Result<Vec<u8>, PeersError> {
    std::fs::read(path).map_err(|error| invalid(error.to_string()))
}

/// Client of the other servers of the node. It reads its files for each call: they may be renewed.
#[derive(Debug, Clone)]
pub(crate) struct Peers {
    /// Authorities that issue the certificates of the servers; those of the system if absent.
    authorities: Option<PathBuf>,
    /// Certificate and key of this server, for servers that ask for one.
    identity: Option<(PathBuf, PathBuf)>,
}

impl Peers {
    pub(crate) fn new(authorities: Option<PathBuf>, identity: Option<(PathBuf, PathBuf)>) -> Self {
        Self {
            authorities,
            identity,
        }
    }

    /// # Errors
    /// A file cannot be read, or is invalid.
    pub(crate) fn check(&self) -> Result<(), PeersError> {
        self.client(self.identity.is_some()).map(drop)
    }

    /// `encrypted`: whether the server speaks TLS. Otherwise no authorities are needed.
    fn client(&self, encrypted: bool) -> Result<reqwest::Client, PeersError> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(FETCH_TIME);
        if let Some(path) = &self.authorities {
            let invalid = |reason| PeersError::new("--peer-ca-file ", path, reason);
            let certificates = reqwest::Certificate::from_pem_bundle(&read(path, invalid)?)
                .map_err(|error| invalid(error.to_string()))?;
            if certificates.is_empty() {
                return Err(invalid("contains no PEM certificate".to_owned()));
            }
            builder = builder.tls_certs_only(certificates);
        } else if !encrypted {
            builder = builder.tls_certs_only([]);
        }
        let mut flag_and_path = ("cannot set up TLS for the other servers", Path::new(""));
        if let Some((certificate, key)) = &self.identity {
            flag_and_path = ("--tls-cert ", certificate);
            let invalid = |reason| PeersError::new("--tls-cert ", certificate, reason);
            let mut pem = read(certificate, invalid)?;
            pem.push(b'\n');
            pem.append(&mut read(key, |it| PeersError::new("--tls-key ", key, it))?);
            let identity = reqwest::Identity::from_pem(&pem);
            builder = builder.identity(identity.map_err(|error| invalid(error.to_string()))?);
        }
        let (flag, path) = flag_and_path;
        let invalid = |error: reqwest::Error| PeersError::new(flag, path, error.to_string());
        builder.build().map_err(invalid)
    }

    /// Fetches the ledger of the last master. Resolves within two seconds.
    pub(super) async fn fetch(
        &self,
        handover: &Handover,
    ) -> Result<Bytes, Box<dyn Error + Send + Sync>> {
        let (path, epoch) = (paths::HANDOVER, handover.epoch);
        let url = format!("{}{path}?epoch={epoch}", handover.address);
        let (peers, encrypted) = (self.clone(), url.starts_with("https:"));
        let client = tokio::task::spawn_blocking(move || peers.client(encrypted)).await??;
        let request = client.post(url).bearer_auth(&handover.secret);
        let sent = request.send().await;
        let mut response = sent.map_err(reqwest::Error::without_url)?;
        if !response.status().is_success() {
            return Err(format!("it responded {}", response.status()).into());
        }
        let mut text = BytesMut::new();
        while let Some(chunk) = response.chunk().await? {
            if text.len().saturating_add(chunk.len()) > MAX_BYTES {
                return Err(format!("the ledger exceeds {MAX_BYTES} bytes").into());
            }
            text.extend_from_slice(&chunk);
        }
        Ok(text.freeze())
    }
}
