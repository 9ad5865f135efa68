//! How a connection is opened: at once, or by a handshake of TLS.

use std::sync::Arc;

use doorman_openapi::{Problem, ProblemType};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, copy, sink};
use tokio_rustls::TlsAcceptor;

use super::{encrypted::Encrypted, resting::Speaks};
use crate::net::tls::Tls;

/// A stream that requests can come on.
#[derive(Debug)]
pub(super) struct Opened<S> {
    pub(super) stream: S,
    /// What both sides have agreed to speak; `None` when nothing has been said of it.
    pub(super) speaks: Option<Speaks>,
}

impl<S> Opened<S> {
    /// A stream as it is.
    pub(super) fn plain(stream: S) -> Self {
        Self {
            stream,
            speaks: None,
        }
    }
}

/// Shakes hands by the certificate that is in force at the first byte. `None` when that fails: the peer is told why, as far as TLS has
/// a word for it. How long it may take is decided by who waits for it.
///
/// # Cancel safety
/// The connection breaks off when it is dropped.
pub(super) async fn encrypted<S>(tls: Arc<Tls>, stream: S) -> Option<Opened<Encrypted<S>>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let under_way = tls.handshakes().begins();
    // One byte tells the protocols apart, and everything after it passes by this buffer.
    let mut stream = BufReader::with_capacity(1, stream);
    let shaken = match stream.fill_buf().await {
        Ok([]) => Err(std::io::ErrorKind::UnexpectedEof.into()),
        Ok([first, ..]) if first.is_ascii_uppercase() => {
            under_way.fails();
            tracing::debug!("a request without TLS was refused");
            refuse_plain(stream).await;
            return None;
        }
        Ok(_) => TlsAcceptor::from(tls.config()).accept(stream).await,
        Err(error) => Err(error),
    };
    match shaken {
        Ok(stream) => {
            under_way.completes();
            let speaks = match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => Some(Speaks::Http2),
                Some(_) => Some(Speaks::Http1),
                None => None,
            };
            let stream = Encrypted::new(stream);
            Some(Opened { stream, speaks })
        }
        Err(error) => {
            under_way.fails();
            tracing::debug!(%error, "a TLS handshake failed");
            None
        }
    }
}

/// Tells somebody who speaks HTTP without TLS what is wrong: all methods begin with a capital letter, and no handshake does.
async fn refuse_plain<S: AsyncRead + AsyncWrite + Unpin>(mut stream: BufReader<S>) {
    let problem = Problem::new(
        ProblemType::MalformedRequest,
        "this port speaks TLS: ask for an address that begins with https://",
    );
    // It is built of text and numbers alone: writing it cannot fail.
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        Problem::MEDIA_TYPE,
        body.len()
    );
    if stream.write_all(answer.as_bytes()).await.is_ok() && stream.shutdown().await.is_ok() {
        // A socket that is closed with bytes unread is reset, which may take the answer back (RFC 9112, 9.6).
        copy(&mut stream, &mut sink()).await.ok();
    }
}
