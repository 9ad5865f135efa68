//! The state of the server: live resources, their leases, and the server itself.

mod client_leases;
pub(super) mod cursor;
mod leases;
mod resources;
mod status;

use utoipa_axum::router::OpenApiRouter;

use super::{error::ApiError, state::AppState};

/// How many elements one lock of the ledger covers.
const CHUNK: usize = 32;

/// How many chunks one page may take: a restricted token may see few of very many.
const MAX_CHUNKS: usize = 64;

/// How many chunks of up to 1024 entries a sorted page may take: it reads the whole list.
const MAX_SORT_CHUNKS: usize = 4096;

fn too_many_to_sort() -> ApiError {
    ApiError::malformed("too many entries to sort for this token; narrow them down by `prefix`")
}

pub(super) fn routes() -> OpenApiRouter<AppState> {
    status::routes()
        .merge(resources::routes())
        .merge(leases::routes())
        .merge(client_leases::routes())
}
