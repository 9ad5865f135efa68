//! HTTP/1.1 responses on a blocking connection.

use std::{
    io::{self, Read},
    net::TcpStream,
    ops::Range,
};

/// Reads one response into the buffer, and returns the range of its body.
///
/// # Errors
/// If the connection fails, if the status is not 200, or if the response has no `content-length`.
pub fn read_response(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<Range<usize>> {
    let mut filled = 0;
    let mut body: Option<Range<usize>> = None;
    loop {
        if body.is_none() {
            body = parse_head(buffer.get(..filled).unwrap_or_default())?;
        }
        if let Some(body) = body.take_if(|body| filled >= body.end) {
            return Ok(body);
        }
        let free = buffer.get_mut(filled..).unwrap_or_default();
        match stream.read(free)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
}

/// The range of the body, or `None` if the head is incomplete.
fn parse_head(received: &[u8]) -> io::Result<Option<Range<usize>>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(start) = head.parse(received).map_err(io::Error::other)? else {
        return Ok(None);
    };
    if head.code != Some(200) {
        let text = String::from_utf8_lossy(received).into_owned();
        return Err(io::Error::other(text));
    }
    let length = head
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .and_then(|header| str::from_utf8(header.value).ok()?.parse::<usize>().ok())
        .ok_or_else(|| io::Error::other("response without content-length"))?;
    Ok(Some(start..start + length))
}
