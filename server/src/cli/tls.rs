//! The flags that say by which certificate the server speaks TLS.

use std::path::PathBuf;

use doorman_server::TlsSettings;

use super::failure::Failure;

/// By which certificate the server speaks TLS. Without one it speaks plain HTTP.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "TLS")]
pub(super) struct TlsArguments {
    /// Speak TLS (1.2 or newer) and nothing else, by the certificate in this file: PEM, the server's own first, then those that lead to
    /// its authority. Followed as it changes, as the other two. On --metrics-listen it is plain HTTP all the same
    #[arg(long, env = "DOORMAN_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate: PEM without a passphrase, in PKCS#8, SEC1 or PKCS#1
    #[arg(long, env = "DOORMAN_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Let in only clients that show a certificate of one of the authorities in this file (PEM), on every route, probes included. What
    /// they may do is said by tokens all the same
    #[arg(long, env = "DOORMAN_TLS_CLIENT_CA", value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
}

impl TlsArguments {
    pub(super) fn settings(self) -> Result<Option<TlsSettings>, Failure> {
        let Self {
            tls_cert,
            tls_key,
            tls_client_ca,
        } = self;
        let without = |given: &str, missing: &str, what: &str| {
            Err(Failure::wrong_usage(format!(
                "{given} is given without {missing}: pass {what}, or neither"
            )))
        };
        match (tls_cert, tls_key, tls_client_ca) {
            (Some(certificate), Some(key), client_authority) => Ok(Some(TlsSettings {
                certificate,
                key,
                client_authority,
            })),
            (Some(_), None, _) => without("--tls-cert", "--tls-key", "the key of the certificate"),
            (None, Some(_), _) => without("--tls-key", "--tls-cert", "the certificate of the key"),
            (None, None, Some(_)) => without(
                "--tls-client-ca",
                "--tls-cert and --tls-key",
                "the server's own certificate and its key",
            ),
            (None, None, None) => Ok(None),
        }
    }
}
