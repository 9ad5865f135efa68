//! With TLS and without: whatever holds for connections holds for both.

use std::{net::SocketAddr, sync::LazyLock};

use rustls::{ClientConfig, pki_types::ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::*;
use crate::net::tls::{
    Tls,
    testing::{self, Authority, NAME},
};

/// The near end of a connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// What a connection is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Plain,
    Encrypted,
}

pub(super) const WIRES: [Wire; 2] = [Wire::Plain, Wire::Encrypted];

/// Both sides of all encrypted connections.
static SIDES: LazyLock<(Arc<Tls>, Arc<ClientConfig>)> = LazyLock::new(|| {
    let authority = Authority::new();
    (testing::tls(&authority), Arc::new(authority.client(&[])))
});

impl Wire {
    /// The server's side.
    pub(super) fn tls(self) -> Option<Arc<Tls>> {
        (self == Self::Encrypted).then(|| Arc::clone(&SIDES.0))
    }

    /// The client's side: ready for requests.
    pub(super) async fn open(self, stream: impl Stream + 'static) -> Box<dyn Stream> {
        match self {
            Self::Plain => Box::new(stream),
            Self::Encrypted => {
                let connector = TlsConnector::from(Arc::clone(&SIDES.1));
                let name = ServerName::try_from(NAME).unwrap();
                Box::new(connector.connect(name, stream).await.unwrap())
            }
        }
    }

    /// A connection to an address.
    pub(super) async fn dial(self, address: SocketAddr) -> Box<dyn Stream> {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        self.open(stream).await
    }
}
