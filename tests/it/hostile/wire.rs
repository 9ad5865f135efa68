//! Bytes to the server, and bytes from it.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{ControlPlane, TIMEOUT};

/// The status and the body of an answer.
pub(super) type Answer = (u16, String);

pub(super) const JSON: &str = "content-type: application/json\r\n";

/// The beginning of a head; what is missing is the length of the body, and the end.
pub(super) const HEAD: &str =
    "POST /v1/capacity HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";

/// Makes room for as many connections as this process may have, and says how many that is, with some files to spare.
pub(super) fn connections() -> usize {
    let open_files = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: open_files.maximum,
        ..open_files
    };
    setrlimit(Resource::Nofile, all).expect("up to the hard limit");
    let most = open_files.maximum.unwrap_or(u64::MAX).saturating_sub(512);
    usize::try_from(most).unwrap_or(usize::MAX)
}

pub(super) fn address(server: &ControlPlane) -> SocketAddr {
    let address = server.address().trim_start_matches("http://");
    address.parse().expect("an address and a port")
}

pub(super) fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).expect("it listens");
    patient(stream)
}

/// The same, which never blocks for ever.
pub(super) fn patient(stream: TcpStream) -> TcpStream {
    let patience = Some(TIMEOUT);
    stream.set_read_timeout(patience).expect("not zero");
    stream.set_write_timeout(patience).expect("not zero");
    stream.set_nodelay(true).expect("a socket");
    stream
}

/// Sends these bytes, and reads until the server closes the connection.
pub(super) fn exchange(at: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = connect(at);
    stream.write_all(bytes).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    parse(&answer)
}

/// What a server says that then closes the connection, perhaps before it has read everything.
pub(super) fn last_words(stream: &mut TcpStream) -> Answer {
    let mut answer = Vec::new();
    // The connection may end with a reset, since there is more that nobody reads.
    drop(stream.read_to_end(&mut answer));
    parse(&answer)
}

fn parse(answer: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    (status.expect("a status"), body.to_owned())
}

/// A whole request, after which the connection is closed.
pub(super) fn post(content_type: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    format!(
        "POST /v1/capacity HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{content_type}content-length: {len}\r\n\r\n{body}"
    )
    .into_bytes()
}

pub(super) fn asking(resource: &str) -> String {
    format!(r#"{{"client_id": "c", "resources": [{resource}]}}"#)
}
