//! Limits per tenant by verified tokens: small limits, shared by any number of instances.
//!
//! Run with: `cargo run --bin doorman -- --config file:examples/tenants.yaml`, and beside it
//! `cargo run --example tenants -- --listen 127.0.0.1:8081`, or several on different ports.
//!
//! Then send more than four requests per second with a token that it prints:
//! `curl -i -H "authorization: Bearer $TOKEN" http://127.0.0.1:8081/orders`
//! Requests without a valid token get 401.

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
use tower_doorman::{Callers, Doorman, JwtKey, JwtVerifier, Limit, OnMissingKey};

const ISSUER: &str = "https://issuer.example";
const AUDIENCE: &str = "orders";
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, Parser)]
#[command(name = "tenants", about = "Limits per tenant over all instances")]
struct Arguments {
    /// Address to listen on; with port 0 the first line of output has the port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    listen: SocketAddr,
    /// Address of the control plane
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7300")]
    server: String,
    /// Secret of the tokens (HS256): at least 32 bytes, the same on every instance
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "an example secret of thirty-two bytes"
    )]
    secret: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    doorman_examples::init_log();
    let arguments = Arguments::parse();
    let verifier = JwtVerifier::new([JwtKey::hs256(&arguments.secret)?], ISSUER, AUDIENCE)?;
    let doorman = Doorman::builder(arguments.server)
        .service("tenants")
        .callers(Callers::new().jwt(verifier))
        .spawn()?;

    // `tenant/*` is one bucket for all instances. Each route has a limit of its own, so that a
    // flood of one route leaves capacity for the others. Both limits must admit a request, or
    // neither is charged.
    let limits = [
        Limit::rate("tenant/{jwt:sub}")
            .named("tenant")
            .on_missing_key(OnMissingKey::Reject),
        Limit::rate("tenant-route/{jwt:sub}/{route}").named("route"),
    ];
    let app = Router::new()
        .route("/orders", get(|| async { "orders" }))
        .route("/orders/{id}", get(|| async { "one order" }))
        .route_layer(doorman.layer(limits)?);

    let listener = TcpListener::bind(arguments.listen).await?;
    let mut out = io::stdout();
    writeln!(out, "listening on http://{}", listener.local_addr()?)?;
    for tenant in ["acme", "globex"] {
        writeln!(out, "{tenant}: {}", token(tenant, &arguments.secret)?)?;
    }
    axum::serve(listener, app)
        .with_graceful_shutdown(doorman_examples::shutdown_signal()?)
        .await?;
    // When the release fails, the layer has logged it, and the leases end by themselves.
    drop(doorman.shutdown().await);
    Ok(())
}

/// A token for an hour, as an identity provider would issue it.
#[expect(clippy::disallowed_methods, reason = "tokens end by the wall clock")]
fn token(tenant: &str, secret: &str) -> Result<String, Box<dyn Error>> {
    let end = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)? + HOUR;
    let claims = json!({"iss": ISSUER, "aud": AUDIENCE, "sub": tenant, "exp": end.as_secs()});
    let key = EncodingKey::from_secret(secret.as_bytes());
    Ok(jsonwebtoken::encode(&Header::default(), &claims, &key)?)
}
