//! HTTP client of the other servers of the node.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use doorman_openapi::paths;
use futures_util::{Stream, stream};
use reqwest::{Certificate, Identity};

use crate::util::small_file::FileError;
use doorman_core::election::Handover;

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
    pub(crate) fn check(&self) -> Result<(), FileError> {
        self.client(self.identity.is_some()).map(drop)
    }

    /// `encrypted`: whether the server speaks TLS. Otherwise no authorities are needed.
    fn client(&self, encrypted: bool) -> Result<reqwest::Client, FileError> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy();
        let read = |flag, path: &Path| {
            std::fs::read(path).map_err(|error| FileError::new(flag, path, error.to_string()))
        };
        if let Some(path) = &self.authorities {
            let invalid = |reason: &str| FileError::new("--peer-ca-file", path, reason);
            let certificates = Certificate::from_pem_bundle(&read("--peer-ca-file", path)?)
                .map_err(|error| invalid(&error.to_string()))?;
            if certificates.is_empty() {
                return Err(invalid("contains no PEM certificate"));
            }
            builder = builder.tls_certs_only(certificates);
        } else if !encrypted {
            builder = builder.tls_certs_only([]);
        }
        let mut place = "cannot set up TLS for the other servers".to_owned();
        if let Some((certificate, key)) = &self.identity {
            let mut pem = read("--tls-cert", certificate)?;
            pem.push(b'\n');
            pem.append(&mut read("--tls-key", key)?);
            place = format!("--tls-cert {}", certificate.display());
            builder = builder.identity(Identity::from_pem(&pem).map_err(|error| FileError {
                place: place.clone(),
                problem: error.to_string(),
            })?);
        }
        builder.build().map_err(|error| FileError {
            place,
            problem: error.to_string(),
        })
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
