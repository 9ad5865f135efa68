//! Plain and TLS connections for tests.

use std::{net::SocketAddr, sync::LazyLock};

use rustls::{ClientConfig, pki_types::ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::*;
use crate::net::tls::{
    Tls,
    testing::{self, Authority, NAME},
};

/// The client's end of a connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Plain,
    Tls,
}

pub(super) const TRANSPORTS: [Transport; 2] = [Transport::Plain, Transport::Tls];

/// Server and client configuration of all TLS connections.
static SIDES: LazyLock<(Arc<Tls>, Arc<ClientConfig>)> = LazyLock::new(|| {
    let authority = Authority::new();
    (testing::tls(&authority), Arc::new(authority.client(&[])))
});

impl Transport {
    pub(super) fn tls(self) -> Option<Arc<Tls>> {
        (self == Self::Tls).then(|| Arc::clone(&SIDES.0))
    }

    /// Opens the client's end.
    pub(super) async fn open(self, stream: impl Stream + 'static) -> Box<dyn Stream> {
        match self {
            Self::Plain => Box::new(stream),
            Self::Tls => {
                let connector = TlsConnector::from(Arc::clone(&SIDES.1));
                let name = ServerName::try_from(NAME).unwrap();
                Box::new(connector.connect(name, stream).await.unwrap())
            }
        }
    }

    /// Connects to an address.
    pub(super) async fn dial(self, address: SocketAddr) -> Box<dyn Stream> {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        self.open(stream).await
    }
}
