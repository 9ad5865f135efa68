//! Certificate files for connections to etcd, and the HTTP client that uses them.

use std::{fmt, time::Duration};

use doorman_openapi::ServerUrl;
use reqwest::{Certificate, Client, Identity, redirect};

use super::{
    EtcdSettings,
    error::{EtcdError, Kind, chain},
};
use crate::util::small_file;

/// How long an unused connection stays open.
const IDLE: Duration = Duration::from_secs(30);

/// Content of the files. The key is secret, so debug output shows nothing.
#[derive(Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    authorities: Option<Vec<u8>>,
    /// Certificate chain and private key.
    identity: Option<Vec<u8>>,
}

impl TlsFiles {
    /// Blocks on the file system.
    pub(super) fn read(settings: &EtcdSettings) -> Result<Self, EtcdError> {
        let read = |flag, path| {
            small_file::read(path).map_err(|error| EtcdError::in_file(flag, path, error))
        };
        let mut files = Self::default();
        if let Some(path) = &settings.ca_file {
            files.authorities = Some(read("--etcd-ca-file", path)?);
        }
        if let Some((certificate, key)) = &settings.certificate {
            let mut pem = read("--etcd-cert", certificate)?;
            pem.push(b'\n');
            pem.extend(read("--etcd-key", key)?);
            files.identity = Some(pem);
        }
        Ok(files)
    }

    pub(super) fn client(&self, settings: &EtcdSettings) -> Result<Client, EtcdError> {
        let mut builder = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            // A call that times out closes its connection, and so no later call waits for it.
            .http1_only()
            .pool_idle_timeout(IDLE)
            .user_agent(concat!("doorman/", env!("CARGO_PKG_VERSION")));
        if let Some((path, pem)) = settings.ca_file.as_ref().zip(self.authorities.as_ref()) {
            let invalid = |reason: &str| EtcdError::in_file("--etcd-ca-file", path, reason);
            let certificates =
                Certificate::from_pem_bundle(pem).map_err(|error| invalid(&chain(&error)))?;
            if certificates.is_empty() {
                return Err(invalid("must have a certificate in PEM"));
            }
            builder = builder.tls_certs_only(certificates);
        } else if !settings.endpoints.iter().any(ServerUrl::is_encrypted) {
            // Plain HTTP works without installed certificate authorities.
            builder = builder.tls_certs_only([]);
        }
        if let Some(((path, _), pem)) = settings.certificate.as_ref().zip(self.identity.as_ref()) {
            // The error must not quote the key.
            let identity = Identity::from_pem(pem).map_err(|_| {
                let reason = "must be a certificate chain in PEM, and --etcd-key its private key";
                EtcdError::in_file("--etcd-cert", path, reason)
            })?;
            builder = builder.identity(identity);
        }
        let client = builder.build();
        client.map_err(|error| EtcdError::new("etcd", chain(&error), Kind::Refused))
    }
}

impl fmt::Debug for TlsFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsFiles").finish_non_exhaustive()
    }
}
