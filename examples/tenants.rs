//! Tenants, told apart by their tokens: each is limited over the whole fleet, however few requests a second that is and however many
//! instances there are.
//!
//! Run with: `cargo run --bin doorman -- --config file:examples/tenants.yaml`, and beside it
//! `cargo run --example tenants -- --listen 127.0.0.1:8081`, or several of it on different ports.
//!
//! Then ask it in the name of a tenant, with the tokens that it prints for `acme` and `globex`, more than four times a second:
//! `curl -i -H "authorization: Bearer $TOKEN" http://127.0.0.1:8081/orders`. Who has no good token is told so, with status 401.

use std::{
    error::Error,
    io::{self, Write},
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use axum::{Router, routing::get};
use clap::Parser;
use jsonwebtoken::{EncodingKey, Header};
use serde_json::json;
use tokio::net::TcpListener;
use tower_doorman::{Callers, Doorman, JwtKey, JwtVerifier, Key, Limit, MissingKey};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

const ISSUER: &str = "https://issuer.example";
const AUDIENCE: &str = "orders";
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, Parser)]
#[command(
    name = "tenants",
    about = "A service whose tenants are limited over all instances together"
)]
struct Arguments {
    /// Where to listen; port 0 takes a free one, and the first line of output says which
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    listen: SocketAddr,
    /// The control plane
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7300")]
    server: String,
    /// What tokens are signed with (HS256): 32 bytes at least, and the same on every instance
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "an example secret of thirty-two bytes"
    )]
    secret: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_env_filter(log_filter())
        .with_writer(io::stderr)
        .with_ansi(false)
        .init();
    let arguments = Arguments::parse();
    let verifier = JwtVerifier::new([JwtKey::hs256(&arguments.secret)?], ISSUER, AUDIENCE)?;
    let doorman = Doorman::builder(arguments.server)
        .service("tenants")
        .callers(Callers::new().jwt(verifier))
        .spawn()?;

    // The document says how much: `tenant/*` is one bucket for all instances. A tenant that floods one route does not take the others
    // from itself: each route has a limit of its own besides. Both must admit a request, or neither is charged. Refusals, and the
    // fields of responses, speak of limits by their names.
    let limits = [
        Limit::rate(Key::template("tenant/{jwt:sub}")?)
            .named("tenant")
            .on_missing_key(MissingKey::Reject),
        Limit::rate(Key::template("tenant-route/{jwt:sub}/{route}")?).named("route"),
    ];
    let app = Router::new()
        .route("/orders", get(|| async { "orders" }))
        .route("/orders/{id}", get(|| async { "one order" }))
        .route_layer(doorman.layer(limits));

    let listener = TcpListener::bind(arguments.listen).await?;
    let mut out = io::stdout();
    writeln!(out, "listening on http://{}", listener.local_addr()?)?;
    for tenant in ["acme", "globex"] {
        writeln!(out, "{tenant}: {}", token(tenant, &arguments.secret)?)?;
    }
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, app)
        .with_graceful_shutdown(stop)
        .await?;
    // If nobody takes the leases back they end by themselves, and the layer has said so in the log.
    drop(doorman.shutdown().await);
    Ok(())
}

/// What an identity provider would issue: a token for an hour.
#[expect(clippy::disallowed_methods, reason = "tokens end by the wall clock")]
fn token(tenant: &str, secret: &str) -> Result<String, Box<dyn Error>> {
    let end = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)? + HOUR;
    let claims = json!({"iss": ISSUER, "aud": AUDIENCE, "sub": tenant, "exp": end.as_secs()});
    let key = EncodingKey::from_secret(secret.as_bytes());
    Ok(jsonwebtoken::encode(&Header::default(), &claims, &key)?)
}

/// What the variable `RUST_LOG` asks for; what the layer does by itself is told with `RUST_LOG=tower_doorman=debug`.
fn log_filter() -> EnvFilter {
    let usual = LevelFilter::INFO.into();
    EnvFilter::builder()
        .with_default_directive(usual)
        .from_env_lossy()
}
