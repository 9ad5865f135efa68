//! A persistent HTTP connection, whose requests are sent and whose responses are read separately.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// A response.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The status line and the header fields.
    pub headers: String,
    /// The body.
    pub body: String,
}

/// A connection to a base address.
#[derive(Debug)]
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Connects. Nothing waits longer than `limit`.
    ///
    /// # Errors
    /// If nobody listens.
    pub fn open(address: &str, limit: Duration) -> io::Result<Self> {
        let address = address.trim_start_matches("http://");
        let address = address.parse().map_err(io::Error::other)?;
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a request; with a body of JSON, it is a POST.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn send(&mut self, path: &str, body: Option<&str>) -> io::Result<()> {
        let method = if body.is_some() { "POST" } else { "GET" };
        let body = body.unwrap_or_default();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        self.0.get_mut().write_all(request.as_bytes())
    }

    /// Reads the next response, whose length must be stated.
    ///
    /// # Errors
    /// If none arrives in time, or it is not HTTP.
    pub fn receive(&mut self) -> io::Result<Response> {
        let mut headers = String::new();
        while !headers.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut headers)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let status = headers.split(' ').nth(1).and_then(|it| it.parse().ok());
        let mut lines = headers.lines();
        let length = lines.find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let (Some(status), Some(length)) = (status, length) else {
            return Err(io::Error::other(format!("unexpected response: {headers}")));
        };
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        let body = String::from_utf8(body).map_err(io::Error::other)?;
        Ok(Response {
            status,
            headers,
            body,
        })
    }
}

/// Sends one request on a new connection, and returns its response.
///
/// # Errors
/// If no response arrives in time.
pub fn request(
    address: &str,
    path: &str,
    body: Option<&str>,
    limit: Duration,
) -> io::Result<Response> {
    let mut connection = Connection::open(address, limit)?;
    connection.send(path, body)?;
    connection.receive()
}
