//! Protection against DNS rebinding and cross-site requests for servers without authentication.
//!
//! A web page can resolve its own name to 127.0.0.1 and call a server on loopback as the same
//! origin, and any page can send simple requests. So the `host` must be a name that only this
//! machine gives the server, and a change must not come from another origin. With bearer tokens
//! none of this is needed, because browsers do not add them by themselves.

use std::net::IpAddr;

use axum::{
    body::Body,
    http::{HeaderMap, Method, Request, header, uri::Authority},
};
use doorman_openapi::ProblemType;

use super::error::ApiError;

pub(super) const CROSS_ORIGIN: &str = "cross-origin request rejected: `origin` is another site";

/// The host names that requests without a token may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AllowedHosts {
    /// The origin of the server's own pages, whatever `host` a proxy sends.
    advertised: String,
    hosts: Hosts,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    Any,
    /// The names of the machine itself, and the advertised host.
    Loopback(Option<String>),
}

impl AllowedHosts {
    /// Any host: for a listener that other machines reach.
    pub(crate) fn any(advertised: &str) -> Self {
        Self {
            advertised: advertised.trim_end_matches('/').to_owned(),
            hosts: Hosts::Any,
        }
    }

    /// The names of the machine itself and the advertised host: for a listener on loopback.
    pub(crate) fn of_loopback(advertised: &str) -> Self {
        let authority = advertised
            .split_once("://")
            .map_or(advertised, |(_, it)| it);
        let authority: Option<Authority> = authority.trim_end_matches('/').parse().ok();
        let host = authority.map(|it| without_trailing_dot(it.host()).to_owned());
        Self {
            hosts: Hosts::Loopback(host),
            ..Self::any(advertised)
        }
    }

    /// The names of the machine itself: for a process on loopback that advertises no address.
    pub(crate) fn of_machine(address: &str) -> Self {
        Self {
            hosts: Hosts::Loopback(None),
            ..Self::any(address)
        }
    }

    pub(super) fn for_listener(&self, loopback: bool) -> Self {
        if loopback {
            Self::of_loopback(&self.advertised)
        } else {
            Self::any(&self.advertised)
        }
    }

    /// Checks the host of a request without a token, and its origin if it may change anything.
    ///
    /// # Errors
    /// 421 for another host (RFC 9110, section 15.5.20); 403 for another origin.
    pub(super) fn check(&self, request: &Request<Body>) -> Result<(), ApiError> {
        // A host may be in the request target and in the header; both must be allowed.
        let target = request.uri().authority().map(Authority::as_str);
        if let Hosts::Loopback(advertised) = &self.hosts {
            let headers = request.headers().get_all(header::HOST).into_iter();
            let headers = headers.map(|value| value.to_str().unwrap_or_default());
            for name in headers.chain(target) {
                if !is_local(host(name), advertised.as_deref()) {
                    return Err(misdirected(name, advertised.is_some()));
                }
            }
        }
        if is_safe(request.method()) || self.is_same_origin(request.headers(), target) {
            Ok(())
        } else {
            Err(ApiError::new(ProblemType::Forbidden, CROSS_ORIGIN))
        }
    }

    /// Whether a request comes from no web page, or from one of this server (RFC 6454, section 7).
    /// An opaque origin (`null`) is another site.
    fn is_same_origin(&self, headers: &HeaderMap, target: Option<&str>) -> bool {
        let host = headers.get(header::HOST);
        let host = host.and_then(|it| it.to_str().ok()).or(target);
        headers.get_all(header::ORIGIN).into_iter().all(|origin| {
            let origin = origin.to_str().unwrap_or_default();
            let authority = origin.split_once("://").map(|(_, it)| it);
            let is_host = |it: &str| host.is_some_and(|host| host.eq_ignore_ascii_case(it));
            authority.is_some_and(is_host) || origin.eq_ignore_ascii_case(&self.advertised)
        })
    }
}

