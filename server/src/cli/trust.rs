//! Whom a command believes to be the server, what it shows of itself, and what to do where they do not come together.

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
};

use reqwest::{Certificate, ClientBuilder, Identity};
use rustls::{AlertDescription, CertificateError, InvalidMessage};

use super::failure::Failure;

/// By what a server with an address that begins with https:// is believed.
#[derive(Debug, clap::Args)]
pub(super) struct TrustArguments {
    /// Believe a server with https:// by the certificates in this file (PEM), instead of those of the system
    #[arg(long, env = "DOORMAN_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// A certificate to show (PEM), to a server that asks for one
    #[arg(
        long,
        env = "DOORMAN_CLIENT_CERT",
        value_name = "FILE",
        requires = "client_key"
    )]
    client_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(
        long,
        env = "DOORMAN_CLIENT_KEY",
        value_name = "FILE",
        requires = "client_cert"
    )]
    client_key: Option<PathBuf>,
}

impl TrustArguments {
    /// For a client that asks a server by TLS.
    pub(super) fn apply(&self, mut builder: ClientBuilder) -> Result<ClientBuilder, Failure> {
        if let Some(path) = &self.ca_file {
            let wrong = |why: &dyn Error| {
                Failure::new(format!("--ca-file {}", path.display())).because(why)
            };
            let pem = read("--ca-file", path)?;
            let certificates = Certificate::from_pem_bundle(&pem).map_err(|it| wrong(&it))?;
            if certificates.is_empty() {
                return Err(wrong(&io::Error::other("has no certificate in PEM")));
            }
            builder = builder.tls_certs_only(certificates);
        }
        if let (Some(certificate), Some(key)) = (&self.client_cert, &self.client_key) {
            let mut pem = read("--client-cert", certificate)?;
            pem.push(b'\n');
            pem.append(&mut read("--client-key", key)?);
            let identity = Identity::from_pem(&pem).map_err(|error| {
                Failure::new("--client-cert and --client-key cannot be used").because(&error)
            })?;
            builder = builder.identity(identity);
        }
        Ok(builder)
    }
}

fn read(flag: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| {
        Failure::new(format!("{flag} {} cannot be read", path.display())).because(&error)
    })
}

/// What to do about an error, if TLS is what it is about.
pub(super) fn hint(error: &(dyn Error + 'static)) -> Option<&'static str> {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage as Invalid};
    match of_tls(error)? {
        InvalidCertificate(CertificateError::UnknownIssuer) => {
            Some("--ca-file names the authority that has issued its certificate")
        }
        InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => Some("ask for an address that its certificate is for"),
        Invalid(InvalidMessage::InvalidContentType) => {
            Some("it does not speak TLS: ask for an address that begins with http://")
        }
        AlertReceived(AlertDescription::CertificateRequired) => {
            Some("--client-cert and --client-key show it the certificate that it asks for")
        }
        _ => None,
    }
}

fn of_tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        // The source of such an error is not what it holds, but the source of that.
        let held = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        let held = held.map(|it| it as &(dyn Error + 'static));
        if let Some(tls) = held.unwrap_or(error).downcast_ref() {
            return Some(tls);
        }
        next = held.or_else(|| error.source());
    }
    None
}
