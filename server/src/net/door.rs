//! How a listener is closed without resetting anybody.
//!
//! Closing a listener resets the connections that wait in its queue, and a client may have connected, and sent a request, since the last
//! look at it. So first the system is told to let no further TCP handshake begin; then those under way are waited for, and all that is in
//! the queue is accepted; only then does the listener close. To a client that connects meanwhile its packet seems lost: it sends it again
//! a second later, and is refused.

use std::{io, net::SocketAddr, time::Duration};

#[cfg(target_os = "linux")]
use socket2::{SockFilter, SockRef};
use tokio::net::{TcpListener, TcpStream};

/// How long to wait for TCP handshakes under way: for a packet to the other side of the world and back, with some time for queues. A client
/// whose packets take longer believes that it is connected, and is reset.
pub(super) const HANDSHAKE: Duration = Duration::from_millis(500);

/// A classic BPF program over TCP headers (Linux, Documentation/networking/filter.rst) that drops what begins a handshake. Connections
/// that are accepted later inherit it, and no packet of theirs is one of those.
#[cfg(target_os = "linux")]
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

/// Lets no further TCP handshake begin, on Linux. Other systems cannot do that: there a client may be reset that connects just now.
#[cfg_attr(
    not(target_os = "linux"),
    expect(unused_variables, reason = "no other system has the filter")
)]
pub(super) fn lets_nobody_come(listener: &TcpListener) {
    #[cfg(target_os = "linux")]
    if let Err(error) = SockRef::from(listener).attach_filter(&NO_SYN) {
        tracing::debug!(%error, "handshakes cannot be kept from beginning");
    }
}

/// Closes the listener, once everybody in its queue has been taken in.
pub(super) fn close(listener: TcpListener, mut take_in: impl FnMut((TcpStream, SocketAddr))) {
    // The runtime knows of a connection only a moment after the system.
    let all = listener.into_std().and_then(|listener| {
        all_of(
            || listener.accept(),
            |(stream, peer)| {
                stream.set_nonblocking(true)?;
                take_in((TcpStream::from_std(stream)?, peer));
                Ok(())
            },
        )
    });
    if let Err(error) = all {
        tracing::warn!(%error, "who waited to be taken in is cut off");
    }
}

/// Takes in until nobody waits any more. Who has gone meanwhile does not keep the others out.
fn all_of<T>(
    mut next: impl FnMut() -> io::Result<T>,
    mut take_in: impl FnMut(T) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        match next() {
            Ok(connected) => take_in(connected)?,
            Err(error) if is_of_the_peer(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Whether an error of the listener speaks of one connection alone.
pub(super) fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_gone_before_it_is_taken_in_keeps_nobody_else_out() {
        let gone = || Err(io::ErrorKind::ConnectionAborted.into());
        let mut waiting = vec![Ok(1), gone(), Ok(2), gone(), gone(), Ok(3)].into_iter();
        let mut taken_in = Vec::new();
        let all = all_of(
            || {
                waiting
                    .next()
                    .unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
            },
            |it| {
                taken_in.push(it);
                Ok(())
            },
        );
        assert!(all.is_ok());
        assert_eq!(taken_in, [1, 2, 3]);
    }
}
