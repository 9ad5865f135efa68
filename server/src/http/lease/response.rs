//! Bodies of lease responses, written by hand.
//!
//! The output equals that of the contract's types. What equals the previous resource is copied:
//! through `serde` a response of 100 resources takes five times the instructions.

use std::{ops::Range, sync::Arc};

use doorman_config::Template;
use doorman_openapi::{Algorithm, HolderKind, NodeId, ResourceId, Seconds, ServerAlgorithm};
use serde::Serialize;

use crate::http::response::json::append;
use doorman_core::ledger::Grant;
use doorman_core::master::Granted;

/// Estimated size of a response without its resources, and of one resource.
const FIXED_BYTES: usize = 512;
const RESOURCE_BYTES: usize = 288;

/// Writes the response for a client or a node. `level` is that of the server, `warnings` what is
/// wrong, `unix_now` the wall clock in Unix seconds.
pub(super) fn write(
    node: &NodeId,
    Granted { epoch, grants }: &Granted,
    to: HolderKind,
    level: u32,
    warnings: &[String],
    unix_now: u64,
) -> serde_json::Result<Vec<u8>> {
    let capacity = grants.len().saturating_mul(RESOURCE_BYTES);
    let mut text = Vec::with_capacity(capacity.saturating_add(FIXED_BYTES));
    member(&mut text, r#"{"node":"#, node)?;
    member(&mut text, r#","epoch":"#, epoch)?;
    if to == HolderKind::Node {
        member(&mut text, r#","level":"#, &level)?;
    }
    if !warnings.is_empty() {
        member(&mut text, r#","warnings":"#, &warnings)?;
    }
    text.extend_from_slice(br#","resources":["#);
    let mut previous = Previous::default();
    for (index, grant) in grants.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        resource(&mut text, &mut previous, to, grant, unix_now)?;
    }
    text.extend_from_slice(b"]}");
    Ok(text)
}

/// The parts of the previous resource that may repeat.
#[derive(Default)]
struct Previous<'a> {
    lengths: Fragment<(Seconds, Seconds)>,
    template: Fragment<Option<*const Template>>,
    algorithm: Fragment<(&'a Algorithm, Option<*const Template>)>,
}

fn resource<'a>(
    text: &mut Vec<u8>,
    previous: &mut Previous<'a>,
    to: HolderKind,
    grant: &'a Grant,
    unix_now: u64,
) -> serde_json::Result<()> {
    text.extend_from_slice(br#"{"resource_id":"#);
    identifier(text, &grant.resource_id)?;
    member(text, r#","gets":{"capacity":"#, &grant.capacity)?;
    let lengths = (grant.lease_length, grant.refresh_interval);
    previous.lengths.write(text, lengths, |text| {
        member(text, r#","lease_length":"#, &grant.lease_length)?;
        member(text, r#","refresh_interval":"#, &grant.refresh_interval)?;
        member(text, r#","expiry_time":"#, &grant.expiry_time(unix_now))
    })?;
    if let Some(effective) = &grant.reporting.effective {
        member(text, r#","effective":"#, effective)?;
    }
    member(text, r#"},"reason":"#, &grant.reason)?;
    let template = grant.template.as_deref();
    let pointer = grant.template.as_ref().map(Arc::as_ptr);
    previous.template.write(text, pointer, |text| {
        let glob = template.map(Template::identifier_glob);
        member(text, r#","template":"#, &glob)?;
        member(text, r#","limit":"#, &template.map(Template::capacity))?;
        member(text, r#","unit":"#, &template.map(Template::unit))?;
        member(text, r#","per":"#, &template.map(Template::per))
    })?;
    member(text, r#","safe_capacity":"#, &grant.safe_capacity)?;
    if let Some(probability) = grant.signal.admission_probability() {
        member(text, r#","admission_probability":"#, &probability)?;
    }
    if let Some(balance) = grant.signal.balance() {
        member(text, r#","balance":"#, &balance)?;
    }
    if let Some(tokens) = &grant.tokens {
        member(text, r#","tokens":"#, tokens)?;
    }
    if grant.reporting.is_early {
        text.extend_from_slice(br#","report":true"#);
    }
    match to {
        HolderKind::Client => {}
        HolderKind::Node => {
            previous
                .algorithm
                .write(text, (&grant.algorithm, pointer), |text| {
                    let algorithm = ServerAlgorithm {
                        algorithm: grant.algorithm.clone(),
                        parameters: template.map_or_else(Vec::new, Template::parameters),
                    };
                    member(text, r#","algorithm":"#, &algorithm)
                })?;
            if !grant.levels.is_empty() {
                member(text, r#","levels":"#, &grant.levels)?;
            }
        }
    }
    text.push(b'}');
    Ok(())
}

/// Appends a value behind its name, which includes the punctuation.
fn member<T: Serialize>(text: &mut Vec<u8>, name: &str, value: &T) -> serde_json::Result<()> {
    text.extend_from_slice(name.as_bytes());
    append(text, value)
}

/// Appends an identifier. It has no control characters, so that most need no escape.
fn identifier(text: &mut Vec<u8>, id: &ResourceId) -> serde_json::Result<()> {
    let id = id.as_str();
    if id.bytes().any(|byte| byte == b'"' || byte == b'\\') {
        return append(text, id);
    }
    text.push(b'"');
    text.extend_from_slice(id.as_bytes());
    text.push(b'"');
    Ok(())
}

/// The last text written for a key, and its position.
struct Fragment<K>(Option<(K, Range<usize>)>);

impl<K> Default for Fragment<K> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: PartialEq> Fragment<K> {
    /// Copies the last text if it has the same key, else writes a new one.
    fn write(
        &mut self,
        text: &mut Vec<u8>,
        key: K,
        make: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
    ) -> serde_json::Result<()> {
        match &self.0 {
            Some((last, range)) if *last == key => text.extend_from_within(range.clone()),
            _ => {
                let begin = text.len();
                make(text)?;
                self.0 = Some((key, begin..text.len()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
