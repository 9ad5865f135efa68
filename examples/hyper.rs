//! The layer on plain hyper, without a framework.
//!
//! Run with: `cargo run --example hyper`
//!
//! Then: `curl -i http://127.0.0.1:8080/`. Each caller has a local limit of sixty requests per
//! minute, and the fleet shares the resource `api`; `curl http://127.0.0.1:8080/doorman` shows
//! both. It starts without a control plane; `cargo run --bin doorman` starts one.

use std::{
    convert::Infallible,
    error::Error,
    io::{self, Write},
    net::SocketAddr,
    pin::pin,
    time::Duration,
};

use bytes::Bytes;
use clap::Parser;
use http_body_util::Full;
use hyper::{Request, Response, StatusCode, body::Incoming};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time,
};
use tower::{Layer, Service, service_fn, util::MapRequestLayer};
use tower_doorman::{
    Doorman, InvalidLimit, Key, Limit, LimitBody, LimitLayer, PeerAddr, per_minute,
};

/// Deadline of a graceful shutdown.
const DRAIN: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
#[command(name = "hyper", about = "The layer on plain hyper")]
struct Arguments {
    /// Address to listen on; with port 0 the first line of output has the port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Address of the control plane
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7300")]
    server: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    doorman_examples::init_log();
    let Arguments { listen, server } = Arguments::parse();
    let doorman = Doorman::builder(server).service("hyper").spawn()?;
    let limits = limits(&doorman)?;
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    writeln!(io::stdout(), "listening on http://{address}")?;

    let mut stop = pin!(doorman_examples::shutdown_signal()?);
    let connections = GracefulShutdown::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => serve(stream, peer, &limits, &doorman, &connections),
                // Perhaps too many open files: wait for connections to close.
                Err(_) => time::sleep(Duration::from_millis(100)).await,
            },
            () = &mut stop => break,
        }
    }
    drop(listener);
    // Connections still open then are closed.
    time::timeout(DRAIN, connections.shutdown()).await.ok();
    // When the release fails, the layer has logged it, and the leases end by themselves.
    drop(doorman.shutdown().await);
    Ok(())
}

/// One layer for all connections, so that they share its limits. `/doorman` is not limited.
fn limits(doorman: &Doorman) -> Result<LimitLayer, InvalidLimit> {
    let unlimited = "/doorman";
    doorman.layer([
        Limit::rate("api").skip(move |head| head.uri().path() == unlimited),
        Limit::local_per(Key::peer(), per_minute(60))
            .burst(Duration::from_secs(10))
            .skip(move |head| head.uri().path() == unlimited),
    ])
}

/// Serves a connection in the background, HTTP/1 or HTTP/2.
fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    limits: &LimitLayer,
    doorman: &Doorman,
    connections: &GracefulShutdown,
) {
    let service = TowerToHyperService::new(app(peer, limits, doorman));
    let watcher = connections.watcher();
    tokio::spawn(async move {
        let mut server = auto::Builder::new(TokioExecutor::new());
        // Enables the header read timeout.
        server.http1().timer(TokioTimer::new());
        let connection = server.serve_connection(TokioIo::new(stream), service);
        // Errors of a connection are the caller's.
        watcher.watch(connection).await.ok();
    });
}

/// The service of one connection. `Key::peer` needs `PeerAddr` in the extensions.
fn app(
    peer: SocketAddr,
    limits: &LimitLayer,
    doorman: &Doorman,
) -> impl Service<
    Request<Incoming>,
    Response = Response<LimitBody<Full<Bytes>>>,
    Error = Infallible,
    Future: Send,
> + Clone
+ use<> {
    let doorman = doorman.clone();
    let respond = service_fn(move |request| {
        let doorman = doorman.clone();
        async move { Ok::<_, Infallible>(response(&request, &doorman)) }
    });
    let with_peer = MapRequestLayer::new(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(PeerAddr(peer));
        request
    });
    with_peer.layer(limits.layer(respond))
}

fn response(request: &Request<Incoming>, doorman: &Doorman) -> Response<Full<Bytes>> {
    let (status, body) = match request.uri().path() {
        "/" => (StatusCode::OK, Bytes::from("ok")),
        "/doorman" => match serde_json::to_vec(&doorman.snapshot()) {
            Ok(snapshot) => (StatusCode::OK, snapshot.into()),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Bytes::new()),
        },
        _ => (StatusCode::NOT_FOUND, Bytes::new()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response
}
