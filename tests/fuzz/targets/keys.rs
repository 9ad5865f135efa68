//! Keys made of templates and of what requests say: whatever that is, the control plane takes the resource they come to, and nobody
//! can come by the resource of another.

use std::net::SocketAddr;

use doorman_openapi::ResourceId;
use http::{HeaderName, HeaderValue, Method, Request};
use tower_doorman::{Doorman, Key, Limit, MissingKey, PeerAddr, RefusalReason};

use crate::fuzz::refusal::refusal;

/// Takes the first line for a template, and each of the next two for a request: method, peer and values of `x-a` and `x-b`, between
/// tabs.
///
/// # Panics
/// When a key is no identifier, or two requests that differ in what it is made of have the same.
pub fn run(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let template = String::from_utf8_lossy(line());
    let asked = [Asked::of(line()), Asked::of(line())];
    fits(&resource(Key::constant(&template), &asked[0]).expect("a constant is always there"));

    let key = match Key::template(&template) {
        Ok(key) => key,
        Err(refused) => {
            assert!(!refused.to_string().is_empty());
            return;
        }
    };
    let ids = asked.each_ref().map(|asked| resource(key.clone(), asked));
    let values = asked.each_ref().map(|asked| asked.values(&template));
    ids.iter().flatten().for_each(fits);
    for (id, values) in ids.iter().zip(&values) {
        assert_eq!(
            id.is_some(),
            values.iter().all(Option::is_some),
            "{template:?} {values:?}"
        );
    }
    if ids[0].is_some() && ids[1].is_some() {
        // The same process, and any other, comes to the same; and to another for other values.
        assert_eq!(
            ids[0] == ids[1],
            values[0] == values[1],
            "{template:?} {values:?} {ids:?}"
        );
        assert_eq!(resource(key, &asked[0]), ids[0]);
    }
}

/// As the server has it.
fn fits(id: &ResourceId) {
    assert!((1..=256).contains(&id.as_str().len()), "{id}");
    assert!(!id.as_str().contains(char::is_control), "{id:?}");
}

/// What a request says.
#[derive(Debug)]
struct Asked {
    method: Method,
    peer: Option<SocketAddr>,
    headers: [Option<HeaderValue>; 2],
}

impl Asked {
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

    /// What each placeholder of a template stands for; `None` where there is nothing. A route is never there, and has a word of its
    /// own; no proxy is trusted.
    fn values(&self, template: &str) -> Vec<Option<Vec<u8>>> {
        let placeholders = template.split('{').skip(1);
        placeholders
            .map(|rest| match rest.split('}').next().unwrap_or_default() {
                "method" => Some(self.method.as_str().into()),
                "route" => Some(Vec::new()),
                "peer" | "client_ip" => self.party(),
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

    /// What one party owns of its address.
    fn party(&self) -> Option<Vec<u8>> {
        match self.peer?.ip().to_canonical() {
            std::net::IpAddr::V4(address) => Some(address.octets().to_vec()),
            std::net::IpAddr::V6(address) => {
                address.octets().first_chunk::<8>().map(|own| own.to_vec())
            }
        }
    }
}

/// The resource that a layer with this key has a request spend; `None` when the request lacks what the key is made of.
fn resource(key: Key, asked: &Asked) -> Option<ResourceId> {
    // Nothing is allowed, so that each request is refused and says by what.
    let nothing = Doorman::fixed([("", 0.0); 0]);
    let limit = Limit::rate(key).on_missing_key(MissingKey::Reject);
    let refusal = refusal(&nothing, limit, asked.request());
    let missing = refusal.reason() == RefusalReason::MissingKey;
    assert_eq!(missing, refusal.resource().is_none(), "{refusal:?}");
    refusal.resource().cloned()
}
