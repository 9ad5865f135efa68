//! Clients that lease as fast as they can, and say of each request what became of it.
//!
//! A request is in flight when any of its bytes have been taken on a connection of which the server had not said that it ends. So these
//! are none: what was asked behind a request the answer to which was the last (`connection: close`; RFC 9112, 9.6), what HTTP/2 never
//! sent, and what nobody took, since the address refused the connection or it had ended before.

mod http1;
mod http2;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use futures_util::future::join_all;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, pki_types::ServerName},
};

pub(super) use self::http1::Manner;

/// A connection, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    /// A whole answer, which grants so much.
    Answered(f64),
    /// Nobody took it, and its client knows.
    NotTaken,
}

/// What all callers of one server share.
#[derive(Debug)]
pub(super) struct Traffic {
    /// HOST:PORT
    address: String,
    /// How it is reached when it speaks TLS.
    tls: Option<ClientConfig>,
    stopping: AtomicBool,
    answered: AtomicUsize,
}

/// What a client has to tell in the end.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) client: String,
    pub(super) resource: String,
    /// What it was granted last.
    pub(super) holds: Option<f64>,
    pub(super) answered: usize,
    pub(super) not_taken: usize,
    /// What went wrong, of each request that failed in flight.
    pub(super) failed: Vec<String>,
}

impl Traffic {
    /// On its way to a server, by its base address; by TLS if there is something to go by.
    pub(super) fn to(server: &str, tls: Option<ClientConfig>) -> Arc<Self> {
        let (_, address) = server.split_once("://").expect("an address");
        Arc::new(Self {
            address: address.to_owned(),
            tls,
            stopping: AtomicBool::new(false),
            answered: AtomicUsize::new(0),
        })
    }

    /// Clients of all kinds, until the server takes nobody in any more.
    pub(super) async fn flows(self: Arc<Self>) -> Vec<Report> {
        let mut callers = Vec::new();
        for (at, manner) in Manner::ALL.into_iter().cycle().take(24).enumerate() {
            let client = Report::of(format!("{manner:?}-{at}"), at);
            callers.push(tokio::spawn(http1::call(Arc::clone(&self), client, manner)));
        }
        let over_http2 = (0..4).map(|at| {
            let clients = (0..4).map(|n| Report::of(format!("http2-{at}-{n}"), n));
            tokio::spawn(http2::call(Arc::clone(&self), clients.collect()))
        });
        let over_http2 = join_all(over_http2);
        let (one, many) = tokio::join!(join_all(callers), over_http2);
        let one = one.into_iter().map(|it| it.expect("no panic"));
        let many = many.into_iter().flat_map(|it| it.expect("no panic"));
        one.chain(many).collect()
    }

    /// How many requests have been answered.
    pub(super) fn answered(&self) -> usize {
        self.answered.load(Relaxed)
    }

    /// From now on the server may refuse connections.
    pub(super) fn may_be_refused(&self) {
        self.stopping.store(true, Relaxed);
    }

    /// A connection for a protocol, by its name in ALPN; `None` when the server takes nobody in any more, and need not.
    async fn connect(&self, protocol: &str) -> Result<Option<Box<dyn Stream>>, String> {
        let stream = match TcpStream::connect(&self.address).await {
            Ok(stream) => stream,
            Err(error)
                if error.kind() == io::ErrorKind::ConnectionRefused
                    && self.stopping.load(Relaxed) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(format!("cannot connect: {error}")),
        };
        let Some(mut tls) = self.tls.clone() else {
            return Ok(Some(Box::new(stream)));
        };
        tls.alpn_protocols = vec![protocol.into()];
        let name = ServerName::try_from("localhost").expect("a name");
        let shaken = TlsConnector::from(Arc::new(tls)).connect(name, stream);
        match shaken.await {
            Ok(stream) => Ok(Some(Box::new(stream))),
            Err(error) => Err(format!("in the handshake: {error}")),
        }
    }

    /// Notes what became of a request.
    fn note(&self, client: &mut Report, fate: Result<Fate, String>) {
        match fate {
            Ok(Fate::Answered(holds)) => {
                self.answered.fetch_add(1, Relaxed);
                client.answered += 1;
                client.holds = Some(holds);
            }
            Ok(Fate::NotTaken) => client.not_taken += 1,
            Err(error) => client.failed.push(error),
        }
    }
}

impl Report {
    /// Of a client that has not asked yet.
    fn of(client: String, at: usize) -> Self {
        Self {
            client,
            resource: format!("shared-{}", at % 3),
            holds: None,
            answered: 0,
            not_taken: 0,
            failed: Vec::new(),
        }
    }

    /// The body of its next request: each asks for something else than the one before, and for so many further resources.
    fn asks(&self, further: usize) -> String {
        let wants = 1 + (self.answered + self.not_taken) % 50;
        let mut resources = format!(r#"{{"resource_id":"{}","wants":{wants}}}"#, self.resource);
        for n in 0..further {
            resources.push_str(&format!(r#",{{"resource_id":"many-{n}","wants":1}}"#));
        }
        format!(
            r#"{{"client_id":"{}","resources":[{resources}]}}"#,
            self.client
        )
    }
}

/// What an answer grants.
fn granted(status: u16, body: &[u8]) -> Result<Fate, String> {
    let answer: Value = serde_json::from_slice(body)
        .map_err(|error| format!("{error} in an answer of {} bytes", body.len()))?;
    match answer["resources"][0]["gets"]["capacity"].as_f64() {
        Some(capacity) if status == 200 => Ok(Fate::Answered(capacity)),
        _ => Err(format!("{status}: {answer}")),
    }
}
