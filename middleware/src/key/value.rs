//! A value of a request that a key is made of.

use std::{borrow::Cow, io::Write as _, net::IpAddr, sync::Arc};

use http::HeaderName;

use super::{RequestHead, claims::Claim, host, peer, presented};

/// A closure that takes a value from a request.
pub(super) type Maker = dyn for<'a> Fn(&RequestHead<'a>) -> Option<Cow<'a, str>> + Send + Sync;

#[derive(Clone)]
pub(super) enum Value {
    Header(HeaderName),
    ApiKey(HeaderName),
    Jwt(Claim),
    ClientIp,
    Peer,
    Host,
    Method,
    Route,
    Made(Arc<Maker>),
}

impl Value {
    /// Hands the value of a request to `found`; `None` when there is none, or it is empty.
    pub(super) fn take<R>(
        &self,
        head: &RequestHead<'_>,
        found: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let found = |value: &[u8]| (!value.is_empty()).then(|| found(value));
        match self {
            Self::Header(name) => found(head.header(name)?.as_bytes()),
            Self::ApiKey(name) => {
                let key = presented::find(head.headers(), name)?;
                found(&head.callers().hash_api_key(&key))
            }
            Self::Jwt(claim) => claim.take(head.claims().ok()?, found),
            Self::ClientIp => written(head.client_ip()?, found),
            Self::Peer => written(head.peer()?, found),
            Self::Host => {
                let host = host::find(head.uri(), head.headers())?.as_bytes();
                let mut text = [0; host::LONGEST];
                let text = text.get_mut(..host.len())?;
                text.copy_from_slice(host);
                text.make_ascii_lowercase();
                found(text)
            }
            Self::Method => found(head.method().as_str().as_bytes()),
            Self::Route => found(head.route()?.as_bytes()),
            Self::Made(make) => found(make(head)?.as_bytes()),
        }
    }
}

fn written<R>(address: IpAddr, found: impl FnOnce(&[u8]) -> Option<R>) -> Option<R> {
    // The longest is four groups of four digits, and `::/64`.
    let mut text = [0; 32];
    let mut rest = text.as_mut_slice();
    write!(rest, "{}", peer::Party(address)).ok()?;
    let free = rest.len();
    found(text.get(..text.len().checked_sub(free)?)?)
}
