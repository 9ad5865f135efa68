//! Listening socket: accept loop, connection limit and graceful shutdown.

use std::{
    future::{Future, ready},
    io,
    net::SocketAddr,
    num::NonZeroUsize,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use axum::Router;
use rustix::process::{Resource, getrlimit};
#[cfg(target_os = "linux")]
use socket2::{SockFilter, SockRef};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    time::sleep,
};

use super::{
    connection,
    connections::{ConnectionMetrics, Connections},
    service::{HttpServer, Parking},
    stream::Opened,
    tls::{self, Tls},
};
use crate::util::{clock, log_throttle::LogThrottle, peer::PeerAddr};

/// Time for requests in progress after the shutdown began. The whole stop takes at most 10 s.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(8);

/// Accept queue of the system, which may shorten it. After a restart all clients connect at once,
/// and one that finds the queue full retries only after a second.
const BACKLOG: u32 = 4096;

/// Pause after a failed accept, such as for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Time between two evictions while the connection limit is reached.
const EVICTION_INTERVAL: Duration = Duration::from_millis(100);

/// Time for TCP handshakes in progress when the listener closes: a long round trip and queueing.
const TCP_HANDSHAKE_TIMEOUT: Duration = Duration::from_millis(500);

/// File descriptors for everything but connections: files, directory watches, the runtime.
const RESERVED_FILES: u64 = 64;

/// A bound listener that accepts nothing yet.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    max_connections: NonZeroUsize,
    parking: Parking,
    tls: Option<Arc<Tls>>,
}

impl Listener {
    /// Binds an address; port 0 selects a free one.
    pub(crate) fn bind(address: SocketAddr, max_connections: NonZeroUsize) -> io::Result<Self> {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        // Connections of the last process in TIME_WAIT would block the address.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        Ok(Self {
            listener,
            address,
            max_connections,
            parking: Parking::default(),
            tls: None,
        })
    }

    /// Requires TLS on every connection, if `tls` is given.
    pub(crate) fn with_tls(self, tls: Option<Arc<Tls>>) -> Self {
        Self { tls, ..self }
    }

    #[cfg(test)]
    pub(super) fn with_parking(self, parking: Parking) -> Self {
        Self { parking, ..self }
    }

    /// The bound address, with the real port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the router until `shutdown` is ready, then calls `on_drain` and shuts down
    /// gracefully: accepts queued connections, announces the shutdown on all, and answers requests
    /// for at most [`DRAIN_TIMEOUT`]. Returns the number of connections it aborted. `end_polls`
    /// ends so many long polls when connections run short, and returns how many it did.
    ///
    /// # Cancel safety
    /// All connections are aborted when it is dropped.
    pub(crate) async fn serve(
        self,
        router: Router,
        metrics: ConnectionMetrics,
        shutdown: impl Future<Output = ()>,
        on_drain: impl FnOnce(),
        end_polls: impl Fn(usize) -> usize,
    ) -> usize {
        let server = Arc::new(HttpServer::new(router, self.parking));
        let (drain, draining) = watch::channel(false);
        let mut connections = Connections::new(connection_limit(self.max_connections), metrics);
        let accept_log = LogThrottle::per_minute();
        let add = |connections: &mut Connections, stream: TcpStream, address: SocketAddr| {
            // A response is one small write, which must not wait for more.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "cannot set TCP_NODELAY");
            }
            let peer = PeerAddr::new(address.ip());
            let (server, draining) = (Arc::clone(&server), draining.clone());
            match &self.tls {
                Some(tls) => {
                    // Boxed, so that the task is small after the handshake.
                    let open = Box::pin(tls::accept(Arc::clone(tls), stream));
                    connections.add(peer, |activity| {
                        connection::serve(server, open, activity, draining)
                    });
                }
                None => {
                    let open = ready(Some(Opened {
                        stream,
                        protocol: None,
                    }));
                    connections.add(peer, |activity| {
                        connection::serve(server, open, activity, draining)
                    });
                }
            }
        };

        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(()) = connections.closed() => {}
                (stream, address) = accept(&self.listener, &accept_log), if !connections.is_full() => {
                    add(&mut connections, stream, address);
                    if connections.is_full() {
                        connections.evict(&end_polls);
                    }
                }
                // All connections were busy, or became busy before they closed.
                () = sleep(EVICTION_INTERVAL), if connections.is_full() => {
                    connections.evict(&end_polls);
                }
            }
        }

        on_drain();
        drain.send_replace(true);
        let mut drain_timeout = pin!(sleep(DRAIN_TIMEOUT));
        reject_handshakes(&self.listener);
        let mut handshakes_done = pin!(sleep(TCP_HANDSHAKE_TIMEOUT));
        // Beyond the limit, too: these clients are connected already, and all connections end soon.
        loop {
            tokio::select! {
                (stream, address) = accept(&self.listener, &accept_log) => {
                    add(&mut connections, stream, address);
                }
                Some(()) = connections.closed() => {}
                () = &mut handshakes_done => break,
            }
        }
        close(self.listener, |stream, address| {
            add(&mut connections, stream, address);
        });
        loop {
            tokio::select! {
                closed = connections.closed() => if closed.is_none() { break },
                () = &mut drain_timeout => break,
            }
        }
        let aborted = connections.len();
        connections.abort().await;
        aborted
    }
}

