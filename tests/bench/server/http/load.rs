//! The load: on each of some dozen connections always one request under way.
//!
//! The connections are served in a circle by one thread that blocks. While it waits for one answer, those to the others are being made:
//! it does less work for a request than the server, so that the server never waits for it.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use crate::requests::Requests;

/// How many connections there are.
const CONNECTIONS: usize = 48;

/// Connections that stay open, and what is sent on them.
#[derive(Debug)]
pub(crate) struct Load {
    streams: Vec<TcpStream>,
    requests: Requests,
    answer: Vec<u8>,
}

impl Load {
    pub(crate) fn connect(server: SocketAddr, requests: Requests) -> io::Result<Self> {
        let connect = |_| {
            let stream = TcpStream::connect(server)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            Ok(stream)
        };
        Ok(Self {
            streams: (0..CONNECTIONS).map(connect).collect::<io::Result<_>>()?,
            requests,
            answer: vec![0; 1024 * 1024],
        })
    }

    /// Sends so many requests, or a few more, as fast as they are answered.
    pub(crate) fn send(&mut self, requests: usize) -> io::Result<()> {
        self.run(|sent| sent < requests).map(drop)
    }

    /// Sends for so long, as fast as it is answered. Returns how many requests were answered, and how long it took.
    #[expect(
        clippy::disallowed_methods,
        reason = "a stretch of work is measured, not the length of a lease"
    )]
    pub(crate) fn send_for(&mut self, length: Duration) -> io::Result<(usize, Duration)> {
        let began = Instant::now();
        let answered = self.run(|_| began.elapsed() < length)?;
        Ok((answered, began.elapsed()))
    }

    /// Goes round the connections while `goes_on`, which is told how many requests have been sent. Returns how many were answered.
    fn run(&mut self, goes_on: impl Fn(usize) -> bool) -> io::Result<usize> {
        let Self {
            streams,
            requests,
            answer,
        } = self;
        for stream in &mut *streams {
            stream.write_all(requests.next())?;
        }
        let mut answered = 0_usize;
        loop {
            let last = !goes_on(answered + streams.len());
            for stream in &mut *streams {
                read_answer(stream, answer)?;
                answered += 1;
                if !last {
                    stream.write_all(requests.next())?;
                }
            }
            if last {
                return Ok(answered);
            }
        }
    }
}

/// Reads one answer, which must be a success.
fn read_answer(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    let mut whole = None;
    while whole.is_none_or(|whole| filled < whole) {
        let room = buffer.get_mut(filled..).unwrap_or_default();
        match stream.read(room)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
        if whole.is_none() {
            whole = length(buffer.get(..filled).unwrap_or_default())?;
        }
    }
    Ok(())
}

/// How long an answer is with its head; `None` while the head is not there.
fn length(begun: &[u8]) -> io::Result<Option<usize>> {
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head_length) = head.parse(begun).map_err(io::Error::other)?
    else {
        return Ok(None);
    };
    if head.code != Some(200) {
        let text = String::from_utf8_lossy(begun).into_owned();
        return Err(io::Error::other(text));
    }
    let body_length = head
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .and_then(|header| str::from_utf8(header.value).ok()?.parse::<usize>().ok())
        .ok_or_else(|| io::Error::other("an answer without a length"))?;
    Ok(Some(head_length + body_length))
}
