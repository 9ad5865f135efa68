//! A persistent connection with one request in flight.

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use doorman_bench::read_response;

/// A connection whose requests carry one token.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    headers: String,
    request: Vec<u8>,
    response: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(server: SocketAddr, token: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self {
            stream,
            headers: format!("host: 127.0.0.1\r\nauthorization: Bearer {token}\r\n"),
            request: Vec::new(),
            response: vec![0; 4 * 1024 * 1024],
        })
    }

    /// Returns the body of a successful response.
    pub(crate) fn get(&mut self, path: &str) -> io::Result<&[u8]> {
        let head = format!("GET {path} HTTP/1.1\r\n{}\r\n", self.headers);
        self.exchange(&head, &[])
    }

    /// Sends a JSON body.
    pub(crate) fn post(&mut self, path: &str, body: &[u8]) -> io::Result<&[u8]> {
        let head = format!(
            "POST {path} HTTP/1.1\r\n{}content-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            self.headers,
            body.len()
        );
        self.exchange(&head, body)
    }

    fn exchange(&mut self, head: &str, body: &[u8]) -> io::Result<&[u8]> {
        self.request.clear();
        self.request.extend_from_slice(head.as_bytes());
        self.request.extend_from_slice(body);
        self.stream.write_all(&self.request)?;
        let body = read_response(&mut self.stream, &mut self.response)?;
        Ok(self.response.get(body).unwrap_or_default())
    }
}
