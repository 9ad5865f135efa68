//! Certificates for tests.

use std::{fs, path::Path, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tempfile::TempDir;

use super::{Tls, TlsSettings};

/// The name in all certificates.
pub(crate) const NAME: &str = "doorman.test";

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The first and the last year of validity.
pub(crate) type Years = (i32, i32);

/// Valid in every test.
pub(crate) const NOW: Years = (2000, 4000);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        // Clients distinguish authorities by name.
        let name = format!("authority {}", fastrand::u64(..));
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for [`NAME`].
    pub(crate) fn issue(&self) -> Pair {
        self.issue_for(NOW)
    }

    pub(crate) fn issue_for(&self, (from, until): Years) -> Pair {
        let mut params =
            CertificateParams::new(vec![NAME.to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// A client that trusts only this authority and supports every TLS version.
    pub(crate) fn client(&self, protocols: &[&str]) -> ClientConfig {
        self.client_of(protocols, rustls::ALL_VERSIONS, None)
    }

    pub(crate) fn client_of(
        &self,
        protocols: &[&str],
        versions: &[&'static SupportedProtocolVersion],
        certificate: Option<&Pair>,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match certificate {
            Some(pair) => {
                let certificate =
                    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder
                    .with_client_auth_cert(vec![certificate], key)
                    .unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        config
    }
}

impl Pair {
    pub(crate) fn write(&self, home: &Path) {
        fs::write(home.join("tls.crt"), &self.certificate).unwrap();
        fs::write(home.join("tls.key"), &self.key).unwrap();
    }
}

pub(crate) fn settings(home: &Path) -> TlsSettings {
    TlsSettings {
        certificate: home.join("tls.crt"),
        key: home.join("tls.key"),
        client_authority: None,
    }
}

/// A server's TLS with a certificate of this authority, whose files are deleted.
pub(crate) fn tls(authority: &Authority) -> Arc<Tls> {
    let home = TempDir::new().unwrap();
    authority.issue().write(home.path());
    Arc::new(Tls::load(settings(home.path())).unwrap())
}
