//! The alternative: a plain axum handler. Its response has as many bytes, but it keeps no state.

use std::{error::Error, future::Future, net::SocketAddr};

use axum::{Json, Router, routing::post, serve::ListenerExt};
use doorman_bench::announce;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

#[derive(Deserialize)]
struct Request {
    #[expect(dead_code, reason = "parsed but not used")]
    client_id: String,
    #[expect(dead_code, reason = "parsed but not used")]
    seq: Option<u64>,
    resources: Vec<ResourceRequest>,
}

#[derive(Deserialize)]
struct ResourceRequest {
    resource_id: String,
    wants: f64,
    #[expect(dead_code, reason = "parsed but not used")]
    has: Option<Held>,
    #[expect(dead_code, reason = "parsed but not used")]
    used: Option<f64>,
}

#[derive(Deserialize)]
struct Held {
    #[expect(dead_code, reason = "parsed but not used")]
    capacity: f64,
}

#[derive(Serialize)]
struct Response {
    node: &'static str,
    epoch: u64,
    resources: Vec<ResourceResponse>,
}

#[derive(Serialize)]
struct ResourceResponse {
    resource_id: String,
    gets: Lease,
    reason: &'static str,
    template: &'static str,
    limit: f64,
    unit: &'static str,
    per: f64,
    safe_capacity: f64,
}

#[derive(Serialize)]
struct Lease {
    capacity: f64,
    lease_length: f64,
    refresh_interval: f64,
    expiry_time: u64,
}

async fn respond(Json(request): Json<Request>) -> Json<Response> {
    let resources = request
        .resources
        .into_iter()
        .map(|resource| ResourceResponse {
            resource_id: resource.resource_id,
            gets: Lease {
                capacity: resource.wants,
                lease_length: 60.0,
                refresh_interval: 5.0,
                expiry_time: 1_795_123_516,
            },
            reason: "granted",
            template: "*",
            limit: 25_000.0,
            unit: "rate",
            per: 1.0,
            safe_capacity: 25.0,
        });
    Json(Response {
        node: "node-5a1c9e0b7d2f4386",
        epoch: 1_795_123_456,
        resources: resources.collect(),
    })
}

/// Serves until `stop` completes.
pub(crate) async fn serve(
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    announce(listener.local_addr()?)?;
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let router = Router::new().route("/v1/capacity", post(respond));
    axum::serve(listener, router)
        .with_graceful_shutdown(stop)
        .await?;
    Ok(())
}