fn is_safe(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

fn host(name: &str) -> &str {
    let end = match name.strip_prefix('[') {
        Some(rest) => rest.find(']').map_or(name.len(), |at| at.saturating_add(2)),
        None => name.find(':').unwrap_or(name.len()),
    };
    name.get(..end).unwrap_or(name)
}

fn is_local(host: &str, advertised: Option<&str>) -> bool {
    // Nearly every request, without parsing.
    if host == "127.0.0.1" {
        return true;
    }
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let address: Option<IpAddr> = bare.unwrap_or(host).parse().ok();
    let is = |it: &str| without_trailing_dot(host).eq_ignore_ascii_case(it);
    address.is_some_and(|it| it.to_canonical().is_loopback())
        || is("localhost")
        || advertised.is_some_and(is)
}

fn without_trailing_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

fn misdirected(name: &str, has_advertised: bool) -> ApiError {
    let name: String = name.chars().take(256).collect();
    let accepted = if has_advertised {
        "loopback addresses, localhost and the host of --advertise"
    } else {
        "loopback addresses and localhost"
    };
    ApiError::new(
        ProblemType::Misdirected,
        format!(
            "unknown host `{name}`: without authentication, a server on loopback accepts only \
             {accepted}"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hosts: &AllowedHosts, method: Method, headers: &[(&str, &str)]) -> Option<u16> {
        let mut request = Request::builder().method(method).uri("/v1/templates");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let rejected = hosts.check(&request).err()?;
        Some(rejected.into_problem().status)
    }

    #[test]
    fn loopback_server_accepts_only_local_hosts() {
        let hosts = AllowedHosts::of_loopback("http://doorman.example:7300");
        for ours in [
            "127.0.0.1",
            "127.0.0.1:7300",
            "127.9.9.9:7300",
            "localhost",
            "LocalHost:7300",
            "localhost.:7300",
            "[::1]",
            "[::1]:7300",
            "[::ffff:127.0.0.1]:7300",
            "doorman.example",
            "doorman.example:443",
        ] {
            assert_eq!(
                check(&hosts, Method::GET, &[("host", ours)]),
                None,
                "{ours}"
            );
        }
        for other in [
            "attacker.example",
            "attacker.example:7300",
            "127.0.0.1.attacker.example:7300",
            "localhost.attacker.example",
            "192.0.2.1:7300",
            "0.0.0.0:7300",
            "[::]:7300",
            "[::1",
            "",
            "doorman.example.attacker.example",
        ] {
            let rejected = check(&hosts, Method::GET, &[("host", other)]);
            assert_eq!(rejected, Some(421), "{other}");
            assert_eq!(
                check(&AllowedHosts::any(""), Method::GET, &[("host", other)]),
                None
            );
        }
        // Only programs other than browsers send no host; two must both be allowed.
        assert_eq!(check(&hosts, Method::GET, &[]), None);
        let two = [("host", "localhost"), ("host", "attacker.example")];
        assert_eq!(check(&hosts, Method::GET, &two), Some(421));
    }

    #[test]
    fn advertised_host_may_end_in_dot_or_slash() {
        for advertised in ["http://doorman.example.:7300", "http://doorman.example/"] {
            let hosts = AllowedHosts::of_loopback(advertised);
            for host in ["doorman.example", "doorman.example.:7300"] {
                let rejected = check(&hosts, Method::GET, &[("host", host)]);
                assert_eq!(rejected, None, "{advertised} {host}");
            }
        }
    }

    #[test]
    fn advertised_origin_is_same_origin_behind_a_proxy() {
        let host = ("host", "127.0.0.1:7300");
        let site = "https://doorman.example";
        for hosts in [AllowedHosts::of_loopback(site), AllowedHosts::any(site)] {
            let from = |origin| check(&hosts, Method::PUT, &[host, ("origin", origin)]);
            assert_eq!(from(site), None);
            assert_eq!(from("http://doorman.example"), Some(403));
            assert_eq!(from("https://doorman.example:8443"), Some(403));
        }
    }

    #[test]
    fn host_in_the_request_target_is_checked() {
        let hosts = AllowedHosts::of_loopback("http://127.0.0.1:7300");
        let request = |uri: &str| {
            let request = Request::get(uri).header("host", "127.0.0.1:7300");
            request.body(Body::empty()).unwrap()
        };
        assert!(
            hosts
                .check(&request("http://attacker.example/v1/status"))
                .is_err()
        );
        assert!(
            hosts
                .check(&request("http://127.0.0.1:7300/v1/status"))
                .is_ok()
        );
    }

    #[test]
    fn cross_origin_changes_are_rejected() {
        let host = ("host", "127.0.0.1:7300");
        let here = "http://127.0.0.1:7300";
        for hosts in [AllowedHosts::of_loopback(here), AllowedHosts::any(here)] {
            for method in [Method::POST, Method::PUT, Method::DELETE] {
                let from = |origin| check(&hosts, method.clone(), &[host, ("origin", origin)]);
                assert_eq!(from("http://127.0.0.1:7300"), None);
                for other in [
                    "http://attacker.example",
                    "http://127.0.0.1:8080",
                    "https://127.0.0.1",
                    "null",
                    "",
                ] {
                    assert_eq!(from(other), Some(403), "{other}");
                }
                assert_eq!(check(&hosts, method.clone(), &[host]), None);
            }
            let reads = [host, ("origin", "http://attacker.example")];
            assert_eq!(check(&hosts, Method::GET, &reads), None);
        }
    }
}
