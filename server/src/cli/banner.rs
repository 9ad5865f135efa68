//! What a server says when it starts: where it is, and what to do next.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path,
};

use doorman_config::Document;
use doorman_openapi::paths;
use doorman_server::{AuthSettings, Server};

/// `token`: what a shell shows where the server asks for a token.
pub(super) fn text(server: &Server, config_source: &str, token: Option<&str>) -> String {
    let document = if server.document_version() == Document::built_in().version() {
        format!(
            "The built-in document is in force, until another one comes to {config_source}:\n\n{}\n",
            Document::BUILT_IN.trim_end()
        )
    } else {
        let as_it = match server.document_error() {
            None => "",
            Some(_) => ", as it was last good",
        };
        format!("The document of {config_source} is in force{as_it}.\n")
    };
    let address = server.local_addr();
    let scheme = server.scheme();
    let (url, trust) = match scheme {
        // Certificates are for names, and seldom for addresses.
        "https" => (server.advertised().to_owned(), "--cacert CA_FILE "),
        _ => (format!("{scheme}://{}", reachable(address)), ""),
    };
    let token = token.map_or(String::new(), |token| {
        format!("-H \"authorization: Bearer {token}\" ")
    });
    let metrics = server.metrics_addr().map_or(String::new(), |address| {
        format!("Metrics alone on http://{address}{}\n", paths::METRICS)
    });
    format!(
        "Doorman {version}, node {node}, epoch {epoch}\n{document}\n\
         Listening on {scheme}://{address}\n\
         {metrics}Documentation: {url}{docs}\n\
         Try: curl -s {url}{capacity} {trust}{token}-H 'content-type: application/json' -d '{EXAMPLE}'\n",
        version = env!("CARGO_PKG_VERSION"),
        node = server.node(),
        epoch = server.epoch(),
        docs = paths::DOCS,
        capacity = paths::CAPACITY,
    )
}

/// What a shell shows a server that asks for tokens: one that it makes with the server's secret, or that of the variable which commands
/// take theirs from.
pub(super) fn token(auth: &AuthSettings) -> String {
    let Some(secret) = auth.secret_files.first() else {
        return "$DOORMAN_TOKEN".to_owned();
    };
    let secret = path::absolute(secret).unwrap_or_else(|_| secret.clone());
    let mut command = format!(
        "doorman token --secret-file {} --sub me --scope capacity",
        quoted(&secret.display().to_string())
    );
    for (flag, name) in [
        ("--issuer", &auth.secret_issuer),
        ("--audience", &auth.audience),
    ] {
        if name != AuthSettings::NAME {
            command = format!("{command} {flag} {}", quoted(name));
        }
    }
    format!("$({command})")
}

/// A word that a shell takes as it is.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:@%+=".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The same in short, as a line of the log.
pub(super) fn log(server: &Server, config_source: &str) {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        node = server.node().as_str(),
        epoch = server.epoch().get(),
        config_source,
        config_version = server.document_version(),
        address = format!("{}://{}", server.scheme(), server.local_addr()),
        metrics = server
            .metrics_addr()
            .map(|address| format!("http://{address}{}", paths::METRICS)),
        "serving"
    );
}

const EXAMPLE: &str = r#"{"client_id":"me","resources":[{"resource_id":"db","wants":50}]}"#;

/// An address at which this machine reaches a server that may listen on all of them.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_made_with_the_secret_of_the_server_or_taken_from_the_variable() {
        let mut auth = AuthSettings::default();
        assert_eq!(token(&auth), "$DOORMAN_TOKEN");
        auth.secret_files = vec!["/etc/doorman/secret".into(), "/old".into()];
        let made = "doorman token --secret-file /etc/doorman/secret --sub me --scope capacity";
        assert_eq!(token(&auth), format!("$({made})"));
        auth.audience = "it's us".to_owned();
        let for_us = r"--audience 'it'\''s us'";
        assert_eq!(token(&auth), format!("$({made} {for_us})"));
    }

    #[test]
    fn names_an_address_that_can_be_reached() {
        for (listens, reached) in [
            ("0.0.0.0:7300", "127.0.0.1:7300"),
            ("[::]:7300", "[::1]:7300"),
            ("10.0.0.5:80", "10.0.0.5:80"),
        ] {
            assert_eq!(
                reachable(listens.parse().unwrap()),
                reached.parse().unwrap()
            );
        }
    }
}
