//! Writes the answers of the lease calls: byte for byte as the types of the contract are written, but what is the same for one resource
//! as for the one before is copied, not made again. An answer may speak of 10,000 resources, and most of what it says of one template
//! is the same for all of them.

use std::{ops::Range, sync::Arc};

use doorman_config::Template;
use doorman_openapi::{Algorithm, HolderKind, ResourceId, Seconds};

use super::json::append;
use crate::{http::state::ServerInfo, ledger::Grant};

/// How much room an answer has beside what it says of resources.
const ROOM: usize = 512;

/// How much it takes to speak of one resource, more or less.
const ROOM_OF_A_LEASE: usize = 288;

/// The answer to a client's request, or to that of a node. `unix_now` is the wall clock in Unix seconds.
pub(super) fn write(
    about: &ServerInfo,
    to: HolderKind,
    granted: &[Grant],
    unix_now: u64,
) -> serde_json::Result<Vec<u8>> {
    let room = granted.len().saturating_mul(ROOM_OF_A_LEASE);
    let mut text = Vec::with_capacity(room.saturating_add(ROOM));
    member(&mut text, r#"{"node":"#, &about.node)?;
    member(&mut text, r#","epoch":"#, &about.epoch)?;
    text.extend_from_slice(br#","resources":["#);
    let mut before = Before::default();
    for (position, granted) in granted.iter().enumerate() {
        if position > 0 {
            text.push(b',');
        }
        answer(&mut text, &mut before, to, granted, unix_now)?;
    }
    text.extend_from_slice(b"]}");
    Ok(text)
}

/// What was said of the resource before.
#[derive(Default)]
struct Before<'a> {
    lengths: Last<(Seconds, Seconds)>,
    template: Last<Option<*const Template>>,
    algorithm: Last<&'a Algorithm>,
}

fn answer<'a>(
    text: &mut Vec<u8>,
    before: &mut Before<'a>,
    to: HolderKind,
    granted: &'a Grant,
    unix_now: u64,
) -> serde_json::Result<()> {
    text.extend_from_slice(br#"{"resource_id":"#);
    name(text, &granted.resource_id)?;
    member(text, r#","gets":{"capacity":"#, &granted.capacity)?;
    let lengths = (granted.lease_length, granted.refresh_interval);
    before.lengths.write(text, lengths, |text| {
        member(text, r#","lease_length":"#, &granted.lease_length)?;
        member(text, r#","refresh_interval":"#, &granted.refresh_interval)?;
        member(text, r#","expiry_time":"#, &granted.expiry_time(unix_now))
    })?;
    member(text, r#"},"reason":"#, &granted.reason)?;
    let template = granted.template.as_deref();
    let same = granted.template.as_ref().map(Arc::as_ptr);
    before.template.write(text, same, |text| {
        let glob = template.map(Template::identifier_glob);
        member(text, r#","template":"#, &glob)?;
        member(text, r#","limit":"#, &template.map(Template::capacity))?;
        member(text, r#","unit":"#, &template.map(Template::unit))?;
        member(text, r#","per":"#, &template.map(Template::per))
    })?;
    member(text, r#","safe_capacity":"#, &granted.safe_capacity)?;
    if let Some(probability) = granted.feedback.admission_probability() {
        member(text, r#","admission_probability":"#, &probability)?;
    }
    if let Some(balance) = granted.feedback.balance() {
        member(text, r#","balance":"#, &balance)?;
    }
    match to {
        HolderKind::Client => {}
        HolderKind::Node => before.algorithm.write(text, &granted.algorithm, |text| {
            member(text, r#","algorithm":"#, &granted.algorithm)
        })?,
    }
    text.push(b'}');
    Ok(())
}

/// A member of an object, with what stands before its value.
fn member<T: serde::Serialize>(
    text: &mut Vec<u8>,
    name: &str,
    value: &T,
) -> serde_json::Result<()> {
    text.extend_from_slice(name.as_bytes());
    append(text, value)
}

/// An identifier, which has no control character: most are written as they are.
fn name(text: &mut Vec<u8>, id: &ResourceId) -> serde_json::Result<()> {
    let name = id.as_str();
    if name.bytes().any(|byte| byte == b'"' || byte == b'\\') {
        return append(text, name);
    }
    text.push(b'"');
    text.extend_from_slice(name.as_bytes());
    text.push(b'"');
    Ok(())
}

/// What was written last of a kind: what it was made of, and where it stands.
struct Last<K>(Option<(K, Range<usize>)>);

impl<K> Default for Last<K> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: PartialEq> Last<K> {
    /// Writes something that is made of nothing but `of`, or copies it.
    fn write(
        &mut self,
        text: &mut Vec<u8>,
        of: K,
        make: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
    ) -> serde_json::Result<()> {
        match &self.0 {
            Some((last, place)) if *last == of => text.extend_from_within(place.clone()),
            _ => {
                let begin = text.len();
                make(text)?;
                self.0 = Some((of, begin..text.len()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
