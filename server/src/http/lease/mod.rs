//! Lease calls: `POST /v1/capacity` for clients, `POST /v1/server-capacity` for nodes.

mod calls;
pub(super) mod charge;
mod client;
mod hints;
mod node;
mod request;
mod response;

use utoipa_axum::router::OpenApiRouter;

use super::state::AppState;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    client::routes()
        .merge(node::routes())
        .merge(hints::routes())
}
