//! HTTP client for the key set of an issuer.

use std::{error::Error, time::Duration};

use reqwest::{Certificate, Client, Response, Url, redirect};

use super::MAX_BYTES;

/// The timeout of a whole response.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct JwksClient {
    url: Url,
    http: Client,
}

impl JwksClient {
    /// `authority` is added to the certificate authorities of the system.
    pub(super) fn new(url: &str, authority: Option<&[u8]>) -> Result<Self, String> {
        let is_http = |url: &Url| {
            let has_user = !url.username().is_empty() || url.password().is_some();
            matches!(url.scheme(), "http" | "https") && !has_user
        };
        let url = Url::parse(url)
            .ok()
            .filter(is_http)
            .ok_or("must be a URL like https://issuer.example/jwks.json, without user")?;
        let mut builder = Client::builder()
            .timeout(TIMEOUT)
            .no_proxy()
            // Only the program decides which host is asked.
            .redirect(redirect::Policy::none())
            .referer(false)
            .user_agent(concat!("tower-doorman/", env!("CARGO_PKG_VERSION")));
        if let Some(pem) = authority {
            let certificates = Certificate::from_pem_bundle(pem).map_err(|it| with_causes(&it))?;
            if certificates.is_empty() {
                return Err("no certificate in the certificate authority's PEM".to_owned());
            }
            builder = builder.tls_certs_merge(certificates);
        } else if url.scheme() == "http" {
            // Plain HTTP works without installed certificate authorities.
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(|it| with_causes(&it))?;
        Ok(Self { url, http })
    }

    pub(super) async fn fetch(&self) -> Result<Vec<u8>, String> {
        // The caller logs the URL itself.
        let failed = |error: reqwest::Error| with_causes(&error.without_url());
        let response = self.http.get(self.url.clone()).send().await;
        let mut response = response
            .and_then(Response::error_for_status)
            .map_err(failed)?;
        if !response.status().is_success() {
            return Err(format!("unexpected status {}", response.status()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len().saturating_add(chunk.len()) > MAX_BYTES {
                return Err("response is larger than 1 MiB".to_owned());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
