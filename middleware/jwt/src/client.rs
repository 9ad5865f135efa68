//! HTTP client for the key set of an issuer.

use std::{error::Error, iter::successors, net::IpAddr, time::Duration};

use reqwest::{Certificate, Client, Proxy, Response, Url, header::HeaderMap, redirect};

use crate::MAX_SET;

/// The timeout of a whole response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Fetches the key set at a URL.
#[derive(Debug)]
pub struct JwksClient {
    url: Url,
    http: Client,
}

/// Why there can be no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidClient {
    /// The URL is invalid. The message omits it, because it may hold a password.
    #[error(
        "must be a URL like https://issuer.example/jwks.json, without user or password: URLs are \
         written to logs"
    )]
    Url,
    /// The URL of the proxy is invalid. The message omits it, because it may hold a password.
    #[error("must be the URL of a proxy, like http://proxy.example:3128")]
    Proxy,
    /// The certificate authority is invalid.
    #[error("certificate authority must have a certificate in PEM{0}")]
    Authority(String),
    /// TLS cannot be set up.
    #[error("{0}")]
    Http(String),
}

impl JwksClient {
    /// A client that trusts this certificate authority, in PEM, in addition to those of the system.
    /// Requests go through the `proxy`. Without one an https URL of another machine follows the
    /// variables `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, as most programs do.
    ///
    /// # Errors
    /// The URL, the authority or the proxy is invalid.
    pub fn new(
        url: &str,
        authority: Option<&[u8]>,
        user_agent: &str,
        proxy: Option<&str>,
    ) -> Result<Self, InvalidClient> {
        let is_http = |url: &Url| {
            let has_user = !url.username().is_empty() || url.password().is_some();
            matches!(url.scheme(), "http" | "https") && !has_user
        };
        let url = Url::parse(url).ok().filter(is_http);
        let url = url.ok_or(InvalidClient::Url)?;
        let mut builder = Client::builder()
            .timeout(TIMEOUT)
            // Only the program decides which host is asked.
            .redirect(redirect::Policy::none())
            .referer(false)
            .user_agent(user_agent);
        if let Some(proxy) = proxy {
            let is_proxy = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
            let proxy = Url::parse(proxy).ok().filter(is_proxy);
            let proxy = proxy.and_then(|proxy| Proxy::all(proxy).ok());
            builder = builder.proxy(proxy.ok_or(InvalidClient::Proxy)?);
        } else if url.scheme() == "http" || is_loopback(&url) {
            builder = builder.no_proxy();
        }
        if let Some(pem) = authority {
            let certificates = Certificate::from_pem_bundle(pem)
                .map_err(|it| InvalidClient::Authority(format!(": {}", with_causes(&it))))?;
            if certificates.is_empty() {
                return Err(InvalidClient::Authority(String::new()));
            }
            builder = builder.tls_certs_merge(certificates);
        } else if url.scheme() == "http" {
            // Plain HTTP works without installed certificate authorities.
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build();
        let http = http.map_err(|it| InvalidClient::Http(with_causes(&it)))?;
        Ok(Self { url, http })
    }

    /// Fetches the key set, with these headers in the request.
    ///
    /// # Errors
    /// The reason, without the URL: there is no response, or it has another status than 2xx or more
    /// than 1 MiB.
    pub async fn fetch(&self, headers: HeaderMap) -> Result<Vec<u8>, String> {
        let failed = |error: reqwest::Error| with_causes(&error.without_url());
        let request = self.http.get(self.url.clone()).headers(headers);
        let response = request.send().await;
        let mut response = response
            .and_then(Response::error_for_status)
            .map_err(failed)?;
        if !response.status().is_success() {
            return Err(format!("unexpected status {}", response.status()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len().saturating_add(chunk.len()) > MAX_SET {
                return Err("response is larger than 1 MiB".to_owned());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    address.map_or(host == "localhost", |it| it.is_loopback())
}

fn with_causes(error: &(dyn Error + 'static)) -> String {
    let errors = successors(Some(error), |&error| error.source());
    let texts: Vec<_> = errors.map(ToString::to_string).collect();
    texts.join(": ")
}
