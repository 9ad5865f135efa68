//! The way in, when nobody is to come any more.
//!
//! A listener that is closed resets the connections that wait in it, and somebody may have connected, and asked, since the last look at
//! it. So first the system is told to let no further handshake begin, then those under way are waited for, and who is within is taken
//! in; only then does it close. Whoever knocks meanwhile knocks again a second later, as after a lost packet, and is turned away.

use std::{io, net::SocketAddr, time::Duration};

#[cfg(target_os = "linux")]
use socket2::{SockFilter, SockRef};
use tokio::net::{TcpListener, TcpStream};

/// How long to wait for handshakes under way: to the peer and back, around the world, with some time for queues on the way. Who is further
/// away believes that it is connected, and would be reset.
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

/// Lets no further handshake begin, on Linux. Where the system cannot do that, somebody may still be lost between the last look and the end.
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

/// Closes the listener, once everybody who is within has been taken in.
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
