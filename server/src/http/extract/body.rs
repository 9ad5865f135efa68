//! Request bodies: media type check, size and time limits, and a memory limit over all requests.

use std::time::Duration;

use axum::{
    body::{Body, HttpBody as _},
    http::{HeaderMap, header},
};
use bytes::Bytes;
use doorman_openapi::{MAX_BODY_BYTES, ProblemType};
use http_body_util::BodyExt;
use serde::de::IgnoredAny;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::http::error::ApiError;

pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// How much of an oversized body is read before the response. A client that is still sending
/// would otherwise see a connection reset instead of the 413.
const DRAIN_BYTES: usize = 4 * MAX_BODY_BYTES;

/// Memory for bodies that are still arriving. One that arrives in one piece needs none of it.
const BUFFER_BYTES: usize = 32 * 1024 * 1024;

/// The unit in which the buffer is reserved.
const CHUNK_BYTES: usize = 16 * 1024;

/// After this many bytes of one body other tasks run: a fast connection always has more to read.
const YIELD_BYTES: usize = 256 * 1024;

/// The media types that a body may have, all in UTF-8. Other `+json` types are other formats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MediaTypes(&'static [&'static str]);

pub(crate) const JSON: MediaTypes = MediaTypes(&["application/json"]);

/// A merge patch (RFC 7396), which is JSON, too.
pub(crate) const MERGE_PATCH: MediaTypes =
    MediaTypes(&["application/merge-patch+json", "application/json"]);

impl MediaTypes {
    fn listed(self) -> String {
        self.0.join(" or ")
    }

    fn contain(self, value: &str) -> bool {
        // Nearly every request, without parsing parameters.
        if self.0.contains(&value) {
            return true;
        }
        let mut parts = value.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        self.0.iter().any(|it| name.eq_ignore_ascii_case(it))
            && parts.all(|parameter| match parameter.split_once('=') {
                Some((name, value)) if name.eq_ignore_ascii_case("charset") => {
                    value.trim_matches('"').eq_ignore_ascii_case("utf-8")
                }
                _ => true,
            })
    }
}

#[derive(Debug)]
pub(crate) struct BodyBuffer(Semaphore);

impl Default for BodyBuffer {
    fn default() -> Self {
        Self(Semaphore::new(BUFFER_BYTES / CHUNK_BYTES))
    }
}

/// Reads a whole body; its syntax is not checked.
///
/// # Errors
/// 415 unless it has one of these types; 413 if too large; 503 if the buffer is full; 408 on
/// timeout; 400 if the body ends early.
pub(crate) async fn read(
    headers: &HeaderMap,
    types: MediaTypes,
    body: Body,
    buffer: &BodyBuffer,
) -> Result<Bytes, ApiError> {
    check_media_type(headers, types)?;
    match tokio::time::timeout(BODY_TIMEOUT, collect(headers, body, buffer)).await {
        Ok(read) => read,
        Err(_) => Err(ApiError::new(
            ProblemType::RequestTimeout,
            format!("body must arrive within {} s", BODY_TIMEOUT.as_secs()),
        )),
    }
}

/// # Errors
/// 400 unless it is UTF-8.
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, ApiError> {
    std::str::from_utf8(bytes).map_err(|error| {
        ApiError::malformed(format!("invalid UTF-8 at byte {}", error.valid_up_to()))
    })
}

/// # Errors
/// 400 unless it is JSON.
pub(crate) fn check_syntax(text: &str) -> Result<(), ApiError> {
    match serde_json::from_str(text) {
        Ok(IgnoredAny) => Ok(()),
        Err(error) => Err(ApiError::malformed(format!("invalid JSON: {error}"))),
    }
}

/// Accepts these types in UTF-8, uncompressed.
fn check_media_type(headers: &HeaderMap, types: MediaTypes) -> Result<(), ApiError> {
    let unsupported = |detail: String| {
        let error = ApiError::new(ProblemType::UnsupportedMediaType, detail);
        match types.0 {
            [_] => Err(error),
            _ => Err(error.with_accept_patch()),
        }
    };
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return unsupported(format!(
            "missing `content-type`: must be {}",
            types.listed()
        ));
    };
    if !value.to_str().is_ok_and(|value| types.contain(value)) {
        return unsupported(format!(
            "`content-type` must be {} in UTF-8",
            types.listed()
        ));
    }
    match headers.get(header::CONTENT_ENCODING) {
        Some(coding) if !coding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            unsupported("compressed bodies are not supported: omit `content-encoding`".to_owned())
        }
        _ => Ok(()),
    }
}

