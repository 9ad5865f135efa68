//! A gauge around a database: at most so many queries of the whole fleet at once.
//!
//! Run with: `cargo run --example pool -- --listen 127.0.0.1:8080 --server http://127.0.0.1:7300`
//!
//! Then: `curl http://127.0.0.1:8080/query/500` (milliseconds), and
//! `curl http://127.0.0.1:8080/doorman` for the lease and the queries in flight. The control plane
//! needs a template with `unit: gauge` for the resource `db`.
//!
//! With `--database` each query is a connection to that address, which is sent the time and answers
//! with a line. Without it, a query only waits.

use std::{
    error::Error,
    io::{self, Write},
    net::SocketAddr,
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::get,
};
use clap::Parser;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    time::sleep,
};
use tower_doorman::{Doorman, Gauge, GaugeSettings, Snapshot};

/// How long a query waits for its turn.
const MAX_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug, Parser)]
#[command(name = "pool", about = "A gauge around a database")]
struct Arguments {
    /// Address to listen on; with port 0 the first line of output has the port
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Address of the control plane
    #[arg(long, value_name = "URL")]
    server: String,
    /// Address of the database
    #[arg(long, value_name = "ADDR")]
    database: Option<SocketAddr>,
}

#[derive(Clone)]
struct Pool {
    doorman: Doorman,
    queries: Gauge,
    database: Option<SocketAddr>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    doorman_examples::init_log();
    let arguments = Arguments::parse();
    let doorman = Doorman::builder(arguments.server).service("pool").spawn()?;
    let pool = Pool {
        queries: doorman.gauge(GaugeSettings::new("db").max_wait(MAX_WAIT)),
        doorman: doorman.clone(),
        database: arguments.database,
    };
    let app = Router::new()
        .route("/query/{milliseconds}", get(query))
        .route("/doorman", get(limits))
        .with_state(pool);

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

async fn query(
    State(pool): State<Pool>,
    Path(milliseconds): Path<u64>,
) -> Result<String, (StatusCode, String)> {
    let _permit = pool
        .queries
        .acquire()
        .await
        .map_err(|refusal| (StatusCode::SERVICE_UNAVAILABLE, refusal.to_string()))?;
    // The permit is dropped when the query has ended, or the caller has gone.
    match pool.database {
        Some(database) => run(database, milliseconds)
            .await
            .map_err(|error| (StatusCode::BAD_GATEWAY, error.to_string())),
        None => {
            sleep(Duration::from_millis(milliseconds)).await;
            Ok("ok\n".to_owned())
        }
    }
}

async fn run(database: SocketAddr, milliseconds: u64) -> io::Result<String> {
    let mut connection = BufReader::new(TcpStream::connect(database).await?);
    connection
        .write_all(format!("{milliseconds}\n").as_bytes())
        .await?;
    let mut line = String::new();
    connection.read_line(&mut line).await?;
    Ok(line)
}

async fn limits(State(pool): State<Pool>) -> Json<Snapshot> {
    Json(pool.doorman.snapshot())
}
