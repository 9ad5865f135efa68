//! Outcomes of admitted requests, by the responses of their target.

mod retry_after;
mod target_headers;
#[cfg(test)]
mod tests;

use std::time::Duration;

use doorman_holder::SeenLimit;
use doorman_openapi::{MAX_PAUSE, Moment, Seen, TargetHeaders};
use http::{Extensions, HeaderMap, HeaderName, Response, StatusCode, header, response::Parts};

pub(crate) use self::retry_after::retry_after;
use self::target_headers::read;
use crate::refusal::Refusal;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The outcome of an admitted request at its target, for the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The target served it.
    Ok,
    /// The target refused it because of its load, or because of a limit of its own.
    Overloaded,
    /// It failed for another reason, which fewer requests would not change.
    Failed,
    /// It says nothing about the target, and is not counted.
    None,
}

impl Outcome {
    /// The outcome of a response by default; of a service that failed with `None`.
    ///
    /// - [`Overloaded`](Self::Overloaded): 429, 503 with `Retry-After`, and gRPC status 8 in the
    ///   head.
    /// - [`Failed`](Self::Failed): other 5xx, gRPC status 2, 4, 13, 14 and 15 in the head, and
    ///   errors of the service, such as timeouts.
    /// - [`None`](Self::None): the refusal of a layer of this process.
    /// - [`Ok`](Self::Ok): all others.
    ///
    /// An outcome in the extensions of the response counts instead.
    #[must_use]
    pub fn of(response: Option<&Parts>) -> Self {
        Self::of_head(response.map(ResponseHead::from))
    }

    #[inline]
    pub(crate) fn of_head(response: Option<ResponseHead<'_>>) -> Self {
        match response {
            None => Self::Failed,
            Some(response) => response
                .stated()
                .unwrap_or_else(|| Self::of_target(response)),
        }
    }

    #[inline]
    fn of_target(
        ResponseHead {
            status, headers, ..
        }: ResponseHead<'_>,
    ) -> Self {
        match status {
            StatusCode::OK if headers.is_empty() => Self::Ok,
            StatusCode::OK => Self::of_grpc(headers),
            StatusCode::TOO_MANY_REQUESTS => Self::Overloaded,
            StatusCode::SERVICE_UNAVAILABLE if headers.contains_key(header::RETRY_AFTER) => {
                Self::Overloaded
            }
            status if status.is_server_error() => Self::Failed,
            _ => Self::Ok,
        }
    }

    /// By the status in a response of headers only.
    fn of_grpc(headers: &HeaderMap) -> Self {
        let status = headers.get(GRPC_STATUS);
        match status.map(http::HeaderValue::as_bytes) {
            Some(b"8") => Self::Overloaded,
            Some(b"2" | b"4" | b"13" | b"14" | b"15") => Self::Failed,
            Some(_) | None => Self::Ok,
        }
    }
}

/// The parts of a response head that tell its outcome.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseHead<'r> {
    status: StatusCode,
    pub(crate) headers: &'r HeaderMap,
    extensions: &'r Extensions,
}

impl ResponseHead<'_> {
    /// The outcome that this process states: none if one of its layers refused the request, so that
    /// no target got it.
    #[inline]
    fn stated(self) -> Option<Outcome> {
        if self.extensions.is_empty() {
            None
        } else if self.extensions.get::<Refusal>().is_some() {
            Some(Outcome::None)
        } else {
            self.extensions.get().copied()
        }
    }
}

impl<'r> From<&'r Parts> for ResponseHead<'r> {
    fn from(parts: &'r Parts) -> Self {
        Self {
            status: parts.status,
            headers: &parts.headers,
            extensions: &parts.extensions,
        }
    }
}

impl<'r, B> From<&'r Response<B>> for ResponseHead<'r> {
    fn from(response: &'r Response<B>) -> Self {
        Self {
            status: response.status(),
            headers: response.headers(),
            extensions: response.extensions(),
        }
    }
}

/// The outcome of operations at their target, and what the target told with it, for
/// [`Checks::outcome`](crate::Checks::outcome).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OutcomeReport {
    pub(crate) outcome: Outcome,
    pub(crate) count: u64,
    pub(crate) pause: Option<Duration>,
    pub(crate) seen: Option<Seen>,
}

impl OutcomeReport {
    /// The outcome of one operation.
    #[must_use]
    pub fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            count: 1,
            pause: None,
            seen: None,
        }
    }

    /// The number of operations with this outcome.
    #[must_use]
    pub fn count(self, count: u64) -> Self {
        Self { count, ..self }
    }

    /// The time that the target of an overloaded operation asks to wait from now on; at most an
    /// hour counts.
    #[must_use]
    pub fn pause(self, pause: Duration) -> Self {
        let pause = Some(pause.min(MAX_PAUSE.duration()));
        Self { pause, ..self }
    }

    /// The target's own limit, as the target just told it.
    #[must_use]
    pub fn seen(self, seen: Seen) -> Self {
        let seen = Some(seen);
        Self { seen, ..self }
    }
}

/// The end of the pause that an overloaded response asks for.
pub(crate) fn paused_until(headers: &HeaderMap, now: Moment) -> Option<Moment> {
    let pause = retry_after(headers)?;
    Some(now.after(pause.min(MAX_PAUSE.duration())))
}

/// Headers of a target that do not parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidHeaders;

/// The target's own limit by the headers of a response; `None` without such headers.
pub(crate) fn seen(
    headers: &HeaderMap,
    family: TargetHeaders,
    now: Moment,
) -> Result<Option<SeenLimit>, InvalidHeaders> {
    let Some((remaining, reset)) = read(headers, family)? else {
        return Ok(None);
    };
    let whole_at = now.after(reset);
    Ok(Some(SeenLimit {
        remaining,
        whole_at,
    }))
}
