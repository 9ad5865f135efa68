//! The state of the server: live resources, their leases, and the server itself.

pub(super) mod cursor;
mod leases;
mod resources;
mod status;

use utoipa_axum::router::OpenApiRouter;

use super::state::AppState;

/// How many elements one lock of the ledger covers.
const CHUNK: usize = 32;

/// How many chunks one page may take: a restricted token may see few of very many.
const MAX_CHUNKS: usize = 64;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    status::routes()
        .merge(resources::routes())
        .merge(leases::routes())
}
