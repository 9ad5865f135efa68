//! One keep-alive HTTP/1.1 connection: a request, its response, the next request.
//!
//! Hand-written, because a general client costs more CPU than the service that it measures.

use std::io;

use bytes::BytesMut;
use httparse::{EMPTY_HEADER, Header, Response, Status};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::Target;

const MAX_HEADERS: usize = 64;

#[derive(Debug)]
pub(super) struct Connection {
    target: Target,
    request: Box<str>,
    stream: Option<TcpStream>,
    received: BytesMut,
}

impl Connection {
    pub(super) fn new(target: Target) -> Self {
        let (host, path) = (target.address(), target.path());
        Self {
            target,
            request: format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").into(),
            stream: None,
            received: BytesMut::with_capacity(4096),
        }
    }

    /// Sends one request, and returns the status of the response.
    ///
    /// # Errors
    /// Network errors, and `InvalidData` for a malformed response. The next request then uses a new
    /// connection.
    pub(super) async fn get(&mut self) -> io::Result<u16> {
        if let Some(stream) = self.stream.take() {
            match self.exchange(stream).await {
                // The service may have closed an idle connection: retry on a new one.
                Err(error) if self.received.is_empty() && is_closed(&error) => {}
                result => return result,
            }
        }
        let stream = TcpStream::connect(self.target.address()).await?;
        self.exchange(stream).await
    }

    /// Keeps the stream only after a complete response.
    async fn exchange(&mut self, mut stream: TcpStream) -> io::Result<u16> {
        self.received.clear();
        stream.write_all(self.request.as_bytes()).await?;
        let mut head = None;
        loop {
            if head.is_none() {
                head = Head::parse(&self.received)?;
            }
            if let Some(Head { status, length }) = head {
                if self.received.len() == length {
                    self.stream = Some(stream);
                    return Ok(status);
                }
                if self.received.len() > length {
                    return Err(invalid("more bytes than one response"));
                }
            }
            if stream.read_buf(&mut self.received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    status: u16,
    /// Bytes of the whole response, head and body.
    length: usize,
}

impl Head {
    /// Parses what has arrived so far; `None` while the head is incomplete.
    ///
    /// # Errors
    /// `InvalidData` for anything but HTTP/1, and for a response without `Content-Length`.
    fn parse(received: &[u8]) -> io::Result<Option<Self>> {
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        let mut response = Response::new(&mut headers);
        let Status::Complete(head) = response.parse(received).map_err(invalid)? else {
            return Ok(None);
        };
        let body = content_length(response.headers).ok_or_else(|| invalid("no content-length"))?;
        Ok(Some(Self {
            status: response.code.unwrap_or_default(),
            length: head.saturating_add(body),
        }))
    }
}

fn content_length(headers: &[Header<'_>]) -> Option<usize> {
    let header = headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))?;
    str::from_utf8(header.value).ok()?.trim().parse().ok()
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_is_parsed_once_it_is_complete() {
        let response =
            b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 5\r\nretry-after: 1\r\n\r\nlimit";
        let complete = response.len() - 5;
        for received in 0..complete {
            assert_eq!(Head::parse(&response[..received]).unwrap(), None);
        }
        for received in complete..=response.len() {
            let head = Head {
                status: 429,
                length: response.len(),
            };
            assert_eq!(Head::parse(&response[..received]).unwrap(), Some(head));
        }
    }

    #[test]
    fn response_without_length_is_invalid() {
        for response in [
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            "SSH-2.0-OpenSSH_9.9\r\n\r\n",
        ] {
            assert!(Head::parse(response.as_bytes()).is_err(), "{response}");
        }
    }
}
