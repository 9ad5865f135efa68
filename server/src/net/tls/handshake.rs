//! TLS handshakes.

use std::{io, sync::Arc};

use doorman_openapi::{Problem, ProblemType};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, copy, sink};
use tokio_rustls::{TlsAcceptor, server};

use super::Tls;
use crate::{
    net::stream::{Opened, Protocol},
    observe::metrics::Outcomes,
};

/// Outcomes of a handshake: timeout, eviction or shutdown; one side rejected the other, or the
/// connection broke; a connection.
pub(super) const ABANDONED: &str = "abandoned";
pub(super) const FAILED: &str = "failed";
pub(super) const COMPLETED: &str = "completed";

type TlsStream<S> = Box<server::TlsStream<BufReader<S>>>;

/// Accepts a handshake with the certificate that is active at its first byte. `None` when it fails.
/// The caller limits the time.
///
/// # Cancel safety
/// The connection is closed when it is dropped.
pub(in crate::net) async fn accept<S>(tls: Arc<Tls>, stream: S) -> Option<Opened<TlsStream<S>>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut handshake = Handshake {
        handshakes: &tls.handshakes,
        outcome: ABANDONED,
    };
    // One byte distinguishes TLS from HTTP; later bytes bypass this buffer.
    let mut stream = BufReader::with_capacity(1, stream);
    let accepted = match stream.fill_buf().await {
        Ok([]) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok([first, ..]) if first.is_ascii_uppercase() => {
            handshake.outcome = FAILED;
            tracing::debug!("request without TLS rejected");
            reject_plain_http(stream).await;
            return None;
        }
        Ok(_) => {
            let config = Arc::clone(&tls.active.load().config);
            TlsAcceptor::from(config).accept(stream).await
        }
        Err(error) => Err(error),
    };
    match accepted {
        Ok(stream) => {
            handshake.outcome = COMPLETED;
            let protocol = match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => Some(Protocol::Http2),
                Some(_) => Some(Protocol::Http1),
                None => None,
            };
            // Boxed because it moves whenever its connection is parked and resumed.
            let stream = Box::new(stream);
            Some(Opened { stream, protocol })
        }
        Err(error) => {
            handshake.outcome = FAILED;
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
    }
}

/// Answers HTTP without TLS: all methods begin with a capital letter, and no handshake does.
async fn reject_plain_http<S: AsyncRead + AsyncWrite + Unpin>(mut stream: BufReader<S>) {
    let problem = Problem::new(
        ProblemType::MalformedRequest,
        "this port requires TLS; use an https:// address",
    );
    // Text and numbers always serialize.
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let response = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        Problem::MEDIA_TYPE,
        body.len()
    );
    if stream.write_all(response.as_bytes()).await.is_ok() && stream.shutdown().await.is_ok() {
        // Closing a socket with unread bytes resets it, and the client may lose the response
        // (RFC 9112, 9.6).
        copy(&mut stream, &mut sink()).await.ok();
    }
}

/// A handshake in progress, whose outcome is counted when it is dropped.
struct Handshake<'a> {
    handshakes: &'a Outcomes,
    outcome: &'static str,
}

impl Drop for Handshake<'_> {
    fn drop(&mut self) {
        self.handshakes.count(self.outcome);
    }
}
