//! Costs: an expensive route, a response that costs nothing, and a fan-out of which the cost is
//! known only afterwards.
//!
//! Run with: `cargo run --example costs -- --listen 127.0.0.1:8080 --server http://127.0.0.1:7300`
//!
//! Then: `curl -i http://127.0.0.1:8080/report`, which costs fifty requests, and the same with
//! `-H 'if-none-match: "1"'`, which costs nothing. `curl -i -X POST
//! http://127.0.0.1:8080/publish/500` publishes to 500 subscribers and costs as many messages.
//! `curl http://127.0.0.1:8080/doorman` shows the leases of `api` and `messages`.

use std::{
    error::Error,
    io::{self, Write},
    net::SocketAddr,
};

use axum::{
    Extension, Json, Router,
    extract::{Path, State},
    http::{
        HeaderMap, StatusCode,
        header::{ETAG, IF_NONE_MATCH},
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use clap::Parser;
use tokio::net::TcpListener;
use tower_doorman::{Charge, Cost, Doorman, InvalidLimit, Limit, Snapshot};

const REPORT: f64 = 50.0;

/// Of the report.
const VERSION: &str = "\"1\"";

#[derive(Debug, Parser)]
#[command(name = "costs", about = "Limits with costs")]
struct Arguments {
    /// Address to listen on; with port 0 the first line of output has the port
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Address of the control plane
    #[arg(long, value_name = "URL")]
    server: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    doorman_examples::init_log();
    let arguments = Arguments::parse();
    let doorman = Doorman::builder(arguments.server)
        .service("costs")
        .spawn()?;
    let app = app(&doorman)?;

    let listener = TcpListener::bind(arguments.listen).await?;
    let address = listener.local_addr()?;
    writeln!(io::stdout(), "listening on http://{address}")?;
    let stop = doorman_examples::shutdown_signal()?;
    axum::serve(listener, app)
        .with_graceful_shutdown(stop)
        .await?;
    doorman.shutdown().await?;
    Ok(())
}

fn app(doorman: &Doorman) -> Result<Router, InvalidLimit> {
    let requests = Limit::rate("api")
        .cost_by(|head| match head.uri().path() {
            "/report" => Cost::new(REPORT).unwrap_or_default(),
            _ => Cost::ONE,
        })
        .settle_by(|response| (response.status == StatusCode::NOT_MODIFIED).then_some(0.0));
    // One message is charged before, and what was delivered afterwards.
    let messages = Limit::rate("messages").settle_in_handler();
    let app = Router::new()
        .route("/", get(async || "ok\n"))
        .route("/report", get(report))
        .route_layer(doorman.layer(requests)?)
        .merge(
            Router::new()
                .route("/publish/{subscribers}", post(publish))
                .route_layer(doorman.layer(messages)?),
        )
        .route("/doorman", get(limits))
        .with_state(doorman.clone());
    Ok(app)
}

async fn report(headers: HeaderMap) -> Response {
    if headers.get(IF_NONE_MATCH).is_some_and(|it| it == VERSION) {
        return StatusCode::NOT_MODIFIED.into_response();
    }
    ([(ETAG, VERSION)], "a long report\n").into_response()
}

async fn publish(
    Path(subscribers): Path<u32>,
    Extension(charge): Extension<Charge>,
) -> (StatusCode, &'static str) {
    tokio::spawn(async move {
        let delivered = deliver(subscribers).await;
        charge.settle(f64::from(delivered));
    });
    (StatusCode::ACCEPTED, "accepted\n")
}

/// Sends a message to each subscriber, and returns how many got it.
async fn deliver(subscribers: u32) -> u32 {
    tokio::task::yield_now().await;
    subscribers
}

async fn limits(State(doorman): State<Doorman>) -> Json<Snapshot> {
    Json(doorman.snapshot())
}
