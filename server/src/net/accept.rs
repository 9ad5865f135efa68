//! Takes connections in, until the server stops.

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
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    time::sleep,
};

use super::{
    connection,
    connections::{ConnectionMetrics, Connections},
    door,
    handshake::{self, Opened},
    places::places,
    serving::{Rest, Serving},
};
use crate::{
    net::tls::Tls,
    util::{clock, log_throttle::LogThrottle, peer::PeerAddr},
};

/// How long what is under way may take to end when the server stops: within 10 s of being told to, it has also left its books.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(8);

/// How many connections the system may queue until they are accepted; it may allow fewer. After a restart all clients connect at once,
/// and one that finds the queue full tries again only a second later.
const BACKLOG: u32 = 4096;

/// How long to wait when the system has no room for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// How long to wait for room when all connections are taken, before more of them are asked to make some.
const ROOM_PAUSE: Duration = Duration::from_millis(100);

/// A bound listener that takes nobody in yet.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    most: NonZeroUsize,
    rest: Rest,
    tls: Option<Arc<Tls>>,
}

impl Listener {
    /// Binds an address; port 0 takes a free one. At most `most` connections will be open at one time.
    pub(crate) fn bind(address: SocketAddr, most: NonZeroUsize) -> io::Result<Self> {
        let listener = listens(address)?;
        let address = listener.local_addr()?;
        Ok(Self {
            listener,
            address,
            most,
            rest: Rest::default(),
            tls: None,
        })
    }

    /// The same, that speaks TLS if there is a certificate for it.
    pub(crate) fn encrypting(self, tls: Option<Arc<Tls>>) -> Self {
        Self { tls, ..self }
    }

    /// The same, whose connections rest at other times.
    #[cfg(test)]
    pub(super) fn resting(self, rest: Rest) -> Self {
        Self { rest, ..self }
    }

    /// The address it is bound to, with the real port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the router until `shutdown` is ready, then calls `drains` and stops: it accepts the connections that are queued already and
    /// no others, tells every client that its connection ends, and for at most 8 s answers what is under way or arrives before its client
    /// has heard of that. Returns how many connections had to be cut off.
    ///
    /// # Cancel safety
    /// When it is dropped, all connections are cut off.
    pub(crate) async fn serve(
        self,
        router: Router,
        metrics: ConnectionMetrics,
        shutdown: impl Future<Output = ()>,
        drains: impl FnOnce(),
    ) -> usize {
        let serving = Arc::new(Serving::new(router, self.rest));
        let (drain, draining) = watch::channel(false);
        let mut connections = Connections::new(places(self.most), metrics);
        let no_room = LogThrottle::per_minute();
        let take_in = |connections: &mut Connections, (stream, peer)| {
            let (serving, draining) = (Arc::clone(&serving), draining.clone());
            match &self.tls {
                Some(tls) => {
                    // On the heap only while it lasts: a task at rest is small.
                    let open = Box::pin(handshake::encrypted(Arc::clone(tls), stream));
                    connections.add(peer, |activity| {
                        connection::serve(serving, open, activity, draining)
                    });
                }
                None => {
                    let open = ready(Some(Opened::plain(stream)));
                    connections.add(peer, |activity| {
                        connection::serve(serving, open, activity, draining)
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
                connected = accept(&self.listener, &no_room), if !connections.is_full() => {
                    take_in(&mut connections, connected);
                    if connections.is_full() {
                        connections.evict();
                    }
                }
                // All of them were busy, or became it before they closed.
                () = sleep(ROOM_PAUSE), if connections.is_full() => connections.evict(),
            }
        }

        drains();
        drain.send_replace(true);
        let mut over = pin!(sleep(DRAIN_TIMEOUT));
        door::lets_nobody_come(&self.listener);
        let mut all_within = pin!(sleep(door::HANDSHAKE));
        // Beyond the most as well: these have connected already, nobody comes after them, and all of them go soon.
        loop {
            tokio::select! {
                stream = accept(&self.listener, &no_room) => take_in(&mut connections, stream),
                Some(()) = connections.closed() => {}
                () = &mut all_within => break,
            }
        }
        door::close(self.listener, |connected| {
            take_in(&mut connections, prepared(connected));
        });
        loop {
            tokio::select! {
                ended = connections.closed() => if ended.is_none() { break },
                () = &mut over => break,
            }
        }
        let cut_off = connections.len();
        connections.abort().await;
        cut_off
    }
}

fn listens(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // Connections of the last start that are not forgotten yet would keep the address from the next.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The next connection. Trouble with one is the peer's affair. Trouble with all of them, as when the system has no file left, is in the log,
/// as often as `no_room` lets it, and mostly passes.
async fn accept(listener: &TcpListener, no_room: &LogThrottle) -> (TcpStream, PeerAddr) {
    loop {
        match listener.accept().await {
            Ok(connected) => return prepared(connected),
            Err(error) if door::is_of_the_peer(&error) => {}
            Err(error) => {
                if no_room.admit(clock::now()).is_some() {
                    tracing::warn!(%error, "no connection can be taken in");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn prepared((stream, address): (TcpStream, SocketAddr)) -> (TcpStream, PeerAddr) {
    // An answer is one small write: waiting to fill a packet would only delay it.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    (stream, PeerAddr::new(address.ip()))
}
