//! A service whose limits are rules of the control plane, followed as they change.
//!
//! Run with: `cargo run --bin doorman -- --config file:examples/rules.yaml`, and beside it
//! `cargo run --example rules`
//!
//! Then: `curl -i -H 'x-tenant: a' http://127.0.0.1:8080/orders/7`. A tenant's third request within
//! a second is delayed. Edit `examples/rules.yaml` and try again a second or two later.
//! `curl http://127.0.0.1:8080/doorman` shows the version of the rules.

use std::{
    error::Error,
    io::{self, Write},
    net::SocketAddr,
};

use axum::{Json, Router, extract::State, routing::get};
use clap::Parser;
use tokio::net::TcpListener;
use tower_doorman::{Doorman, Snapshot};

#[derive(Debug, Parser)]
#[command(name = "rules", about = "A service that follows rules")]
struct Arguments {
    /// Address to listen on; with port 0 the first line of output has the port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Address of the control plane
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7300")]
    server: String,
    /// Name of the service in the rules
    #[arg(long, value_name = "NAME", default_value = "orders")]
    service: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    doorman_examples::init_log();
    let Arguments {
        listen,
        server,
        service,
    } = Arguments::parse();
    let doorman = Doorman::builder(server).service(service).spawn()?;
    let app = app(&doorman);
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    writeln!(io::stdout(), "listening on http://{address}")?;
    axum::serve(listener, app)
        .with_graceful_shutdown(doorman_examples::shutdown_signal()?)
        .await?;
    // When the release fails, the layer has logged it, and the leases end by themselves.
    drop(doorman.shutdown().await);
    Ok(())
}

/// `/doorman` is not limited. Limits in code would be `doorman.layer([…]).and_rules()`.
fn app(doorman: &Doorman) -> Router {
    Router::new()
        .route("/orders/{id}", get(|| async { "an order" }))
        .route("/reports/{id}", get(|| async { "a report" }))
        .route("/healthz", get(|| async { "well" }))
        .layer(doorman.rules())
        .route("/doorman", get(limits))
        .with_state(doorman.clone())
}

async fn limits(State(doorman): State<Doorman>) -> Json<Snapshot> {
    Json(doorman.snapshot())
}
