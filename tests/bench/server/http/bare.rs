//! The alternative: a handler as one writes it in axum, with plain types. It answers with as many bytes, and keeps nothing.

use std::{error::Error, future::Future, net::SocketAddr};

use axum::{Json, Router, routing::post, serve::ListenerExt};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::process;

#[derive(Deserialize)]
struct Request {
    #[expect(
        dead_code,
        reason = "it is read off the wire, and nothing is made of it"
    )]
    client_id: String,
    #[expect(dead_code, reason = "likewise")]
    seq: Option<u64>,
    resources: Vec<Asked>,
}

#[derive(Deserialize)]
struct Asked {
    resource_id: String,
    wants: f64,
    #[expect(dead_code, reason = "likewise")]
    has: Option<Held>,
    #[expect(dead_code, reason = "likewise")]
    used: Option<f64>,
}

#[derive(Deserialize)]
struct Held {
    #[expect(dead_code, reason = "likewise")]
    capacity: f64,
}

#[derive(Serialize)]
struct Response {
    node: &'static str,
    epoch: u64,
    resources: Vec<Answer>,
}

#[derive(Serialize)]
struct Answer {
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

async fn answer(Json(request): Json<Request>) -> Json<Response> {
    let resources = request.resources.into_iter().map(|asked| Answer {
        resource_id: asked.resource_id,
        gets: Lease {
            capacity: asked.wants,
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

/// Serves until `ended` is ready.
pub(crate) async fn serve(
    ended: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    process::tell(listener.local_addr()?)?;
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let router = Router::new().route("/v1/capacity", post(answer));
    axum::serve(listener, router)
        .with_graceful_shutdown(ended)
        .await?;
    Ok(())
}
