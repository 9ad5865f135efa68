//! An axum service with the layer. All instances together stay within the limit.
//!
//! Run with: `cargo run --example service -- --listen 127.0.0.1:8080 --server http://127.0.0.1:7300`
//!
//! Then: `curl -i http://127.0.0.1:8080/`, and `curl http://127.0.0.1:8080/doorman` for its leases.
//! It starts without a control plane; `cargo run --bin doorman` starts one. For a limit per tenant
//! add `--key-header x-tenant --resource tenant`.

use std::{
    error::Error,
    io::{self, Write},
    iter,
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use axum::{Json, Router, extract::State, routing::get};
use clap::{CommandFactory, Parser, error::ErrorKind};
use futures_util::FutureExt;
use tokio::{net::TcpListener, time};
use tower_doorman::{
    BuildError, Credentials, Doorman, Fallback, InvalidKey, InvalidLimit, Key, Limit, OnLimit,
    Snapshot,
};

/// Deadline of a graceful shutdown.
const DRAIN: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
#[command(name = "service", about = "An axum service with the layer")]
pub(crate) struct Arguments {
    /// Address to listen on; with port 0 the first line of output has the port
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Addresses of the control plane
    #[arg(long, value_name = "URL", required = true, num_args = 1..)]
    server: Vec<String>,
    /// Name of this process: its pod, or its systemd unit and host. No two living processes may
    /// share it. The leases of a crashed process pass to the next one of this name
    #[arg(long, env = "INSTANCE", value_name = "NAME")]
    instance: Option<String>,
    /// File with a bearer token; read again for each request to the control plane
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Resource [default: api]; with --key-header, the prefix of the resource
    #[arg(long, value_name = "NAME")]
    resource: Option<String>,
    /// Limit each value of this header separately, as RESOURCE/VALUE
    #[arg(long, value_name = "NAME", requires = "resource")]
    key_header: Option<String>,
    /// Action for requests over the limit: `reject` or `delay:SECONDS`
    #[arg(long, value_name = "ACTION", default_value = "reject", value_parser = on_limit)]
    on_limit: OnLimit,
    /// Fallback without a lease: `optimistic`, `pessimistic` or `safe`
    #[arg(long, value_name = "MODE", default_value = "safe", value_parser = fallback)]
    fallback: Fallback,
}

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a program reports its errors")]
async fn main() -> ExitCode {
    doorman_examples::init_log();
    let arguments = Arguments::parse();
    let result = match doorman_examples::shutdown_signal() {
        Ok(stop) => run(arguments, stop).await,
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("service: {}", error_chain(&*error));
            ExitCode::FAILURE
        }
    }
}

/// Serves until `stop` completes, then drains and releases the leases.
pub(crate) async fn run(
    arguments: Arguments,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Box<dyn Error>> {
    let limit = limit(&arguments).unwrap_or_else(|error| exit_invalid(&error));
    let doorman = match doorman(&arguments) {
        Err(error @ BuildError::Server { .. }) => exit_invalid(&error),
        built => built?,
    };
    let address = arguments.listen;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen on {address}: {error}"))?;
    writeln!(
        io::stdout(),
        "listening on http://{}",
        listener.local_addr()?
    )?;

    let stop = stop.shared();
    let served = axum::serve(listener, app(&doorman, limit)?).with_graceful_shutdown(stop.clone());
    tokio::select! {
        served = served.into_future() => served?,
        // Connections still open then are closed.
        () = stop.then(|()| time::sleep(DRAIN)) => {}
    }
    // When the release fails, the layer has logged it, and the leases end by themselves.
    drop(doorman.shutdown().await);
    Ok(())
}

/// `/` is limited; `/doorman` shows the snapshot of the layer.
fn app(doorman: &Doorman, limit: Limit) -> Result<Router, InvalidLimit> {
    let app = Router::new()
        .route("/", get(|| async { "ok" }))
        .route_layer(doorman.layer(limit)?)
        .route("/doorman", get(limits))
        .with_state(doorman.clone());
    Ok(app)
}

async fn limits(State(doorman): State<Doorman>) -> Json<Snapshot> {
    Json(doorman.snapshot())
}

fn limit(arguments: &Arguments) -> Result<Limit, InvalidKey> {
    let resource = arguments.resource.as_deref().unwrap_or("api");
    let key = match &arguments.key_header {
        Some(header) => Key::template(&format!("{resource}/{{header:{header}}}"))?,
        None => Key::constant(resource),
    };
    Ok(Limit::rate(key)
        .on_limit(arguments.on_limit)
        .fallback(arguments.fallback))
}

fn doorman(arguments: &Arguments) -> Result<Doorman, BuildError> {
    let mut servers = arguments.server.iter();
    // clap requires at least one.
    let first = servers.next().cloned().unwrap_or_default();
    let mut builder = servers
        .fold(Doorman::builder(first), |builder, other| {
            builder.server(other)
        })
        .service("service");
    if let Some(instance) = &arguments.instance {
        builder = builder.instance(instance);
    }
    if let Some(file) = &arguments.token_file {
        builder = builder.credentials(Credentials::file(file));
    }
    builder.spawn()
}

fn on_limit(text: &str) -> Result<OnLimit, &'static str> {
    const EXPECTED: &str = "must be `reject` or `delay:SECONDS`, such as delay:0.5";
    if text == "reject" {
        return Ok(OnLimit::Reject);
    }
    let seconds = text.strip_prefix("delay:").ok_or(EXPECTED)?;
    let seconds = seconds.parse().map_err(|_| EXPECTED)?;
    let max_delay = Duration::try_from_secs_f64(seconds).map_err(|_| EXPECTED)?;
    Ok(OnLimit::Delay { max_delay })
}

fn fallback(text: &str) -> Result<Fallback, &'static str> {
    match text {
        "optimistic" => Ok(Fallback::Optimistic),
        "pessimistic" => Ok(Fallback::Pessimistic),
        "safe" => Ok(Fallback::Safe),
        _ => Err("must be optimistic, pessimistic or safe"),
    }
}

/// Exits like clap does for an invalid argument.
fn exit_invalid(error: &dyn Error) -> ! {
    Arguments::command()
        .error(ErrorKind::ValueValidation, error_chain(error))
        .exit()
}

/// The messages of an error and its sources.
pub(crate) fn error_chain(error: &dyn Error) -> String {
    let causes = iter::successors(Some(error), |&error| error.source());
    let messages: Vec<_> = causes.map(ToString::to_string).collect();
    messages.join(": ")
}
