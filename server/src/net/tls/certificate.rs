//! Certificate files, and the rustls configuration that is made of them.

use std::{fmt, path::Path, sync::Arc};

use rustls::{
    InconsistentKeys, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    server::{NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
    version::{TLS12, TLS13},
};
use sha2::{Digest as _, Sha256};
use x509_cert::{
    certificate::{CertificateInner, Rfc5280},
    der::{self, Decode as _},
};

use super::TlsSettings;
use crate::util::small_file::{self, FileError};

pub(super) const CERTIFICATE: &str = "--tls-cert";
const KEY: &str = "--tls-key";
const CLIENT_AUTHORITY: &str = "--tls-client-ca";

/// The ALPN protocols, the preferred one first (RFC 7301).
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Content of the files. The key is secret, so debug output shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_authority: Option<Vec<u8>>,
}

/// SHA-256 of the files. It identifies them without keeping the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest([u8; 32]);

impl Files {
    /// Blocks on the file system.
    pub(super) fn read(settings: &TlsSettings) -> Result<Self, FileError> {
        let read = |flag, path: &Path| {
            small_file::read(path)
                .map_err(|error| FileError::new(flag, path, format!("cannot be read: {error}")))
        };
        let client_authority = settings.client_authority.as_deref();
        Ok(Self {
            certificate: read(CERTIFICATE, &settings.certificate)?,
            key: read(KEY, &settings.key)?,
            client_authority: client_authority
                .map(|path| read(CLIENT_AUTHORITY, path))
                .transpose()?,
        })
    }

    pub(super) fn digest(&self) -> Digest {
        let files = [&self.certificate, &self.key];
        let digest = files
            .into_iter()
            .chain(&self.client_authority)
            .fold(Sha256::new(), |digest, file| {
                digest.chain_update(Sha256::digest(file))
            });
        Digest(digest.finalize().into())
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) config: Arc<ServerConfig>,
    pub(super) validity: Validity,
    /// Of the files it was made of.
    pub(super) digest: Digest,
}

impl Certificate {
    /// Parses the files and checks that the key belongs to the certificate. Sessions of another
    /// certificate cannot be resumed with it.
    pub(super) fn new(files: &Files, settings: &TlsSettings) -> Result<Self, FileError> {
        let invalid = |problem: String| FileError::new(CERTIFICATE, &settings.certificate, problem);
        let chain = certificates(CERTIFICATE, &settings.certificate, &files.certificate)?;
        let validity = chain
            .first()
            .and_then(|certificate| Validity::of(certificate).ok())
            .ok_or_else(|| invalid("first certificate is malformed".to_owned()))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let certified = certified_key(chain, files, settings, &provider)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| invalid(error.to_string()))?;
        let builder = match (&settings.client_authority, &files.client_authority) {
            (Some(path), Some(pem)) => {
                builder.with_client_cert_verifier(client_verifier(path, pem, provider)?)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = PROTOCOLS.map(Vec::from).into();
        if settings.client_authority.is_some() {
            // A resumed session shows no certificate, and the first one may have expired since.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Self {
            config: Arc::new(config),
            validity,
            digest: files.digest(),
        })
    }
}

fn certified_key(
    chain: Vec<CertificateDer<'static>>,
    files: &Files,
    settings: &TlsSettings,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, FileError> {
    let invalid = |problem: String| FileError::new(KEY, &settings.key, problem);
    let key = PrivateKeyDer::from_pem_slice(&files.key).map_err(|error| {
        invalid(match error {
            pem::Error::NoItemsFound => "has no private key: must be PEM without a passphrase, in \
                                         PKCS #8, SEC1 or PKCS #1"
                .to_owned(),
            error => format!("invalid PEM: {error}"),
        })
    })?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| {
        invalid(match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => format!(
                "does not match the first certificate in {CERTIFICATE} {}",
                settings.certificate.display()
            ),
            error => format!("cannot be used: {error}"),
        })
    })
}

fn client_verifier(
    path: &Path,
    pem: &[u8],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, FileError> {
    let invalid = |problem: String| FileError::new(CLIENT_AUTHORITY, path, problem);
    let mut roots = RootCertStore::empty();
    for certificate in certificates(CLIENT_AUTHORITY, path, pem)? {
        roots
            .add(certificate)
            .map_err(|error| invalid(format!("has an unusable certificate: {error}")))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| invalid(error.to_string()))
}

fn certificates(
    flag: &'static str,
    path: &Path,
    text: &[u8],
) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let invalid = |problem: String| FileError::new(flag, path, problem);
    let all: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|error| invalid(format!("invalid PEM: {error}")))?;
    if all.is_empty() {
        return Err(invalid(
            "has no certificate: must be PEM that begins with -----BEGIN CERTIFICATE-----"
                .to_owned(),
        ));
    }
    Ok(all)
}

/// Validity period of a certificate, both ends included, in Unix seconds (RFC 5280, 4.1.2.5).
/// rustls does not expose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    not_before: u64,
    pub(super) not_after: u64,
}

impl Validity {
    fn of(der: &[u8]) -> der::Result<Self> {
        let certificate = CertificateInner::<Rfc5280>::from_der(der)?;
        let validity = certificate.tbs_certificate().validity();
        Ok(Self {
            not_before: validity.not_before.to_unix_duration().as_secs(),
            not_after: validity.not_after.to_unix_duration().as_secs(),
        })
    }

    /// Why the certificate is not valid at `now`, in Unix seconds.
    pub(super) fn problem(self, now: u64) -> Option<&'static str> {
        if now < self.not_before {
            Some("not valid yet")
        } else {
            (self.not_after < now).then_some("expired")
        }
    }
}
