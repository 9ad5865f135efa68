//! HTTP/1.1 as bytes.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{ControlPlane, TIMEOUT};

/// Status and body of a response.
pub(super) type Response = (u16, String);

pub(super) const JSON: &str = "content-type: application/json\r\n";

/// The head of a request, without the length of its body and the empty line.
pub(super) const HEAD: &str =
    "POST /v1/capacity HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";

/// Raises the limit of open files to the hard limit, and returns how many connections that allows.
pub(super) fn raise_file_limit() -> usize {
    let open_files = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: open_files.maximum,
        ..open_files
    };
    setrlimit(Resource::Nofile, raised).expect("up to the hard limit");
    let connections = open_files.maximum.unwrap_or(u64::MAX).saturating_sub(512);
    usize::try_from(connections).unwrap_or(usize::MAX)
}

pub(super) fn address(server: &ControlPlane) -> SocketAddr {
    let address = server.address().trim_start_matches("http://");
    address.parse().expect("an address and a port")
}

pub(super) fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).expect("it listens");
    set_timeouts(&stream);
    stream
}

pub(super) fn set_timeouts(stream: &TcpStream) {
    stream.set_read_timeout(Some(TIMEOUT)).expect("not zero");
    stream.set_write_timeout(Some(TIMEOUT)).expect("not zero");
    stream.set_nodelay(true).expect("a socket");
}

/// Sends these bytes, and reads until the server closes the connection.
pub(super) fn exchange(at: SocketAddr, bytes: &[u8]) -> Response {
    let mut stream = connect(at);
    stream.write_all(bytes).expect("the server reads");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("a response");
    parse(&response)
}

/// Reads the response of a server that may close the connection before it has read everything.
pub(super) fn early_response(stream: &mut TcpStream) -> Response {
    let mut response = Vec::new();
    // Unread bytes at the server reset the connection.
    drop(stream.read_to_end(&mut response));
    parse(&response)
}

fn parse(response: &[u8]) -> Response {
    let text = String::from_utf8_lossy(response);
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    (status.expect("a status"), body.to_owned())
}

/// A request after which the server closes the connection.
pub(super) fn post(content_type: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    format!(
        "POST /v1/capacity HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{content_type}\
         content-length: {len}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The body of a request for this resource, given as JSON.
pub(super) fn capacity_request(resource: &str) -> String {
    format!(r#"{{"client_id": "c", "resources": [{resource}]}}"#)
}
