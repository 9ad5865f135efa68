//! A connection that stays open, with one request under way at a time.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// A connection in the name of one token.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    authorization: String,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(server: SocketAddr, token: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self {
            stream,
            authorization: format!("host: 127.0.0.1\r\nauthorization: Bearer {token}\r\n"),
            request: Vec::new(),
            answer: vec![0; 4 * 1024 * 1024],
        })
    }

    /// Asks for what is at a path; the body of the answer, which must be a success.
    pub(crate) fn get(&mut self, path: &str) -> io::Result<&[u8]> {
        let head = format!("GET {path} HTTP/1.1\r\n{}\r\n", self.authorization);
        self.request.clear();
        self.request.extend_from_slice(head.as_bytes());
        self.exchange()
    }

    /// Sends a body of JSON.
    pub(crate) fn post(&mut self, path: &str, body: &[u8]) -> io::Result<&[u8]> {
        let head = format!(
            "POST {path} HTTP/1.1\r\n{}content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.authorization,
            body.len()
        );
        self.request.clear();
        self.request.extend_from_slice(head.as_bytes());
        self.request.extend_from_slice(body);
        self.exchange()
    }

    fn exchange(&mut self) -> io::Result<&[u8]> {
        self.stream.write_all(&self.request)?;
        let mut filled = 0;
        let mut parts = None;
        loop {
            if parts.is_none() {
                parts = lengths(self.answer.get(..filled).unwrap_or_default())?;
            }
            if let Some((head, body)) = parts
                && filled >= head + body
            {
                return Ok(self.answer.get(head..head + body).unwrap_or_default());
            }
            let room = self.answer.get_mut(filled..).unwrap_or_default();
            match self.stream.read(room)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
    }
}

/// How long the head of an answer is, and its body; `None` while the head is not there.
fn lengths(begun: &[u8]) -> io::Result<Option<(usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(begun).map_err(io::Error::other)? else {
        return Ok(None);
    };
    if head.code != Some(200) {
        return Err(io::Error::other(
            String::from_utf8_lossy(begun).into_owned(),
        ));
    }
    let body = head
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .and_then(|header| str::from_utf8(header.value).ok()?.parse::<usize>().ok())
        .ok_or_else(|| io::Error::other("an answer without a length"))?;
    Ok(Some((length, body)))
}
