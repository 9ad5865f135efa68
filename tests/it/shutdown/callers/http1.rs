//! HTTP/1.1 by hand: no library that would ask once more behind our back.

use std::{io, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::sleep,
};

use super::{Fate, Report, Stream, Traffic, granted};

/// How a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Manner {
    /// One request after the other, on one connection.
    Steady,
    /// The same, for a hundred resources at a time.
    Large,
    /// The same, and its bodies come in pieces.
    Slow,
    /// Three requests at a time, without waiting for the answers.
    Pipelined,
    /// Each request on a connection of its own.
    Fresh,
    /// With a pause after each request.
    Seldom,
    /// Asks once, and is idle.
    Idle,
}

impl Manner {
    pub(in super::super) const ALL: [Self; 7] = [
        Self::Steady,
        Self::Large,
        Self::Slow,
        Self::Pipelined,
        Self::Fresh,
        Self::Seldom,
        Self::Idle,
    ];
}

/// A connection that is kept alive.
struct Connection {
    stream: Box<dyn Stream>,
    unread: Vec<u8>,
    /// The server has said that it ends.
    ends: bool,
}

/// Asks until connections are refused.
pub(super) async fn call(traffic: Arc<Traffic>, mut client: Report, manner: Manner) -> Report {
    loop {
        let mut connection = match traffic.connect("http/1.1").await {
            Ok(Some(stream)) => Connection {
                stream,
                unread: Vec::new(),
                ends: false,
            },
            Ok(None) => return client,
            Err(error) => {
                client.failed.push(error);
                return client;
            }
        };
        while !connection.has_ended() {
            if let Err(error) = ask(&traffic, &mut client, manner, &mut connection).await {
                client.failed.push(error);
                break;
            }
            match manner {
                Manner::Fresh => break,
                Manner::Seldom => sleep(Duration::from_millis(60)).await,
                Manner::Idle => {
                    if let Err(error) = connection.stream.read(&mut [0; 1]).await {
                        client.failed.push(format!("while idle: {error}"));
                    }
                    break;
                }
                Manner::Steady | Manner::Large | Manner::Slow | Manner::Pipelined => {}
            }
        }
    }
}

async fn ask(
    traffic: &Traffic,
    client: &mut Report,
    manner: Manner,
    connection: &mut Connection,
) -> Result<(), String> {
    let together = if manner == Manner::Pipelined { 3 } else { 1 };
    let body = client.asks(if manner == Manner::Large { 99 } else { 0 });
    let request = format!(
        "POST /v1/capacity HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        traffic.address,
        body.len()
    );
    let request = request.repeat(together);
    let taken = if manner == Manner::Slow {
        let (first, rest) = request.split_at(request.len() - body.len());
        let (second, third) = rest.split_at(rest.len() / 2);
        connection.send(&[first, second, third]).await
    } else {
        connection.send(&[&request]).await
    };
    match taken {
        Ok(true) => {}
        Ok(false) => {
            traffic.note(client, Ok(Fate::NotTaken));
            return Ok(());
        }
        Err(error) => return Err(format!("in the middle of a request: {error}")),
    }
    for _ in 0..together {
        let fate = if connection.ends {
            Ok(Fate::NotTaken)
        } else {
            connection.answer().await
        };
        traffic.note(client, fate);
    }
    Ok(())
}

impl Connection {
    /// Whether the server has said that it ends.
    fn has_ended(&mut self) -> bool {
        // Whatever comes without having been asked for is the end.
        let come = self.stream.read(&mut [0; 1]).now_or_never();
        self.ends |= matches!(come, Some(Ok(_)));
        self.ends
    }

    /// Sends a request in pieces; whether any of it was taken.
    async fn send(&mut self, pieces: &[&str]) -> io::Result<bool> {
        for (at, piece) in pieces.iter().enumerate() {
            if at > 0 {
                sleep(Duration::from_millis(3)).await;
            }
            let sent = async {
                self.stream.write_all(piece.as_bytes()).await?;
                self.stream.flush().await
            };
            let sent = sent.await;
            if at == 0 && sent.is_err() {
                self.ends = true;
                return Ok(false);
            }
            sent?;
        }
        Ok(true)
    }

    /// The next answer, whole.
    async fn answer(&mut self) -> Result<Fate, String> {
        loop {
            if let Some(fate) = self.take()? {
                return Ok(fate);
            }
            match self.stream.read_buf(&mut self.unread).await {
                Ok(0) => {
                    self.ends = true;
                    let len = self.unread.len();
                    return Err(format!("closed after {len} bytes of an answer"));
                }
                Ok(_) => {}
                Err(error) => {
                    self.ends = true;
                    let len = self.unread.len();
                    return Err(format!("{error} after {len} bytes of an answer"));
                }
            }
        }
    }

    /// Takes the answer that is there; `None` when it is not whole.
    fn take(&mut self) -> Result<Option<Fate>, String> {
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
            .ok_or("an answer without its length")?;
        let len = head_len + body_len;
        let Some(body) = self.unread.get(head_len..len) else {
            return Ok(None);
        };
        self.ends = value("connection") == Some("close");
        let fate = granted(head.code.unwrap_or_default(), body)?;
        self.unread.drain(..len);
        Ok(Some(fate))
    }
}
