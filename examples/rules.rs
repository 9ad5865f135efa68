//! A service whose limits are not in its code: it follows the rules that the control plane has for it, as they change.
//!
//! Run with: `cargo run --bin doorman -- --config file:examples/rules.yaml`, and beside it `cargo run --example rules`
//!
//! Then ask it a few times, `curl -i -H 'x-tenant: a' http://127.0.0.1:8080/orders/7`: of one tenant's requests the third in a second
//! waits for its turn. Edit `examples/rules.yaml`, and ask again some ten seconds later. `curl http://127.0.0.1:8080/doorman` shows
//! which version of the rules it follows. Without the control plane it keeps the last ones that it knew.

use std::{
    error::Error,
    io::{self, Write},
    net::SocketAddr,
};

use axum::{Json, Router, extract::State, routing::get};
use clap::Parser;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tower_doorman::{Doorman, Snapshot};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

#[derive(Debug, Parser)]
#[command(name = "rules", about = "A service that follows rules")]
struct Arguments {
    /// Where to listen; port 0 takes a free one, and the first line of output says which
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The control plane
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7300")]
    server: String,
    /// What the service is called in the rules
    #[arg(long, value_name = "NAME", default_value = "orders")]
    service: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_env_filter(log_filter())
        .with_writer(io::stderr)
        .with_ansi(false)
        .init();
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
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    axum::serve(listener, app)
        .with_graceful_shutdown(stop)
        .await?;
    // If nobody takes the leases back they end by themselves, and the layer has said so in the log.
    drop(doorman.shutdown().await);
    Ok(())
}

/// Everything but the view of the limits follows the rules. A limit in code would stand in `doorman.layer([…]).and_rules()`.
fn app(doorman: &Doorman) -> Router {
    Router::new()
        .route("/orders/{id}", get(|| async { "an order" }))
        .route("/healthz", get(|| async { "well" }))
        .layer(doorman.rules())
        .route("/doorman", get(limits))
        .with_state(doorman.clone())
}

async fn limits(State(doorman): State<Doorman>) -> Json<Snapshot> {
    Json(doorman.snapshot())
}

/// What the variable `RUST_LOG` asks for; what the layer does by itself is told with `RUST_LOG=tower_doorman=debug`.
fn log_filter() -> EnvFilter {
    let usual = LevelFilter::INFO.into();
    EnvFilter::builder()
        .with_default_directive(usual)
        .from_env_lossy()
}
