//! Listening sockets: TCP and Unix.

use std::{
    fs::{self, Permissions},
    future::Future,
    io,
    net::SocketAddr,
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::UnixStream as StdUnixStream,
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

#[cfg(target_os = "linux")]
use socket2::{SockFilter, SockRef};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
};

use crate::util::peer::PeerAddr;

/// A listening socket.
pub(crate) trait Socket: Sized {
    type Address;
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts the next connection, with the address of its peer.
    ///
    /// # Cancel safety
    /// No connection is lost when it is dropped.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Option<PeerAddr>)>> + Send;

    /// Rejects new handshakes, so that the accept queue can be emptied. Closing a listener resets
    /// the connections in its queue, and their clients may have sent a request.
    fn reject_handshakes(&self);

    /// Accepts everything in the queue, then closes the socket.
    fn close(self, add: impl FnMut(Self::Stream, Option<PeerAddr>)) -> io::Result<()>;
}

impl Socket for TcpListener {
    type Address = SocketAddr;
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Option<PeerAddr>)> {
        let (stream, address) = Self::accept(self).await?;
        Ok((without_delay(stream), Some(PeerAddr::new(address.ip()))))
    }

    /// A client that connects now sends its SYN again a second later, and is refused. Only Linux
    /// has such a filter.
    fn reject_handshakes(&self) {
        #[cfg(target_os = "linux")]
        if let Err(error) = SockRef::from(self).attach_filter(&DROP_SYN) {
            tracing::debug!(%error, "cannot reject TCP handshakes");
        }
    }

    fn close(self, mut add: impl FnMut(TcpStream, Option<PeerAddr>)) -> io::Result<()> {
        // Without the runtime, which learns of a connection later than the system.
        let listener = self.into_std()?;
        accept_all(
            || listener.accept(),
            |(stream, address)| {
                stream.set_nonblocking(true)?;
                let stream = without_delay(TcpStream::from_std(stream)?);
                add(stream, Some(PeerAddr::new(address.ip())));
                Ok(())
            },
        )
    }
}

/// A response is one small write, which must not wait for more.
fn without_delay(stream: TcpStream) -> TcpStream {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    stream
}

/// A Unix socket, whose file is removed when it is closed.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    listener: UnixListener,
    file: SocketFile,
}

/// Removed once: later the path may be that of a successor.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    removed: AtomicBool,
}

impl UnixSocket {
    /// Binds a path. A socket file that nobody listens on is replaced.
    pub(super) fn bind(path: PathBuf, mode: u32) -> io::Result<Self> {
        remove_stale(&path)?;
        let listener = UnixListener::bind(&path)?;
        let file = SocketFile {
            path,
            removed: AtomicBool::new(false),
        };
        fs::set_permissions(&file.path, Permissions::from_mode(mode))?;
        Ok(Self { listener, file })
    }
}

/// Removes the socket file of a process that was killed.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    let refuses = || {
        let connected = StdUnixStream::connect(path);
        connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    if is_socket && refuses() {
        fs::remove_file(path)?;
    }
    Ok(())
}

impl SocketFile {
    fn remove(&self) {
        if !self.removed.swap(true, Relaxed)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::debug!(%error, "cannot remove the socket file");
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

impl Socket for UnixSocket {
    type Address = PathBuf;
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Option<PeerAddr>)> {
        let (stream, _) = self.listener.accept().await?;
        Ok((stream, None))
    }

    /// A client that connects now finds no file.
    fn reject_handshakes(&self) {
        self.file.remove();
    }

    fn close(self, mut add: impl FnMut(UnixStream, Option<PeerAddr>)) -> io::Result<()> {
        self.file.remove();
        let listener = self.listener.into_std()?;
        accept_all(
            || listener.accept(),
            |(stream, _)| {
                stream.set_nonblocking(true)?;
                add(UnixStream::from_std(stream)?, None);
                Ok(())
            },
        )
    }
}

/// A classic BPF program over TCP headers that drops SYN packets (Linux,
/// Documentation/networking/filter.rst). Accepted connections inherit it, and receive no SYN.
#[cfg(target_os = "linux")]
const DROP_SYN: [SockFilter; 4] = [
    // ldb [13]: the flags.
    SockFilter::new(0x30, 0, 0, 13),
    // jset #2: SYN.
    SockFilter::new(0x45, 0, 1, 0x02),
    // ret #0: drop.
    SockFilter::new(0x06, 0, 0, 0),
    // ret #-1: keep.
    SockFilter::new(0x06, 0, 0, u32::MAX),
];

/// Accepts until the queue is empty.
fn accept_all<T>(
    mut accept: impl FnMut() -> io::Result<T>,
    mut add: impl FnMut(T) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        match accept() {
            Ok(accepted) => add(accepted)?,
            Err(error) if is_connection_error(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

pub(super) fn is_connection_error(error: &io::Error) -> bool {
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
    fn aborted_connections_do_not_stop_accepting() {
        let aborted = || Err(io::ErrorKind::ConnectionAborted.into());
        let mut queue = vec![Ok(1), aborted(), Ok(2), aborted(), aborted(), Ok(3)].into_iter();
        let mut accepted = Vec::new();
        let emptied = accept_all(
            || {
                let empty = || Err(io::ErrorKind::WouldBlock.into());
                queue.next().unwrap_or_else(empty)
            },
            |it| {
                accepted.push(it);
                Ok(())
            },
        );
        assert!(emptied.is_ok());
        assert_eq!(accepted, [1, 2, 3]);
    }

    #[tokio::test]
    async fn stale_socket_file_is_replaced_and_a_live_one_is_not() {
        let home = tempfile::TempDir::new().unwrap();
        let path = home.path().join("agent.sock");
        // As after SIGKILL.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let first = UnixSocket::bind(path.clone(), 0o640).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let second = UnixSocket::bind(path.clone(), 0o600).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(!path.exists());
        fs::write(&path, "mine").unwrap();
        assert!(UnixSocket::bind(path.clone(), 0o600).is_err());
        assert_eq!(fs::read_to_string(path).unwrap(), "mine");
    }
}
