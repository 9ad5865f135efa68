//! The report of a started server: addresses, document and a first command.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path,
    time::{Duration, UNIX_EPOCH},
};

use doorman_config::Document;
use doorman_openapi::paths;
use doorman_server::{AuthSettings, DocumentState, Server};

const EXAMPLE_BODY: &str = r#"{"client_id":"me","resources":[{"resource_id":"db","wants":50}]}"#;

/// The last second that has a four-digit year.
pub(super) const LAST_SECOND: u64 = 253_402_300_799;

/// The banner. `token` is the shell expression for a token, if the server requires one.
pub(super) fn text(server: &Server, config_source: &str, token: Option<&str>) -> String {
    let is_built_in = server.document_version() == Document::built_in().version();
    let document = if server.has_parent() {
        format!("Document: at the root of the tree; this node leases from {config_source}\n")
    } else {
        document(is_built_in, server.document_state(), config_source)
    };
    let address = server.local_addr();
    let scheme = server.scheme();
    let (url, trust) = match scheme {
        // Certificates are rarely valid for IP addresses.
        "https" => (server.advertised().to_owned(), "--cacert CA_FILE "),
        _ => (format!("{scheme}://{}", reachable(address)), ""),
    };
    let token = token.map_or(String::new(), |token| {
        format!("-H \"authorization: Bearer {token}\" ")
    });
    let metrics = server.metrics_addr().map_or(String::new(), |address| {
        format!("Metrics and probes on http://{address}{}\n", paths::METRICS)
    });
    let learning = server
        .first_start_learning()
        .map_or(String::new(), learning);
    format!(
        "Doorman {version}, node {node}{epoch}\n{document}\n{learning}\
         Listening on {scheme}://{address}\n\
         {metrics}Documentation: {url}{docs}\n\
         Try: curl -s {url}{capacity} {trust}{token}-H 'content-type: application/json' -d '{EXAMPLE_BODY}'\n",
        version = env!("CARGO_PKG_VERSION"),
        node = server.node(),
        epoch = server
            .epoch()
            .map_or(String::new(), |epoch| format!(", epoch {epoch}")),
        docs = paths::DOCS,
        capacity = paths::CAPACITY,
    )
}

/// The source of the document and its state, and the document if it is the built-in one.
fn document(is_built_in: bool, state: DocumentState, source: &str) -> String {
    let state = match state {
        DocumentState::ReadOnly => ", which cannot be written: changes will fail",
        DocumentState::Outdated if is_built_in => ", which has no valid document",
        DocumentState::Outdated => {
            ", the last valid version; the current one is invalid or out of reach"
        }
        _ => "",
    };
    if is_built_in {
        let text = Document::BUILT_IN.trim_end();
        format!("Document: built-in; replace it in {source}{state}\n\n{text}\n")
    } else {
        format!("Document: {source}{state}\n")
    }
}

/// The learning mode of a first start, as shown to operators.
fn learning(left: Duration) -> String {
    let seconds = left.as_secs().saturating_add(1);
    let now = jsonwebtoken::get_current_timestamp();
    let end = UNIX_EPOCH + Duration::from_secs(now.saturating_add(seconds).min(LAST_SECOND));
    let end = humantime::format_rfc3339_seconds(end);
    format!(
        "Learning mode for {seconds} s, until {end}: the data directory is empty, and leases of an \
         earlier server may exist.\n\
         Until then new clients get no capacity, and services use their fallback. Existing leases \
         are confirmed.\n\
         A new deployment needs no learning mode: pass --first-start once.\n\n"
    )
}

pub(super) fn log(server: &Server, config_source: &str) {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        node = server.node().as_str(),
        epoch = server.epoch().map(doorman_openapi::Epoch::get),
        config_source,
        config_version = server.document_version(),
        address = format!("{}://{}", server.scheme(), server.local_addr()),
        metrics = server
            .metrics_addr()
            .map(|address| format!("http://{address}{}", paths::METRICS)),
        "listening"
    );
}

/// A shell expression for a token: created with the server's secret, or read from a variable.
pub(super) fn token_expression(auth: &AuthSettings) -> String {
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

/// Quotes a word for a shell, if needed.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:@%+=".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The address at which this machine reaches a listener, which may listen on all addresses.
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
    fn state_of_the_source_is_shown_with_every_document() {
        for (is_built_in, state, line) in [
            (
                true,
                DocumentState::Current,
                "built-in; replace it in sqlite:a",
            ),
            (
                true,
                DocumentState::ReadOnly,
                "built-in; replace it in sqlite:a, which cannot be written: changes will fail",
            ),
            (
                true,
                DocumentState::Outdated,
                "built-in; replace it in sqlite:a, which has no valid document",
            ),
            (false, DocumentState::Current, "sqlite:a"),
            (
                false,
                DocumentState::ReadOnly,
                "sqlite:a, which cannot be written: changes will fail",
            ),
            (
                false,
                DocumentState::Outdated,
                "sqlite:a, the last valid version; the current one is invalid or out of reach",
            ),
        ] {
            let text = document(is_built_in, state, "sqlite:a");
            assert!(text.starts_with(&format!("Document: {line}\n")), "{text}");
            assert_eq!(text.contains("identifier_glob"), is_built_in, "{text}");
        }
    }

    #[test]
    fn token_comes_from_the_secret_or_the_variable() {
        let mut auth = AuthSettings::default();
        assert_eq!(token_expression(&auth), "$DOORMAN_TOKEN");
        auth.secret_files = vec!["/etc/doorman/secret".into(), "/old".into()];
        let command = "doorman token --secret-file /etc/doorman/secret --sub me --scope capacity";
        assert_eq!(token_expression(&auth), format!("$({command})"));
        auth.audience = "it's us".to_owned();
        let audience = r"--audience 'it'\''s us'";
        assert_eq!(token_expression(&auth), format!("$({command} {audience})"));
    }

    #[test]
    fn unspecified_addresses_become_loopback() {
        for (listen, reached) in [
            ("0.0.0.0:7300", "127.0.0.1:7300"),
            ("[::]:7300", "[::1]:7300"),
            ("10.0.0.5:80", "10.0.0.5:80"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()), reached.parse().unwrap());
        }
    }
}
