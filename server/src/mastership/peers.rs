//! HTTP client of the other servers of the node.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use doorman_openapi::paths;
use futures_util::{Stream, stream};

use doorman_core::election::Handover;

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
            .no_proxy();
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

    /// Asks the last master for its ledger. Returns the parts of the text as they arrive. It has no
    /// timeouts.
    pub(super) async fn ask_for_ledger(
        &self,
        handover: &Handover,
    ) -> Result<
        impl Stream<Item = Result<Bytes, reqwest::Error>> + use<>,
        Box<dyn Error + Send + Sync>,
    > {
        let (path, epoch) = (paths::HANDOVER, handover.epoch);
        let url = format!("{}{path}?epoch={epoch}", handover.address);
        let (peers, encrypted) = (self.clone(), url.starts_with("https:"));
        let client = tokio::task::spawn_blocking(move || peers.client(encrypted)).await??;
        let request = client.post(url).bearer_auth(&handover.secret);
        let response = request.send().await.map_err(reqwest::Error::without_url)?;
        if !response.status().is_success() {
            return Err(format!("it responded {}", response.status()).into());
        }
        Ok(stream::try_unfold(response, |mut response| async {
            let chunk = response.chunk().await?;
            Ok(chunk.map(|chunk| (chunk, response)))
        }))
    }
}
