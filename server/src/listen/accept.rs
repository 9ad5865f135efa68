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
use futures_util::FutureExt;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    connection,
    crowd::Crowd,
    handshake::{self, Opened},
    places::places,
    serving::{Rest, Serving},
};
use crate::{limits::Peer, metrics::Connections, tls::Tls};

/// How long what is under way may take to end when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

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
    pub(crate) async fn bind(address: SocketAddr, most: NonZeroUsize) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
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

    /// Serves the router until `shutdown` is ready, calls `drains`, and then answers what is under way, for at most 10 s. Returns how
    /// many connections had to be cut off.
    ///
    /// # Cancel safety
    /// When it is dropped, all connections are cut off.
    pub(crate) async fn serve(
        self,
        router: Router,
        counted: Connections,
        shutdown: impl Future<Output = ()>,
        drains: impl FnOnce(),
    ) -> usize {
        let serving = Arc::new(Serving::new(router, self.rest));
        let (drain, draining) = watch::channel(false);
        let mut crowd = Crowd::new(places(self.most), counted);
        let take_in = |crowd: &mut Crowd, (stream, peer)| {
            let (serving, draining) = (Arc::clone(&serving), draining.clone());
            match &self.tls {
                Some(tls) => {
                    // On the heap only while it lasts: a task at rest is small.
                    let open = Box::pin(handshake::encrypted(Arc::clone(tls), stream));
                    crowd.add(peer, |activity| {
                        connection::serve(serving, open, activity, draining)
                    });
                }
                None => {
                    let open = ready(Some(Opened::plain(stream)));
                    crowd.add(peer, |activity| {
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
                Some(()) = crowd.one_ends() => {}
                connected = accept(&self.listener), if !crowd.is_full() => {
                    take_in(&mut crowd, connected);
                    if crowd.is_full() {
                        crowd.make_room();
                    }
                }
                // All of them were busy, or became it before they closed.
                () = sleep(ROOM_PAUSE), if crowd.is_full() => crowd.make_room(),
            }
        }

        drains();
        // Who has connected already may have asked already.
        while let Some(Ok(connected)) = self.listener.accept().now_or_never() {
            take_in(&mut crowd, prepared(connected));
        }
        drop(self.listener);
        drain.send_replace(true);
        let all_end = async { while crowd.one_ends().await.is_some() {} };
        let in_time = timeout(DRAIN_TIMEOUT, all_end).await;
        let cut_off = if in_time.is_ok() { 0 } else { crowd.len() };
        crowd.cut_off().await;
        cut_off
    }
}

/// The next connection. Trouble with one is the peer's affair; trouble with all of them passes, or is in the log.
async fn accept(listener: &TcpListener) -> (TcpStream, Peer) {
    loop {
        match listener.accept().await {
            Ok(connected) => return prepared(connected),
            Err(error) if is_of_the_peer(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "no connection can be taken in");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

fn prepared((stream, address): (TcpStream, SocketAddr)) -> (TcpStream, Peer) {
    // An answer is one small write: waiting to fill a packet would only delay it.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    (stream, Peer::new(address.ip()))
}