/// Accepts the next connection. Skips errors of one connection; logs and retries others.
async fn accept(listener: &TcpListener, log: &LogThrottle) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_connection_error(&error) => {}
            Err(error) => {
                if let Some(suppressed) = log.admit(clock::now()) {
                    tracing::warn!(%error, suppressed, "cannot accept connections");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
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

/// Rejects new TCP handshakes, so that the accept queue can be emptied. Closing a listener resets
/// the connections in its queue, and their clients may have sent a request. A client that connects
/// now sends its SYN again a second later, and is refused. Only Linux has such a filter.
#[cfg_attr(
    not(target_os = "linux"),
    expect(unused_variables, reason = "only Linux has the filter")
)]
fn reject_handshakes(listener: &TcpListener) {
    #[cfg(target_os = "linux")]
    if let Err(error) = SockRef::from(listener).attach_filter(&DROP_SYN) {
        tracing::debug!(%error, "cannot reject TCP handshakes");
    }
}

/// Accepts everything in the queue, then closes the listener.
fn close(listener: TcpListener, mut add: impl FnMut(TcpStream, SocketAddr)) {
    // Without the runtime, which learns of a connection later than the system.
    let emptied = listener.into_std().and_then(|listener| {
        accept_all(
            || listener.accept(),
            |(stream, address)| {
                stream.set_nonblocking(true)?;
                add(TcpStream::from_std(stream)?, address);
                Ok(())
            },
        )
    });
    if let Err(error) = emptied {
        tracing::warn!(%error, "cannot accept queued connections; they are reset");
    }
}

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

fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// The configured connection limit, within the process's limit of open files.
fn connection_limit(configured: NonZeroUsize) -> usize {
    let limit = limit_within(configured, getrlimit(Resource::Nofile).current);
    if limit < configured.get() {
        tracing::warn!(
            configured,
            limit,
            "connection limit lowered by the limit of open files"
        );
    }
    limit
}

fn limit_within(configured: NonZeroUsize, open_files: Option<u64>) -> usize {
    let available = open_files.map_or(u64::MAX, |files| files.saturating_sub(RESERVED_FILES));
    let available = usize::try_from(available).unwrap_or(usize::MAX);
    configured.get().min(available).max(1)
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

    #[test]
    fn connection_limit_leaves_files_for_other_uses() {
        for (configured, open_files, limit) in [
            (10_000, None, 10_000),
            (10_000, Some(1_000_000), 10_000),
            (10_000, Some(10_000), 9_936),
            (10_000, Some(1024), 960),
            (10, Some(20), 1),
        ] {
            let configured = NonZeroUsize::new(configured).unwrap();
            assert_eq!(
                limit_within(configured, open_files),
                limit,
                "{configured} {open_files:?}"
            );
        }
    }
}
