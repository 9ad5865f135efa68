//! The way in, when nobody is to come any more.
//!
//! A listener that is closed resets the connections that wait in it, and somebody may have connected, and asked, since the last look at
//! it. So first the system is told to let no further handshake begin, then those under way are waited for, and who is within is taken
//! in; only then does it close. Whoever knocks meanwhile knocks again a second later, as after a lost packet, and is turned away.

use std::{io, net::SocketAddr, time::Duration};

use socket2::{SockFilter, SockRef};
use tokio::net::{TcpListener, TcpStream};

/// How long to wait for handshakes under way: a way to the peer and back.
pub(super) const HANDSHAKE: Duration = Duration::from_millis(100);

/// A classic BPF program over TCP headers (Linux, Documentation/networking/filter.rst) that drops what begins a handshake. Connections
/// that are accepted later inherit it, and no packet of theirs is one of those.
const NO_SYN: [SockFilter; 4] = [
    // The flags: ldb [13].
    SockFilter::new(0x30, 0, 0, 13),
    // SYN: jset #2.
    SockFilter::new(0x45, 0, 1, 0x02),
    // Drop: ret #0.
    SockFilter::new(0x06, 0, 0, 0),
    // Keep all of it: ret #-1.
    SockFilter::new(0x06, 0, 0, u32::MAX),
];

/// Lets no further handshake begin. Where the system cannot do that, somebody may still be lost between the last look and the end.
pub(super) fn lets_nobody_come(listener: &TcpListener) {
    if let Err(error) = SockRef::from(listener).attach_filter(&NO_SYN) {
        tracing::debug!(%error, "handshakes cannot be kept from beginning");
    }
}

/// Closes the listener, once everybody who is within has been taken in.
pub(super) fn close(listener: TcpListener, mut take_in: impl FnMut((TcpStream, SocketAddr))) {
    // The runtime knows of a connection only a moment after the system.
    let all = listener.into_std().and_then(|listener| {
        loop {
            let (stream, peer) = listener.accept()?;
            stream.set_nonblocking(true)?;
            take_in((TcpStream::from_std(stream)?, peer));
        }
    });
    match all {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => tracing::warn!(%error, "who waited to be taken in is cut off"),
        Ok(()) => {}
    }
}
