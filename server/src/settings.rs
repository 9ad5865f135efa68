//! What a server is started with.

use std::{fmt, net::SocketAddr, num::NonZeroUsize, path::PathBuf, str::FromStr, sync::Arc};

use axum::http::Uri;
use doorman_config::{Document, Source};
use doorman_openapi::{NodeId, ServerId};

use crate::{
    auth::AuthSettings, ledger::UnmatchedPolicy, net::tls::TlsSettings, quota::CallerLimit,
};

/// What a server is started with. The default is what `doorman` without arguments does, but that it keeps to the built-in document.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where to serve the metrics and the probes, and nothing else, to everybody who can reach the address; absent: nowhere but on `listen`.
    pub metrics_listen: Option<SocketAddr>,
    /// Where to keep what must outlive a start; made when it is absent.
    pub data_dir: PathBuf,
    /// How much there is of what; with a store, what a fresh one begins with.
    pub document: Arc<Document>,
    /// Why that is not what the file says now, but what it said when it was last good; absent when it is.
    pub document_fault: Option<String>,
    /// Where the document comes from, and is followed to as that changes; absent: it stays as it is.
    pub follows: Option<Source>,
    /// Where the document comes from, for people.
    pub config_source: String,
    /// The address at which others reach the server; absent: the one it listens on.
    pub advertise: Option<BaseUrl>,
    /// The server's name; absent: host name and port.
    pub server_id: Option<ServerId>,
    /// The name of the server's node; absent: the one in the data directory.
    pub node: Option<NodeId>,
    /// The most leases that the books hold, of all resources together.
    pub max_leases: usize,
    /// The most connections that are open at one time. When all are taken, those that have waited longest for their peers are closed.
    /// Fewer, where the process may not have so many open files.
    pub max_connections: NonZeroUsize,
    /// What a resource without a template gets.
    pub unmatched: UnmatchedPolicy,
    /// Whose tokens count; absent: nobody is asked who they are.
    pub auth: Option<AuthSettings>,
    /// By which certificate to speak TLS on `listen`, and nothing but TLS; absent: plain HTTP. On `metrics_listen` it is plain HTTP
    /// always.
    pub tls: Option<TlsSettings>,
    /// Who may reach a server that asks nobody.
    pub exposure: Exposure,
    /// What an empty data directory means.
    pub empty_directory: EmptyDirectory,
    /// How much one caller may ask for.
    pub callers: CallerLimit,
}

/// What it means when there is nothing in the data directory. On a loopback address it always means a first start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EmptyDirectory {
    /// Another one may be lost, and leases may be outstanding that nobody here knows of.
    #[default]
    MayBeLost,
    /// The operator says that no server of this node has ever run.
    FirstStart,
}

/// Who may reach a server that asks nobody who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exposure {
    /// Processes of this machine: the server listens on loopback only.
    #[default]
    Loopback,
    /// Everybody who can reach the address. Each of them may take leases, and give back those of others.
    Anybody,
}

impl Settings {
    /// The port that a server listens on when nothing is said.
    pub const PORT: u16 = 7300;

    /// The most connections when nothing is said. All of them idle take some 32 MiB: 1.4 KiB each, and those that asked within the last
    /// second, a thousand of them at most, 18 KiB each; by TLS 8 KiB more each, 110 MiB together (resident memory, measured on x86-64
    /// Linux).
    pub const MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(10_000).expect("it is not zero");
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], Self::PORT)),
            metrics_listen: None,
            data_dir: PathBuf::from("./doorman-data"),
            document: Arc::new(Document::built_in()),
            document_fault: None,
            follows: None,
            config_source: "built-in".to_owned(),
            advertise: None,
            server_id: None,
            node: None,
            max_leases: 1_000_000,
            max_connections: Self::MAX_CONNECTIONS,
            unmatched: UnmatchedPolicy::Grant,
            auth: None,
            tls: None,
            exposure: Exposure::Loopback,
            empty_directory: EmptyDirectory::MayBeLost,
            callers: CallerLimit::Usual,
        }
    }
}

/// The address of a server: `http://` or `https://`, a host, perhaps a port, and nothing after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl(String);

/// Why a text is not the address of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be http:// or https://, a host, perhaps a port, and nothing after it, such as http://10.0.0.5:7300"
)]
pub struct InvalidBaseUrl;

impl BaseUrl {
    /// Whether it begins with `https://`.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        // A scheme is the same in capitals (RFC 3986, 3.1).
        self.0
            .split_once(':')
            .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("https"))
    }
}

impl FromStr for BaseUrl {
    type Err = InvalidBaseUrl;

    fn from_str(text: &str) -> Result<Self, InvalidBaseUrl> {
        let uri: Uri = text.parse().map_err(|_| InvalidBaseUrl)?;
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        let bare = uri.path().trim_matches('/').is_empty() && uri.query().is_none();
        let host = uri.authority().is_some_and(|authority| {
            !authority.host().is_empty() && !authority.as_str().contains('@')
        });
        if known && bare && host && !text.contains('#') {
            Ok(Self(text.trim_end_matches('/').to_owned()))
        } else {
            Err(InvalidBaseUrl)
        }
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_address_of_a_server_and_nothing_else() {
        for (text, url) in [
            ("http://127.0.0.1:7300", "http://127.0.0.1:7300"),
            ("https://doorman.example/", "https://doorman.example"),
            ("http://[::1]:7300", "http://[::1]:7300"),
        ] {
            assert_eq!(text.parse::<BaseUrl>().unwrap().to_string(), url);
        }
        for text in [
            "",
            "127.0.0.1:7300",
            "doorman.example",
            "/v1",
            "ftp://a",
            "http://",
            "http://a/v1",
            "http://a?b",
            "http://a#b",
            "http://user:secret@a",
        ] {
            assert_eq!(text.parse::<BaseUrl>(), Err(InvalidBaseUrl), "{text}");
        }
    }
}
