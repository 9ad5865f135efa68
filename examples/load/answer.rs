//! Reading an answer: how long it is, and what it says.

use std::io;

use httparse::{EMPTY_HEADER, Header, Response, Status};

const MOST_HEADERS: usize = 64;

/// What the head of an answer tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// The status code.
    pub(super) status: u16,
    /// Bytes of the whole answer, head and body.
    pub(super) bytes: usize,
}

impl Answer {
    /// Reads what has arrived so far; `None` while the head is not whole.
    ///
    /// # Errors
    /// `InvalidData` for what is not HTTP/1, or an answer that does not state the length of its body.
    pub(super) fn read(received: &[u8]) -> io::Result<Option<Self>> {
        let mut headers = [EMPTY_HEADER; MOST_HEADERS];
        let mut response = Response::new(&mut headers);
        let Status::Complete(head) = response.parse(received).map_err(invalid)? else {
            return Ok(None);
        };
        let body =
            content_length(response.headers).ok_or_else(|| invalid("no length of the body"))?;
        Ok(Some(Self {
            status: response.code.unwrap_or_default(),
            bytes: head.saturating_add(body),
        }))
    }
}

fn content_length(headers: &[Header<'_>]) -> Option<usize> {
    let stated = headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))?;
    str::from_utf8(stated.value).ok()?.trim().parse().ok()
}

pub(super) fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_status_and_the_length_once_the_head_is_whole() {
        let answer =
            b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 5\r\nretry-after: 1\r\n\r\nlimit";
        let head = answer.len() - 5;
        for arrived in 0..head {
            assert_eq!(Answer::read(&answer[..arrived]).unwrap(), None);
        }
        for arrived in head..=answer.len() {
            let read = Answer::read(&answer[..arrived]).unwrap();
            let whole = Answer {
                status: 429,
                bytes: answer.len(),
            };
            assert_eq!(read, Some(whole));
        }
    }

    #[test]
    fn refuses_what_it_cannot_delimit() {
        for answer in [
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            "SSH-2.0-OpenSSH_9.9\r\n\r\n",
        ] {
            assert!(Answer::read(answer.as_bytes()).is_err(), "{answer}");
        }
    }
}
