//! HTTP/1.1 without a library, which might retry requests on its own.

use std::{io, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::sleep,
};

use super::{Outcome, Report, Stream, Traffic, parse_response};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientKind {
    /// One request after the other on one connection.
    Steady,
    /// As `Steady`, for a hundred resources at a time.
    Large,
    /// As `Steady`, with bodies in pieces.
    Slow,
    /// Three requests at a time on one connection.
    Pipelined,
    /// A new connection per request.
    Fresh,
    /// A pause after each request.
    Paced,
    /// One request, then an idle connection.
    Idle,
}

impl ClientKind {
    pub(super) const ALL: [Self; 7] = [
        Self::Steady,
        Self::Large,
        Self::Slow,
        Self::Pipelined,
        Self::Fresh,
        Self::Paced,
        Self::Idle,
    ];
}

/// A persistent connection.
struct Connection {
    stream: Box<dyn Stream>,
    unread: Vec<u8>,
    /// The server has closed the connection, or announced to.
    closing: bool,
}

/// Sends requests until connections are refused.
pub(super) async fn run(traffic: Arc<Traffic>, mut report: Report, kind: ClientKind) -> Report {
    loop {
        let mut connection = match traffic.connect("http/1.1").await {
            Ok(Some(stream)) => Connection {
                stream,
                unread: Vec::new(),
                closing: false,
            },
            Ok(None) => return report,
            Err(error) => {
                report.failed.push(error);
                return report;
            }
        };
        while !connection.check_closed() {
            if let Err(error) = send_request(&traffic, &mut report, kind, &mut connection).await {
                report.failed.push(error);
                break;
            }
            match kind {
                ClientKind::Fresh => break,
                ClientKind::Paced => sleep(Duration::from_millis(60)).await,
                ClientKind::Idle => {
                    if let Err(error) = connection.stream.read(&mut [0; 1]).await {
                        report.failed.push(format!("while idle: {error}"));
                    }
                    break;
                }
                ClientKind::Steady
                | ClientKind::Large
                | ClientKind::Slow
                | ClientKind::Pipelined => {}
            }
        }
    }
}

async fn send_request(
    traffic: &Traffic,
    report: &mut Report,
    kind: ClientKind,
    connection: &mut Connection,
) -> Result<(), String> {
    let count = if kind == ClientKind::Pipelined { 3 } else { 1 };
    let body = report.next_body(if kind == ClientKind::Large { 99 } else { 0 });
    let request = format!(
        "POST /v1/capacity HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        traffic.address,
        body.len()
    );
    let request = request.repeat(count);
    let sent = if kind == ClientKind::Slow {
        let (first, rest) = request.split_at(request.len() - body.len());
        let (second, third) = rest.split_at(rest.len() / 2);
        connection.send(&[first, second, third]).await
    } else {
        connection.send(&[&request]).await
    };
    match sent {
        Ok(true) => {}
        Ok(false) => {
            traffic.record(report, Ok(Outcome::Unprocessed));
            return Ok(());
        }
        Err(error) => return Err(format!("in the middle of a request: {error}")),
    }
    for _ in 0..count {
        let outcome = if connection.closing {
            Ok(Outcome::Unprocessed)
        } else {
            connection.response().await
        };
        traffic.record(report, outcome);
    }
    Ok(())
}

impl Connection {
    /// Whether the connection has ended, or the server announced its end.
    fn check_closed(&mut self) -> bool {
        // Between requests nothing but the end of the stream can arrive.
        let read = self.stream.read(&mut [0; 1]).now_or_never();
        self.closing |= matches!(read, Some(Ok(_)));
        self.closing
    }

    /// Sends a request in pieces; `false` when the first of them cannot be sent.
    async fn send(&mut self, pieces: &[&str]) -> io::Result<bool> {
        for (n, piece) in pieces.iter().enumerate() {
            if n > 0 {
                sleep(Duration::from_millis(3)).await;
            }
            let sent = async {
                self.stream.write_all(piece.as_bytes()).await?;
                self.stream.flush().await
            };
            let sent = sent.await;
            if n == 0 && sent.is_err() {
                self.closing = true;
                return Ok(false);
            }
            sent?;
        }
        Ok(true)
    }

    /// The outcome of the next complete response.
    async fn response(&mut self) -> Result<Outcome, String> {
        loop {
            if let Some(outcome) = self.take_response()? {
                return Ok(outcome);
            }
            match self.stream.read_buf(&mut self.unread).await {
                Ok(0) => {
                    self.closing = true;
                    let len = self.unread.len();
                    return Err(format!("closed after {len} bytes of a response"));
                }
                Ok(_) => {}
                Err(error) => {
                    self.closing = true;
                    let len = self.unread.len();
                    return Err(format!("{error} after {len} bytes of a response"));
                }
            }
        }
    }

    /// Takes a response off the buffer; `None` when it is incomplete.
    fn take_response(&mut self) -> Result<Option<Outcome>, String> {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Response::new(&mut headers);
        let parsed = head.parse(&self.unread).map_err(|error| error.to_string());
        let httparse::Status::Complete(head_len) = parsed? else {
            return Ok(None);
        };
        let value = |name: &str| {
            let named = head
                .headers
                .iter()
                .find(|it| it.name.eq_ignore_ascii_case(name));
            named.and_then(|it| std::str::from_utf8(it.value).ok())
        };
        let body_len: usize = value("content-length")
            .and_then(|it| it.parse().ok())
            .ok_or("a response without a length")?;
        let len = head_len + body_len;
        let Some(body) = self.unread.get(head_len..len) else {
            return Ok(None);
        };
        self.closing = value("connection") == Some("close");
        let outcome = parse_response(head.code.unwrap_or_default(), body)?;
        self.unread.drain(..len);
        Ok(Some(outcome))
    }
}
