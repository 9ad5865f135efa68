//! Keys built from templates and requests: each yields a valid resource, and different values
//! never yield the same one.

use std::net::SocketAddr;

use doorman_openapi::ResourceId;
use http::{HeaderName, HeaderValue, Method, Request};
use tower_doorman::{Doorman, Key, Limit, OnMissingKey, PeerAddr, RefusalReason};

use crate::fuzz::refusal::refusal;

/// Reads the first line as a template, and each of the next two as a request: method, peer, and
/// values of `x-a` and `x-b`, separated by tabs.
///
/// # Panics
/// When a key is an invalid identifier, or requests with different values have the same key.
pub fn run(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let template = String::from_utf8_lossy(line());
    let inputs = [Input::of(line()), Input::of(line())];
    check_id(&resource(Key::constant(&template), &inputs[0]).expect("a constant is never missing"));

    let key = match Key::template(&template) {
        Ok(key) => key,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let ids = inputs
        .each_ref()
        .map(|inputs| resource(key.clone(), inputs));
    let values = inputs.each_ref().map(|inputs| inputs.values(&template));
    ids.iter().flatten().for_each(check_id);
    for (id, values) in ids.iter().zip(&values) {
        assert_eq!(
            id.is_some(),
            values.iter().all(Option::is_some),
            "{template:?} {values:?}"
        );
    }
    if ids[0].is_some() && ids[1].is_some() {
        // Equal values yield the same resource, different values another one.
        assert_eq!(
            ids[0] == ids[1],
            values[0] == values[1],
            "{template:?} {values:?} {ids:?}"
        );
        assert_eq!(resource(key, &inputs[0]), ids[0]);
    }
}

/// The server accepts the identifier.
fn check_id(id: &ResourceId) {
    assert!((1..=256).contains(&id.as_str().len()), "{id}");
    assert!(!id.as_str().contains(char::is_control), "{id:?}");
}

/// The parts of a request that keys can use.
#[derive(Debug)]
struct Input {
    method: Method,
    peer: Option<SocketAddr>,
    headers: [Option<HeaderValue>; 2],
}

impl Input {
    fn of(line: &[u8]) -> Self {
        let mut parts = line.split(|byte| *byte == b'\t');
        let method = parts.next().and_then(|part| Method::from_bytes(part).ok());
        let peer = parts
            .next()
            .and_then(|part| str::from_utf8(part).ok()?.parse().ok());
        let mut header = || HeaderValue::from_bytes(parts.next()?).ok();
        Self {
            method: method.unwrap_or_default(),
            peer,
            headers: [header(), header()],
        }
    }

    fn request(&self) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = self.method.clone();
        for (name, value) in ["x-a", "x-b"].into_iter().zip(&self.headers) {
            if let Some(value) = value {
                request
                    .headers_mut()
                    .insert(HeaderName::from_static(name), value.clone());
            }
        }
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(PeerAddr(peer));
        }
        request
    }

    /// The value of each placeholder of a template; `None` where it is missing. A request without
    /// route has a constant one. No proxy is trusted.
    fn values(&self, template: &str) -> Vec<Option<Vec<u8>>> {
        let placeholders = template.split('{').skip(1);
        placeholders
            .map(|rest| match rest.split('}').next().unwrap_or_default() {
                "method" => Some(self.method.as_str().into()),
                "route" => Some(Vec::new()),
                "peer" | "client_ip" => self.peer_network(),
                name => {
                    let header = ["header:", "api_key:"]
                        .into_iter()
                        .find_map(|kind| name.strip_prefix(kind))
                        .unwrap_or_default();
                    let [a, b] = &self.headers;
                    let value = match header.to_ascii_lowercase().as_str() {
                        "x-a" => a.as_ref(),
                        "x-b" => b.as_ref(),
                        _ => None,
                    };
                    value
                        .map(|value| value.as_bytes().to_vec())
                        .filter(|value| !value.is_empty())
                }
            })
            .collect()
    }

    /// The address, or the /64 network of an IPv6 address.
    fn peer_network(&self) -> Option<Vec<u8>> {
        match self.peer?.ip().to_canonical() {
            std::net::IpAddr::V4(address) => Some(address.octets().to_vec()),
            std::net::IpAddr::V6(address) => address
                .octets()
                .first_chunk::<8>()
                .map(|prefix| prefix.to_vec()),
        }
    }
}

/// The resource of a request; `None` when a value of the key is missing.
fn resource(key: Key, inputs: &Input) -> Option<ResourceId> {
    // The limit is zero, so each request is rejected, and its refusal names the resource.
    let closed = Doorman::fixed([("", 0.0); 0]);
    let limit = Limit::rate(key).on_missing_key(OnMissingKey::Reject);
    let refusal = refusal(&closed, limit, inputs.request());
    let missing = refusal.reason() == RefusalReason::MissingKey;
    assert_eq!(missing, refusal.resource().is_none(), "{refusal:?}");
    refusal.resource().cloned()
}