async fn collect(
    headers: &HeaderMap,
    mut body: Body,
    buffer: &BodyBuffer,
) -> Result<Bytes, ApiError> {
    // With `expect: 100-continue` the client has not sent the body yet.
    let expects = headers.contains_key(header::EXPECT);
    let declared: Option<usize> = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
    if let Some(length) = declared.filter(|length| *length > MAX_BODY_BYTES) {
        if !expects && length <= DRAIN_BYTES {
            drain(body).await;
        }
        return Err(too_large());
    }

    let first = next_data(&mut body).await?.unwrap_or_default();
    if body.is_end_stream() {
        // One piece: no copy, and no buffer while waiting for more.
        let fits = first.len() <= MAX_BODY_BYTES;
        return if fits { Ok(first) } else { Err(too_large()) };
    }
    let mut partial = PartialBody {
        bytes: Vec::new(),
        buffer: &buffer.0,
        reserved: None,
    };
    let mut budget = YieldBudget::default();
    let mut data = first;
    loop {
        if let Err(error) = partial.push(&data) {
            drop((partial, data));
            drain(body).await;
            return Err(error);
        }
        let len = data.len();
        // Part of hyper's read buffer, which must not stay alive while we wait for more.
        drop(data);
        budget.spend(len).await;
        data = match next_data(&mut body).await? {
            Some(next) => next,
            None => return Ok(partial.bytes.into()),
        };
    }
}

/// A body that is still arriving, with its share of the buffer.
struct PartialBody<'a> {
    bytes: Vec<u8>,
    buffer: &'a Semaphore,
    reserved: Option<SemaphorePermit<'a>>,
}

impl PartialBody<'_> {
    fn push(&mut self, data: &[u8]) -> Result<(), ApiError> {
        let len = self.bytes.len().saturating_add(data.len());
        if len > MAX_BODY_BYTES {
            return Err(too_large());
        }
        if len > self.bytes.capacity() {
            self.grow(len.next_power_of_two().max(CHUNK_BYTES))?;
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    /// Reserves what will be allocated, used or not.
    fn grow(&mut self, capacity: usize) -> Result<(), ApiError> {
        let reserved = self
            .reserved
            .as_ref()
            .map_or(0, SemaphorePermit::num_permits);
        let more = (capacity / CHUNK_BYTES).saturating_sub(reserved);
        let more = u32::try_from(more).map_err(|_| buffer_full())?;
        let more = self
            .buffer
            .try_acquire_many(more)
            .map_err(|_| buffer_full())?;
        match &mut self.reserved {
            Some(reserved) => reserved.merge(more),
            None => self.reserved = Some(more),
        }
        self.bytes
            .reserve_exact(capacity.saturating_sub(self.bytes.len()));
        Ok(())
    }
}

/// The next data frame; trailers are skipped.
async fn next_data(body: &mut Body) -> Result<Option<Bytes>, ApiError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::malformed("incomplete body"))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

async fn drain(mut body: Body) {
    let mut drained: usize = 0;
    let mut budget = YieldBudget::default();
    while drained < DRAIN_BYTES {
        let Ok(Some(data)) = next_data(&mut body).await else {
            return;
        };
        let len = data.len();
        drop(data);
        drained = drained.saturating_add(len);
        budget.spend(len).await;
    }
}

/// Bytes read since this task last yielded.
#[derive(Debug, Default)]
struct YieldBudget(usize);

impl YieldBudget {
    async fn spend(&mut self, len: usize) {
        self.0 = self.0.saturating_add(len);
        if self.0 >= YIELD_BYTES {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}

fn too_large() -> ApiError {
    ApiError::new(
        ProblemType::PayloadTooLarge,
        format!("body must be at most {MAX_BODY_BYTES} bytes"),
    )
}

fn buffer_full() -> ApiError {
    ApiError::unavailable(format!(
        "request buffer full ({BUFFER_BYTES} bytes for all requests); retry later"
    ))
}

#[cfg(test)]
mod tests {
    use super::{JSON, MERGE_PATCH};

    #[test]
    fn only_utf_8_json_is_accepted() {
        for right in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json;charset=\"UTF-8\"",
            "application/json; profile=\"x\"",
            "application/json;",
        ] {
            assert!(JSON.contain(right), "{right}");
            assert!(MERGE_PATCH.contain(right), "{right}");
        }
        for wrong in [
            "",
            "text/json",
            "text/plain",
            "application/problem+json",
            "application/merge-patch+json",
            "application/jsonp",
            "application/json; charset=latin1",
            "application/x-www-form-urlencoded",
        ] {
            assert!(!JSON.contain(wrong), "{wrong}");
        }
        let patch = "application/merge-patch+json; charset=UTF-8";
        assert!(MERGE_PATCH.contain(patch));
        assert!(!MERGE_PATCH.contain("application/json-patch+json"));
    }
}
