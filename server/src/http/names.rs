//! By which names a server goes that asks nobody who they are, and from which sites its document is changed.
//!
//! A browser on a machine reaches what listens on loopback there. A web page can have its own name resolve to 127.0.0.1 (DNS rebinding)
//! and then reads and writes, as if it were its own, what is answered to that name; and any page can send some requests to any address,
//! without reading the answer. So who has no token must call the server by a name that only this machine gives it, and a change comes
//! from no other site. Tokens are shown by no browser unasked: where they are asked for, none of this is needed.

use std::net::IpAddr;

use axum::{
    body::Body,
    http::{HeaderMap, Method, Request, header, uri::Authority},
};
use doorman_openapi::ProblemType;

use super::refusal::Refusal;

/// By which names a server goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    /// Where it tells others to look for it, as `origin` says it: its own pages come from there, whatever a proxy makes of `host`.
    advertised: String,
    hosts: Hosts,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    /// Whatever it is called.
    Any,
    /// Those of the machine itself, and this one.
    Loopback(Option<String>),
}

impl Names {
    /// Those of a server that machines reach by names of which it knows nothing.
    pub(crate) fn any(advertised: &str) -> Self {
        Self {
            advertised: advertised.trim_end_matches('/').to_owned(),
            hosts: Hosts::Any,
        }
    }

    /// Those of a server on loopback: the host of the address it is known by counts, too.
    pub(crate) fn of_loopback(advertised: &str) -> Self {
        let authority = advertised
            .split_once("://")
            .map_or(advertised, |(_, it)| it);
        let authority: Option<Authority> = authority.trim_end_matches('/').parse().ok();
        let host = authority.map(|it| without_dot(it.host()).to_owned());
        Self {
            hosts: Hosts::Loopback(host),
            ..Self::any(advertised)
        }
    }

    /// The same for what listens at another address: only what is on loopback is told apart by names.
    pub(super) fn at(&self, loopback: bool) -> Self {
        if loopback {
            Self::of_loopback(&self.advertised)
        } else {
            Self::any(&self.advertised)
        }
    }

    /// Checks what a request of somebody without a token is addressed to, and, if it may change anything, from which site it comes.
    ///
    /// # Errors
    /// 421 when it is addressed to a name that this server does not go by (RFC 9110, section 15.5.20), 403 when it comes from another site.
    pub(super) fn check(&self, request: &Request<Body>) -> Result<(), Refusal> {
        // The name may stand in both places, and neither is more to be believed.
        let in_target = request.uri().authority().map(Authority::as_str);
        if let Hosts::Loopback(other) = &self.hosts {
            let named = request.headers().get_all(header::HOST).into_iter();
            let named = named.map(|value| value.to_str().unwrap_or_default());
            for name in named.chain(in_target) {
                if !is_ours(host(name), other.as_deref()) {
                    return Err(misdirected(name));
                }
            }
        }
        if is_safe(request.method()) || self.is_from_here(request.headers(), in_target) {
            Ok(())
        } else {
            Err(Refusal::new(
                ProblemType::Forbidden,
                "a page of another site, as `origin` says, changes nothing here",
            ))
        }
    }

    /// Whether a request comes from no web page, or from one that this server has sent itself: RFC 6454, section 7. A page that hides
    /// where it comes from (`null`) is of another site.
    fn is_from_here(&self, headers: &HeaderMap, in_target: Option<&str>) -> bool {
        let named = headers.get(header::HOST);
        let named = named.and_then(|it| it.to_str().ok()).or(in_target);
        headers.get_all(header::ORIGIN).into_iter().all(|origin| {
            let origin = origin.to_str().unwrap_or_default();
            let authority = origin.split_once("://").map(|(_, it)| it);
            let is_named = |it: &str| named.is_some_and(|named| named.eq_ignore_ascii_case(it));
            authority.is_some_and(is_named) || origin.eq_ignore_ascii_case(&self.advertised)
        })
    }
}

