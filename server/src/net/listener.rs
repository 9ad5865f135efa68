//! Accept loop of a listening socket, connection limit and graceful shutdown.

use std::{
    future::{Future, ready},
    io,
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use axum::Router;
use rustix::process::{Resource, getrlimit};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket},
    sync::watch,
    time::sleep,
};

use super::{
    connection,
    connections::{ConnectionMetrics, Connections},
    service::{HttpServer, Parking},
    socket::{Socket, UnixSocket, is_connection_error},
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
pub(crate) struct Listener<K: Socket = TcpListener> {
    socket: K,
    address: K::Address,
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
        let socket = socket.listen(BACKLOG)?;
        let address = socket.local_addr()?;
        Ok(Self::new(socket, address, max_connections))
    }

    /// The bound address, with the real port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Listener<UnixSocket> {
    /// Binds a Unix socket, with these permissions. A socket file that nobody listens on is
    /// replaced.
    pub(crate) fn bind_unix(
        path: PathBuf,
        mode: u32,
        max_connections: NonZeroUsize,
    ) -> io::Result<Self> {
        let socket = UnixSocket::bind(path.clone(), mode)?;
        Ok(Self::new(socket, path, max_connections))
    }

    /// The path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.address
    }
}

impl<K: Socket> Listener<K> {
    fn new(socket: K, address: K::Address, max_connections: NonZeroUsize) -> Self {
        Self {
            socket,
            address,
            max_connections,
            parking: Parking::default(),
            tls: None,
        }
    }

    /// Requires TLS on every connection, if `tls` is given.
    pub(crate) fn with_tls(self, tls: Option<Arc<Tls>>) -> Self {
        Self { tls, ..self }
    }

    #[cfg(test)]
    pub(super) fn with_parking(self, parking: Parking) -> Self {
        Self { parking, ..self }
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
        let (begin_drain, draining) = watch::channel(false);
        let mut connections = Connections::new(connection_limit(self.max_connections), metrics);
        let accept_log = LogThrottle::per_minute();
        let tls = self.tls.as_ref();
        let add = |connections: &mut Connections, stream: K::Stream, peer: Option<PeerAddr>| {
            add(connections, stream, peer, tls, &server, &draining);
        };

        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(()) = connections.closed() => {}
                (stream, peer) = accept(&self.socket, &accept_log), if !connections.is_full() => {
                    add(&mut connections, stream, peer);
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
        begin_drain.send_replace(true);
        drain(self.socket, connections, add, &accept_log).await
    }
}

/// Accepts queued connections, and waits until all are closed. Returns the number of those that it
/// aborted.
async fn drain<K: Socket>(
    socket: K,
    mut connections: Connections,
    add: impl Fn(&mut Connections, K::Stream, Option<PeerAddr>),
    accept_log: &LogThrottle,
) -> usize {
    let mut drain_timeout = pin!(sleep(DRAIN_TIMEOUT));
    socket.reject_handshakes();
    let mut handshakes_done = pin!(sleep(TCP_HANDSHAKE_TIMEOUT));
    // Beyond the limit, too: these clients are connected already, and all connections end soon.
    loop {
        tokio::select! {
            (stream, peer) = accept(&socket, accept_log) => {
                add(&mut connections, stream, peer);
            }
            Some(()) = connections.closed() => {}
            () = &mut handshakes_done => break,
        }
    }
    // Closing a socket resets the connections in its queue.
    if let Err(error) = socket.close(|stream, peer| add(&mut connections, stream, peer)) {
        tracing::warn!(%error, "cannot accept queued connections; they are reset");
    }
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

fn add<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    connections: &mut Connections,
    stream: S,
    peer: Option<PeerAddr>,
    tls: Option<&Arc<Tls>>,
    server: &Arc<HttpServer>,
    draining: &watch::Receiver<bool>,
) {
    let (server, draining) = (Arc::clone(server), draining.clone());
    match tls {
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
}

/// Accepts the next connection. Skips errors of one connection; logs and retries others.
async fn accept<K: Socket>(socket: &K, log: &LogThrottle) -> (K::Stream, Option<PeerAddr>) {
    loop {
        match socket.accept().await {
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
