//! Certificates for TLS tests.

use std::{fs, path::Path, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Authorities of one name would be confused.
        let name = format!("authority {}", fastrand::u64(..));
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A client that trusts only this authority and has no certificate.
    pub(crate) fn client(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("an authority");
        let provider = Arc::new(aws_lc_rs::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions are supported")
            .with_root_certificates(roots)
            .with_no_client_auth()
    }

    /// Writes a certificate for localhost to `NAME.crt` and its key to `NAME.key`, by renaming.
    pub(crate) fn issue(&self, directory: &Path, name: &str) {
        self.issue_for(directory, name, "127.0.0.1");
    }

    /// The same for an address besides localhost.
    pub(crate) fn issue_for(&self, directory: &Path, name: &str, address: &str) {
        self.issue_for_all(directory, name, vec!["localhost".into(), address.into()]);
    }

    /// The same for these names and addresses.
    pub(crate) fn issue_for_all(&self, directory: &Path, name: &str, names: Vec<String>) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(names).expect("names");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        for (extension, text) in [("crt", certificate.pem()), ("key", key.serialize_pem())] {
            let new = directory.join(format!("{name}.new"));
            fs::write(&new, text).expect("the directory exists");
            fs::rename(new, directory.join(format!("{name}.{extension}")))
                .expect("one file system");
        }
    }
}
