//! From files to what handshakes go by.

use std::{path::Path, sync::Arc};

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

use super::{
    TlsError, TlsSettings,
    files::{CERTIFICATE, CLIENT_AUTHORITY, Digest, Files, KEY},
    validity::Validity,
};

/// The protocols that are spoken, the one we would rather speak first (RFC 7301).
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// A certificate with all that a handshake by it needs.
#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) config: Arc<ServerConfig>,
    pub(super) validity: Validity,
    /// Of the files that it was made of.
    pub(super) digest: Digest,
}

impl Certificate {
    /// Makes one of files, if they can be used and go together. Nothing of a session with another one can be resumed with it.
    pub(super) fn new(files: &Files, settings: &TlsSettings) -> Result<Self, TlsError> {
        let wrong = |why: String| TlsError::new(CERTIFICATE, &settings.certificate, why);
        let chain = certificates(CERTIFICATE, &settings.certificate, &files.certificate)?;
        let validity = chain.first().map(|it| Validity::of(it));
        let validity = validity
            .and_then(Result::ok)
            .ok_or_else(|| wrong("its first certificate is damaged".to_owned()))?;
        let key = PrivateKeyDer::from_pem_slice(&files.key).map_err(|error| {
            let why = match error {
                pem::Error::NoItemsFound => {
                    "has no private key: must be PEM without a passphrase, in PKCS #8, SEC1 or PKCS #1".to_owned()
                }
                error => format!("is no PEM: {error}"),
            };
            TlsError::new(KEY, &settings.key, why)
        })?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let certified = CertifiedKey::from_der(chain, key, &provider).map_err(|error| {
            let why = match error {
                rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => format!(
                    "is not the key of the first certificate in {CERTIFICATE} {}",
                    settings.certificate.display()
                ),
                error => format!("cannot be used: {error}"),
            };
            TlsError::new(KEY, &settings.key, why)
        })?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| wrong(error.to_string()))?;
        let builder = match (&settings.client_authority, &files.client_authority) {
            (Some(path), Some(pem)) => {
                builder.with_client_cert_verifier(verifier(path, pem, provider)?)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = PROTOCOLS.map(Vec::from).into();
        if settings.client_authority.is_some() {
            // Who resumes a session shows no certificate again, and may have one that has ended since.
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

/// Who tells whether a client's certificate counts.
fn verifier(
    path: &Path,
    pem: &[u8],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let wrong = |why: String| TlsError::new(CLIENT_AUTHORITY, path, why);
    let mut roots = RootCertStore::empty();
    for certificate in certificates(CLIENT_AUTHORITY, path, pem)? {
        roots
            .add(certificate)
            .map_err(|error| wrong(format!("one of its certificates cannot be used: {error}")))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| wrong(error.to_string()))
}

/// All certificates in a text, of which there must be one at least.
fn certificates(
    flag: &'static str,
    path: &Path,
    text: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |why: String| TlsError::new(flag, path, why);
    let all: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(format!("is no PEM: {error}")))?;
    if all.is_empty() {
        return Err(wrong(
            "has no certificate: must be PEM, as from -----BEGIN CERTIFICATE----- on".to_owned(),
        ));
    }
    Ok(all)
}
