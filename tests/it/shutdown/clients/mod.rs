//! Clients that lease as fast as they can, and report the outcome of every request.
//!
//! A request is in flight once the server has taken any of its bytes on a connection that it has
//! not announced to close. Not in flight are: requests pipelined behind a `connection: close`
//! response (RFC 9112, section 9.6), requests that HTTP/2 never sent or refused with GOAWAY, and
//! requests on connections that were refused or already closed.

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

use self::http1::ClientKind;

/// A connection with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// The outcome of a request that did not fail.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    /// A complete response granted this capacity.
    Granted(f64),
    /// The server did not process the request, and the client knows.
    Unprocessed,
}

/// State shared by all clients of a server.
#[derive(Debug)]
pub(super) struct Traffic {
    /// HOST:PORT
    address: String,
    tls: Option<ClientConfig>,
    stopping: AtomicBool,
    answered: AtomicUsize,
}

/// The outcomes of a client's requests.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) client: String,
    pub(super) resource: String,
    /// The capacity granted last.
    pub(super) has: Option<f64>,
    pub(super) answered: usize,
    pub(super) unprocessed: usize,
    /// The error of each request that failed in flight.
    pub(super) failed: Vec<String>,
}

impl Traffic {
    /// Traffic to a base address.
    pub(super) fn to(server: &str, tls: Option<ClientConfig>) -> Arc<Self> {
        let (_, address) = server.split_once("://").expect("an address");
        Arc::new(Self {
            address: address.to_owned(),
            tls,
            stopping: AtomicBool::new(false),
            answered: AtomicUsize::new(0),
        })
    }

    /// Runs clients of all kinds until the server refuses connections.
    pub(super) async fn run(self: Arc<Self>) -> Vec<Report> {
        let mut clients = Vec::new();
        for (n, kind) in ClientKind::ALL.into_iter().cycle().take(24).enumerate() {
            let report = Report::new(format!("{kind:?}-{n}"), n);
            clients.push(tokio::spawn(http1::run(Arc::clone(&self), report, kind)));
        }
        let over_http2 = (0..4).map(|connection| {
            let reports = (0..4).map(|n| Report::new(format!("http2-{connection}-{n}"), n));
            tokio::spawn(http2::run(Arc::clone(&self), reports.collect()))
        });
        let over_http2 = join_all(over_http2);
        let (one, many) = tokio::join!(join_all(clients), over_http2);
        let one = one.into_iter().map(|it| it.expect("no panic"));
        let many = many.into_iter().flat_map(|it| it.expect("no panic"));
        one.chain(many).collect()
    }

    /// The number of complete responses.
    pub(super) fn answered(&self) -> usize {
        self.answered.load(Relaxed)
    }

    /// From now on the server may refuse connections.
    pub(super) fn set_stopping(&self) {
        self.stopping.store(true, Relaxed);
    }

    /// Connects for an ALPN protocol; `None` when the server refuses connections while stopping.
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
        let handshake = TlsConnector::from(Arc::new(tls)).connect(name, stream);
        match handshake.await {
            Ok(stream) => Ok(Some(Box::new(stream))),
            Err(error) => Err(format!("in the handshake: {error}")),
        }
    }

    fn record(&self, report: &mut Report, outcome: Result<Outcome, String>) {
        match outcome {
            Ok(Outcome::Granted(capacity)) => {
                self.answered.fetch_add(1, Relaxed);
                report.answered += 1;
                report.has = Some(capacity);
            }
            Ok(Outcome::Unprocessed) => report.unprocessed += 1,
            Err(error) => report.failed.push(error),
        }
    }
}

impl Report {
    fn new(client: String, n: usize) -> Self {
        Self {
            client,
            resource: format!("shared-{}", n % 3),
            has: None,
            answered: 0,
            unprocessed: 0,
            failed: Vec::new(),
        }
    }

    /// The body of the next request, which wants another amount than the one before.
    fn next_body(&self, further_resources: usize) -> String {
        let wants = 1 + (self.answered + self.unprocessed) % 50;
        let mut resources = format!(r#"{{"resource_id":"{}","wants":{wants}}}"#, self.resource);
        for n in 0..further_resources {
            resources.push_str(&format!(r#",{{"resource_id":"many-{n}","wants":1}}"#));
        }
        format!(
            r#"{{"client_id":"{}","resources":[{resources}]}}"#,
            self.client
        )
    }
}

/// The outcome of a complete response.
fn parse_response(status: u16, body: &[u8]) -> Result<Outcome, String> {
    let response: Value = serde_json::from_slice(body)
        .map_err(|error| format!("{error} in a response of {} bytes", body.len()))?;
    match response["resources"][0]["gets"]["capacity"].as_f64() {
        Some(capacity) if status == 200 => Ok(Outcome::Granted(capacity)),
        _ => Err(format!("{status}: {response}")),
    }
}