fn is_safe(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

/// The host of `host:port`.
fn host(name: &str) -> &str {
    let end = match name.strip_prefix('[') {
        Some(rest) => rest.find(']').map_or(name.len(), |at| at.saturating_add(2)),
        None => name.find(':').unwrap_or(name.len()),
    };
    name.get(..end).unwrap_or(name)
}

fn is_ours(host: &str, other: Option<&str>) -> bool {
    // The usual, without taking it apart.
    if host == "127.0.0.1" {
        return true;
    }
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let address: Option<IpAddr> = bare.unwrap_or(host).parse().ok();
    let named = |it: &str| without_dot(host).eq_ignore_ascii_case(it);
    address.is_some_and(|it| it.to_canonical().is_loopback())
        || named("localhost")
        || other.is_some_and(named)
}

/// A name that ends in a dot is the same name, said whole.
fn without_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

fn misdirected(name: &str) -> Refusal {
    let name: String = name.chars().take(256).collect();
    Refusal::new(
        ProblemType::Misdirected,
        format!(
            "the server does not go by the name {name}: without authentication it answers on loopback only to 127.0.0.1, localhost and \
             the like, and to the host of --advertise"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &Names, method: Method, headers: &[(&str, &str)]) -> Option<u16> {
        let mut request = Request::builder().method(method).uri("/v1/templates");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let refused = names.check(&request).err()?;
        Some(refused.into_problem().status)
    }

    #[test]
    fn a_server_on_loopback_goes_by_the_names_that_only_this_machine_gives_it() {
        let names = Names::of_loopback("http://doorman.example:7300");
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
                check(&names, Method::GET, &[("host", ours)]),
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
            let refused = check(&names, Method::GET, &[("host", other)]);
            assert_eq!(refused, Some(421), "{other}");
            assert_eq!(
                check(&Names::any(""), Method::GET, &[("host", other)]),
                None
            );
        }
        // Programs that send none are no browsers; two are one too many.
        assert_eq!(check(&names, Method::GET, &[]), None);
        let two = [("host", "localhost"), ("host", "attacker.example")];
        assert_eq!(check(&names, Method::GET, &two), Some(421));
    }

    #[test]
    fn the_advertised_name_may_end_in_a_dot_or_a_slash() {
        for advertised in ["http://doorman.example.:7300", "http://doorman.example/"] {
            let names = Names::of_loopback(advertised);
            for host in ["doorman.example", "doorman.example.:7300"] {
                let refused = check(&names, Method::GET, &[("host", host)]);
                assert_eq!(refused, None, "{advertised} {host}");
            }
        }
    }

    #[test]
    fn a_page_of_the_advertised_site_is_its_own_whatever_a_proxy_makes_of_the_host() {
        let host = ("host", "127.0.0.1:7300");
        let site = "https://doorman.example";
        for names in [Names::of_loopback(site), Names::any(site)] {
            let from = |origin| check(&names, Method::PUT, &[host, ("origin", origin)]);
            assert_eq!(from(site), None);
            assert_eq!(from("http://doorman.example"), Some(403));
            assert_eq!(from("https://doorman.example:8443"), Some(403));
        }
    }

    #[test]
    fn a_whole_address_in_the_request_line_is_looked_at_too() {
        let names = Names::of_loopback("http://127.0.0.1:7300");
        let request = |uri: &str| {
            let request = Request::get(uri).header("host", "127.0.0.1:7300");
            request.body(Body::empty()).unwrap()
        };
        assert!(
            names
                .check(&request("http://attacker.example/v1/status"))
                .is_err()
        );
        assert!(
            names
                .check(&request("http://127.0.0.1:7300/v1/status"))
                .is_ok()
        );
    }

    #[test]
    fn a_page_of_another_site_changes_nothing() {
        let host = ("host", "127.0.0.1:7300");
        let here = "http://127.0.0.1:7300";
        for names in [Names::of_loopback(here), Names::any(here)] {
            for method in [Method::POST, Method::PUT, Method::DELETE] {
                let from = |origin| check(&names, method.clone(), &[host, ("origin", origin)]);
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
                assert_eq!(check(&names, method.clone(), &[host]), None);
            }
            let reads = [host, ("origin", "http://attacker.example")];
            assert_eq!(check(&names, Method::GET, &reads), None);
        }
    }
}
