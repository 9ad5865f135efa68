//! The certificate of a server that this machine does not trust, for the error message.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use doorman_openapi::{ServerUrl, escape_hidden};
use reqwest::Url;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;
use x509_cert::{
    certificate::{CertificateInner, Rfc5280},
    der::Decode as _,
    ext::pkix::BasicConstraints,
};

const TIMEOUT: Duration = Duration::from_secs(5);

/// The certificate that a server shows.
#[derive(Debug, Clone)]
pub(super) struct ShownCertificate {
    /// Its subject and issuer.
    pub(super) names: String,
    pub(super) is_self_signed: bool,
    /// Whether it may issue others (`CA:TRUE`). Clients do not accept it from a server.
    pub(super) is_authority: bool,
}

/// The certificate that a server shows; `None` if it shows none.
///
/// It takes a handshake of its own, which ends with the certificate: the client of the failed
/// request does not keep it.
pub(super) async fn of_server(server: &ServerUrl) -> Option<ShownCertificate> {
    timeout(TIMEOUT, read(server)).await.ok().flatten()
}

async fn read(server: &ServerUrl) -> Option<ShownCertificate> {
    let url = Url::parse(&server.to_string()).ok()?;
    let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let reader = Arc::new(CertificateReader {
        provider: Arc::clone(&provider),
        seen: Mutex::new(None),
    });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&reader) as _)
        .with_no_client_auth();
    let stream = TcpStream::connect((host.as_str(), url.port_or_known_default()?)).await;
    let name = ServerName::try_from(host).ok()?;
    // It always fails: the verifier accepts nothing.
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream.ok()?);
    drop(connected.await);
    let seen = reader.seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.clone()
}

/// Reads the certificate of a server, and accepts none.
#[derive(Debug)]
struct CertificateReader {
    provider: Arc<CryptoProvider>,
    seen: Mutex<Option<ShownCertificate>>,
}

impl ServerCertVerifier for CertificateReader {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = parse(end_entity);
        Err(not_verified())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(not_verified())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(not_verified())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

fn not_verified() -> Error {
    Error::General("the certificate is read, not verified".to_owned())
}

fn parse(certificate: &[u8]) -> Option<ShownCertificate> {
    let certificate = CertificateInner::<Rfc5280>::from_der(certificate).ok()?;
    let certificate = certificate.tbs_certificate();
    let (subject, issuer) = (certificate.subject(), certificate.issuer());
    let is_self_signed = subject == issuer;
    let constraints = certificate.get_extension::<BasicConstraints>();
    let text = if is_self_signed {
        format!("its certificate \"{subject}\" is self-signed")
    } else {
        format!("its certificate \"{subject}\" was issued by \"{issuer}\"")
    };
    Some(ShownCertificate {
        // The server chose the names, and they are shown on a terminal.
        names: escape_hidden(&text).into_owned(),
        is_self_signed,
        is_authority: matches!(
            constraints,
            Ok(Some((_, BasicConstraints { ca: true, .. })))
        ),
    })
}
