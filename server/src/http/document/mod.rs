//! The configuration document: templates, rules and history.

mod edit;
mod entity;
pub(super) mod history;
pub(super) mod rules;
pub(super) mod templates;
