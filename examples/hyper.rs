//! A service on plain hyper, without a framework, that wears the layer.
//!
//! Run with: `cargo run --example hyper`
//!
//! Then ask it: `curl -i http://127.0.0.1:8080/`. Each caller may ask it sixty times a minute, and the fleet as often as the control plane
//! says of `api`; `curl http://127.0.0.1:8080/doorman` shows both. It needs no control plane to start; `cargo run --bin doorman` starts
//! one.

use std::{
    convert::Infallible,
    error::Error,
    io::{self, Write},
    net::SocketAddr,
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
    signal::unix::{SignalKind, signal},
    time,
};
use tower::{Layer, Service, service_fn, util::MapRequestLayer};
use tower_doorman::{Doorman, Key, Limit, LimitBody, LimitLayer, PeerAddr, per_minute};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// How long requests may take to finish once the service is told to end.
const DRAIN: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
#[command(
    name = "hyper",
    about = "A service on plain hyper that wears the layer"
)]
struct Arguments {
    /// Where to listen; port 0 takes a free one, and the first line of output says which
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The control plane
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7300")]
    server: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_env_filter(log_filter())
        .with_writer(io::stderr)
        .with_ansi(false)
        .init();
    let Arguments { listen, server } = Arguments::parse();
    let doorman = Doorman::builder(server).service("hyper").spawn()?;
    let limits = limits(&doorman);
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    writeln!(io::stdout(), "listening on http://{address}")?;

    let mut terminate = signal(SignalKind::terminate())?;
    let connections = GracefulShutdown::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => serve(stream, peer, &limits, &doorman, &connections),
                // Too many are open, perhaps: others close meanwhile.
                Err(_) => time::sleep(Duration::from_millis(100)).await,
            },
            _ = terminate.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    drop(listener);
    // Whoever has not finished by then is cut off.
    time::timeout(DRAIN, connections.shutdown()).await.ok();
    // If nobody takes the leases back they end by themselves, and the layer has said so in the log.
    drop(doorman.shutdown().await);
    Ok(())
}

/// One layer for all connections: they share what may be spent. The view of the limits itself is not limited.
fn limits(doorman: &Doorman) -> LimitLayer {
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
        // With a timer it closes connections on which no request comes.
        server.http1().timer(TokioTimer::new());
        let connection = server.serve_connection(TokioIo::new(stream), service);
        // Its end is the caller's business, however it comes.
        watcher.watch(connection).await.ok();
    });
}

/// The service of one connection. Keys by peer need to be told whose it is.
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
    let answering = service_fn(move |request| {
        let doorman = doorman.clone();
        async move { Ok::<_, Infallible>(answer(&request, &doorman)) }
    });
    let with_peer = MapRequestLayer::new(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(PeerAddr(peer));
        request
    });
    with_peer.layer(limits.layer(answering))
}

fn answer(request: &Request<Incoming>, doorman: &Doorman) -> Response<Full<Bytes>> {
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

/// What the variable `RUST_LOG` asks for; what the layer does by itself is told with `RUST_LOG=tower_doorman=debug`.
fn log_filter() -> EnvFilter {
    let usual = LevelFilter::INFO.into();
    EnvFilter::builder()
        .with_default_directive(usual)
        .from_env_lossy()
}
