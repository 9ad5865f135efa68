//! A connection on which nothing is under way: a socket, and next to nothing beside it.

use std::{
    io,
    task::{Context, Poll, ready},
};

use tokio::io::AsyncRead;

use super::watched::Watched;

/// What an HTTP/2 connection begins with (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How many bytes are read ahead at a time: all that is needed to tell the protocols apart.
const AHEAD: usize = PREFACE.len();

/// What a peer speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    Http1,
    Http2,
}

/// Waits until there is something to serve, in what protocol; `None` at the end of the stream. What is `known` of the protocol stays
/// true. What was read is ahead in the stream.
pub(super) fn poll<S: AsyncRead + Unpin>(
    stream: &mut Watched<S>,
    known: Option<Speaks>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Option<Speaks>>> {
    loop {
        if let Some(speaks) = speaks(stream.ahead(), known) {
            return Poll::Ready(Ok(Some(speaks)));
        }
        if ready!(stream.poll_ahead::<AHEAD>(cx))? == 0 {
            // Who has begun is told by hyper what is wrong with it.
            let begun = !stream.ahead().is_empty();
            return Poll::Ready(Ok(begun.then_some(Speaks::Http1)));
        }
    }
}

/// What is spoken by who begins so; `None` as long as that is open.
fn speaks(begin: &[u8], known: Option<Speaks>) -> Option<Speaks> {
    if begin.is_empty() {
        return None;
    }
    if known.is_some() {
        return known;
    }
    if begin.starts_with(PREFACE) {
        return Some(Speaks::Http2);
    }
    (!PREFACE.starts_with(begin)).then_some(Speaks::Http1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http2_is_told_by_its_whole_preface() {
        for (begin, spoken) in [
            (&b""[..], None),
            (b"P", None),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", None),
            (PREFACE, Some(Speaks::Http2)),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore", Some(Speaks::Http2)),
            (b"G", Some(Speaks::Http1)),
            (b"PO", Some(Speaks::Http1)),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rx", Some(Speaks::Http1)),
        ] {
            assert_eq!(speaks(begin, None), spoken, "{begin:?}");
        }
        assert_eq!(speaks(b"P", Some(Speaks::Http1)), Some(Speaks::Http1));
        assert_eq!(speaks(b"", Some(Speaks::Http1)), None);
    }
}
