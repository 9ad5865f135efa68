//! Takes a body off the connection: no more bytes than allowed, and no longer than allowed.

use std::time::Duration;

use axum::{
    body::Body,
    http::{HeaderMap, header},
};
use bytes::{Bytes, BytesMut};
use doorman_openapi::{MAX_BODY_BYTES, ProblemType};
use http_body_util::BodyExt;

use super::refusal::Refusal;

/// How long a body may take to arrive.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// How much of a body that is too large is read and thrown away before the answer. A client that is still sending would otherwise
/// see its connection reset, and not why.
const DISCARDED_BYTES: usize = 4 * MAX_BODY_BYTES;

/// Takes the whole body.
///
/// # Errors
/// 413 when it is too large, 408 when it does not arrive in time, 400 when it breaks off.
pub(crate) async fn take(headers: &HeaderMap, body: Body) -> Result<Bytes, Refusal> {
    // The timer is armed only when the body is not there at once.
    match tokio::time::timeout(BODY_TIMEOUT, collect(headers, body)).await {
        Ok(taken) => taken,
        Err(_) => Err(Refusal::new(
            ProblemType::RequestTimeout,
            format!("the body must arrive within {} s", BODY_TIMEOUT.as_secs()),
        )),
    }
}

async fn collect(headers: &HeaderMap, mut body: Body) -> Result<Bytes, Refusal> {
    // Who asks first whether to send the body at all is told before it does.
    let waits = headers.contains_key(header::EXPECT);
    let declared: Option<usize> = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
    if waits && declared.is_some_and(|length| length > MAX_BODY_BYTES) {
        return Err(too_large());
    }

    let first = next(&mut body).await?.unwrap_or_default();
    let Some(mut piece) = next(&mut body).await? else {
        // It came in one piece, as small ones do: no copy.
        let fits = first.len() <= MAX_BODY_BYTES;
        return if fits { Ok(first) } else { Err(too_large()) };
    };
    let mut whole = BytesMut::from(first);
    loop {
        if whole.len().saturating_add(piece.len()) > MAX_BODY_BYTES {
            discard(body).await;
            return Err(too_large());
        }
        whole.extend_from_slice(&piece);
        piece = match next(&mut body).await? {
            Some(next) => next,
            None => return Ok(whole.freeze()),
        };
    }
}

/// The next piece of data; `None` at the end.
async fn next(body: &mut Body) -> Result<Option<Bytes>, Refusal> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            Refusal::new(
                ProblemType::MalformedRequest,
                "the body broke off before its end",
            )
        })?;
        // Trailers mean nothing to us.
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

async fn discard(mut body: Body) {
    let mut discarded: usize = 0;
    while discarded < DISCARDED_BYTES {
        match next(&mut body).await {
            Ok(Some(data)) => discarded = discarded.saturating_add(data.len()),
            Ok(None) | Err(_) => return,
        }
    }
}

fn too_large() -> Refusal {
    Refusal::new(
        ProblemType::PayloadTooLarge,
        format!("a body may have at most {MAX_BODY_BYTES} bytes"),
    )
}
