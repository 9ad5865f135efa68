//! One keep-alive connection: a request, then its answer, then the next.
//!
//! Written by hand, because a client that costs more than the service would measure itself.

use std::io;

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    answer::{Answer, invalid},
    target::Target,
};

#[derive(Debug)]
pub(super) struct Connection {
    target: Target,
    request: Box<str>,
    stream: Option<TcpStream>,
    received: BytesMut,
}

impl Connection {
    pub(super) fn new(target: Target) -> Self {
        let host = target.address();
        Self {
            target,
            request: format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").into(),
            stream: None,
            received: BytesMut::with_capacity(4096),
        }
    }

    /// Sends one request, and gives the status of the answer.
    ///
    /// # Errors
    /// Those of the network, and `InvalidData` for an answer that is none. The next request goes over a new connection.
    pub(super) async fn get(&mut self) -> io::Result<u16> {
        if let Some(stream) = self.stream.take() {
            match self.exchange(stream).await {
                // A service may close a connection that has been idle; only a new one tells whether it is there.
                Err(error) if self.received.is_empty() && is_closed(&error) => {}
                answered => return answered,
            }
        }
        let stream = TcpStream::connect(self.target.address()).await?;
        self.exchange(stream).await
    }

    /// Keeps the stream only after a whole answer, so that nobody reads the rest of a broken one.
    async fn exchange(&mut self, mut stream: TcpStream) -> io::Result<u16> {
        self.received.clear();
        stream.write_all(self.request.as_bytes()).await?;
        let mut answer = None;
        loop {
            if answer.is_none() {
                answer = Answer::read(&self.received)?;
            }
            match answer {
                Some(whole) if self.received.len() == whole.bytes => {
                    self.stream = Some(stream);
                    return Ok(whole.status);
                }
                Some(whole) if self.received.len() > whole.bytes => {
                    return Err(invalid("more than the answer"));
                }
                Some(_) | None => {}
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
