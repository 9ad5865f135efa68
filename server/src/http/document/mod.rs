//! The configuration document: templates, rules and history.

mod edit;
mod history;
mod rules;
mod templates;

use utoipa_axum::router::OpenApiRouter;

use super::state::AppState;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    templates::routes()
        .merge(rules::routes())
        .merge(history::routes())
}
