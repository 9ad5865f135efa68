//! A service that wears the layer: however many of it there are, together they admit no more than the limit.
//!
//! Run with: `cargo run --example service -- --listen 127.0.0.1:8080 --server http://127.0.0.1:7300`
//!
//! Then ask it, and see what it holds: `curl -i http://127.0.0.1:8080/` and `curl http://127.0.0.1:8080/doorman`. It needs no
//! control plane to start; `cargo run --bin doorman` starts one. To limit each tenant by itself, add `--key-header x-tenant
//! --resource tenant`.

use std::{
    error::Error,
    io::{self, IsTerminal, Write},
    iter,
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use axum::{Json, Router, extract::State, routing::get};
use clap::{CommandFactory, Parser, error::ErrorKind};
use futures_util::FutureExt;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    time,
};
use tower_doorman::{
    BuildError, Credentials, Doorman, Fallback, InvalidKey, Key, Limit, OnLimit, Snapshot,
};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// How long requests may take to finish once the service is told to end.
const DRAIN: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
#[command(name = "service", about = "A service that wears the layer")]
pub(crate) struct Arguments {
    /// Where to listen; port 0 takes a free one, and the first line of output says which
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// The control plane, and others to turn to when it fails
    #[arg(long, value_name = "URL", required = true, num_args = 1..)]
    server: Vec<String>,
    /// A file with a token, for a control plane that asks for one; read again for every request to it
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// What the service spends [default: api]; with --key-header, what comes before the header's value
    #[arg(long, value_name = "NAME")]
    resource: Option<String>,
    /// Limit each value of this request header by itself: it spends the resource RESOURCE/VALUE
    #[arg(long, value_name = "NAME", requires = "resource")]
    key_header: Option<String>,
    /// What becomes of requests beyond the limit: `reject`, or `delay:SECONDS`
    #[arg(long, value_name = "ACTION", default_value = "reject", value_parser = on_limit)]
    on_limit: OnLimit,
    /// What counts while there is no lease: `optimistic`, `pessimistic` or `safe`
    #[arg(long, value_name = "MODE", default_value = "safe", value_parser = fallback)]
    fallback: Fallback,
}

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a program says why it ends")]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(log_filter())
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    let arguments = Arguments::parse();
    let ended = match told_to_end() {
        Ok(stop) => run(arguments, stop).await,
        Err(error) => Err(error.into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("service: {}", in_one_line(&*error));
            ExitCode::FAILURE
        }
    }
}

/// Serves until `stop` is ready, then finishes what is under way and gives the leases back.
pub(crate) async fn run(
    arguments: Arguments,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Box<dyn Error>> {
    let limit = limit(&arguments).unwrap_or_else(|error| misused(&error));
    let doorman = match doorman(&arguments) {
        Err(error @ BuildError::Server { .. }) => misused(&error),
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
    let served = axum::serve(listener, app(&doorman, limit)).with_graceful_shutdown(stop.clone());
    tokio::select! {
        served = served.into_future() => served?,
        // Whoever has not finished by then is cut off.
        () = stop.then(|()| time::sleep(DRAIN)) => {}
    }
    // If nobody takes the leases back they end by themselves, and the layer has said so in the log.
    drop(doorman.shutdown().await);
    Ok(())
}

/// The service: `/` wears the layer, `/doorman` shows what it holds.
fn app(doorman: &Doorman, limit: Limit) -> Router {
    Router::new()
        .route("/", get(|| async { "ok" }))
        .route_layer(doorman.layer([limit]))
        .route("/doorman", get(limits))
        .with_state(doorman.clone())
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
    // There is a first one: clap sees to it. An empty address would be refused.
    let first = servers.next().cloned().unwrap_or_default();
    let builder = servers
        .fold(Doorman::builder(first), |builder, other| {
            builder.server(other)
        })
        .service("service");
    match &arguments.token_file {
        Some(file) => builder.credentials(Credentials::file(file)),
        None => builder,
    }
    .spawn()
}

fn on_limit(text: &str) -> Result<OnLimit, &'static str> {
    const WRONG: &str = "must be `reject` or `delay:SECONDS`, such as delay:0.5";
    if text == "reject" {
        return Ok(OnLimit::Reject);
    }
    let seconds = text.strip_prefix("delay:").ok_or(WRONG)?;
    let seconds = seconds.parse().map_err(|_| WRONG)?;
    let at_most = Duration::try_from_secs_f64(seconds).map_err(|_| WRONG)?;
    Ok(OnLimit::Delay { at_most })
}

fn fallback(text: &str) -> Result<Fallback, &'static str> {
    match text {
        "optimistic" => Ok(Fallback::Optimistic),
        "pessimistic" => Ok(Fallback::Pessimistic),
        "safe" => Ok(Fallback::Safe),
        _ => Err("must be optimistic, pessimistic or safe"),
    }
}

/// Ends the program as every wrong argument does.
fn misused(error: &dyn Error) -> ! {
    Arguments::command()
        .error(ErrorKind::ValueValidation, in_one_line(error))
        .exit()
}

/// What went wrong, and why: messages do not repeat their source.
pub(crate) fn in_one_line(error: &dyn Error) -> String {
    let causes = iter::successors(Some(error), |&error| error.source());
    let messages: Vec<_> = causes.map(ToString::to_string).collect();
    messages.join(": ")
}

/// Is ready when the program is told to end: by SIGTERM, or a Ctrl-C. Once this has returned, neither ends it the hard way.
pub(crate) fn told_to_end() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// What the variable `RUST_LOG` asks for; what the layer does by itself is told with `RUST_LOG=tower_doorman=debug`.
fn log_filter() -> EnvFilter {
    let usual = LevelFilter::INFO.into();
    EnvFilter::builder()
        .with_default_directive(usual)
        .from_env_lossy()
}
