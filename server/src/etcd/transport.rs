//! HTTP client for etcd, with the certificates in files.

use std::{fmt, time::Duration};

use arc_swap::ArcSwap;
use doorman_openapi::ServerUrl;
use reqwest::{Certificate, Client, Identity, redirect};

use super::{
    EtcdSettings,
    error::{EtcdError, Kind, chain},
};
use crate::util::{clock, log_throttle::LogThrottle, small_file};

/// How long an unused connection stays open.
const IDLE: Duration = Duration::from_secs(30);

/// An HTTP client that is replaced when its certificates have changed.
pub(super) struct Transport {
    settings: EtcdSettings,
    current: ArcSwap<(Client, Files)>,
    invalid: LogThrottle,
}

/// The content of the certificate files.
#[derive(Default, PartialEq, Eq)]
struct Files {
    authorities: Option<Vec<u8>>,
    /// Certificate chain and private key.
    identity: Option<Vec<u8>>,
}

impl Transport {
    /// Blocks on the file system.
    pub(super) fn new(settings: &EtcdSettings) -> Result<Self, EtcdError> {
        let files = Files::read(settings)?;
        let client = client(settings, &files)?;
        Ok(Self {
            settings: settings.clone(),
            current: ArcSwap::from_pointee((client, files)),
            invalid: LogThrottle::per_minute(),
        })
    }

    pub(super) fn client(&self) -> Client {
        self.current.load().0.clone()
    }

    pub(super) fn has_files(&self) -> bool {
        self.settings.ca_file.is_some() || self.settings.certificate.is_some()
    }

    /// Uses the certificates that the files have now. Invalid ones never replace valid ones. Blocks
    /// on the file system.
    pub(super) fn reload(&self) {
        let changed = || {
            let files = Files::read(&self.settings)?;
            if self.current.load().1 == files {
                return Ok(None);
            }
            Ok(Some((client(&self.settings, &files)?, files)))
        };
        match changed() {
            Ok(None) => {}
            Ok(Some(new)) => {
                self.current.store(new.into());
                tracing::info!("certificates for etcd reloaded");
            }
            Err::<_, EtcdError>(error) => {
                if self.invalid.admit(clock::now()).is_some() {
                    tracing::warn!(%error, "invalid certificates for etcd; the previous ones stay");
                }
            }
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Transport");
        shown
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Files {
    fn read(settings: &EtcdSettings) -> Result<Self, EtcdError> {
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
}

fn client(settings: &EtcdSettings, files: &Files) -> Result<Client, EtcdError> {
    let mut builder = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        // A call that times out closes its connection, and so no later call waits for it.
        .http1_only()
        .pool_idle_timeout(IDLE)
        .user_agent(concat!("doorman/", env!("CARGO_PKG_VERSION")));
    if let Some((path, pem)) = settings.ca_file.as_ref().zip(files.authorities.as_ref()) {
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
    if let Some(((path, _), pem)) = settings.certificate.as_ref().zip(files.identity.as_ref()) {
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
