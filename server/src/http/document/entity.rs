//! Reads and changes of one entity of the document: a template or a rule.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::FromRequestParts,
    http::{HeaderMap, Response, request::Parts},
};
use doorman_config::{Document, EditError, Edited, EntryKind, Restrictions, Rule, Template};
use doorman_openapi::ProblemType;
use serde::Serialize;

use super::edit::{self, EditRequest};
use crate::{
    auth::Caller,
    http::{
        authorize,
        error::ApiError,
        extract::NoQuery,
        response::conditional::{self, Preconditions},
        state::{AppParts, AppState},
    },
};

/// A change of one entity, with the text of its body.
#[derive(Debug)]
pub(super) enum Change {
    Put(String),
    Patch(String),
    Delete,
}

/// A named and versioned part of the document.
pub(super) trait Entity: Serialize + 'static {
    /// The noun of error texts.
    const KIND: &'static str;
    const ENTRY: EntryKind;

    fn find<'d>(document: &'d Document, name: &str) -> Option<&'d Self>;

    fn version(&self) -> String;

    /// Applies a change. `None`: there is no such entity.
    fn edit(document: &Document, name: &str, change: &Change) -> Option<Result<Edited, EditError>> {
        let edited = match change {
            Change::Put(text) => return Some(document.with(Self::ENTRY, name, text)),
            Change::Patch(text) => document.with_patched(Self::ENTRY, name, text),
            Change::Delete => document.without(Self::ENTRY, name),
        };
        edited.map(|it| it.map(Edited::from))
    }

    /// The document for reads.
    ///
    /// # Errors
    /// 404 or 503 at a node that has none.
    fn document(app: &AppParts) -> Result<Arc<Document>, ApiError>;

    /// Checks that a caller may name the entity, whether it exists or not.
    ///
    /// # Errors
    /// 403.
    fn authorize_name(_name: &str, _restrictions: &Restrictions) -> Result<(), ApiError> {
        Ok(())
    }

    /// Checks that a caller may access the entity.
    ///
    /// # Errors
    /// 403.
    fn authorize(
        _entity: Option<&Self>,
        _name: &str,
        _restrictions: &Restrictions,
    ) -> Result<(), ApiError> {
        Ok(())
    }
}

impl Entity for Template {
    const KIND: &'static str = "template";
    const ENTRY: EntryKind = EntryKind::Template;

    fn find<'d>(document: &'d Document, name: &str) -> Option<&'d Self> {
        document.template(name).map(Arc::as_ref)
    }

    fn version(&self) -> String {
        self.version()
    }

    /// A node below the root has no templates: terms come with the leases from its parent.
    fn document(app: &AppParts) -> Result<Arc<Document>, ApiError> {
        match &app.server.parent {
            Some(parent) => Err(ApiError::at_root(ProblemType::NotFound, parent)),
            None => Ok(app.document.get()),
        }
    }

    fn authorize_name(name: &str, restrictions: &Restrictions) -> Result<(), ApiError> {
        authorize::template(name, restrictions)
    }
}

impl Entity for Rule {
    const KIND: &'static str = "rule";
    const ENTRY: EntryKind = EntryKind::Rule;

    fn find<'d>(document: &'d Document, name: &str) -> Option<&'d Self> {
        document.rule(name)
    }

    fn version(&self) -> String {
        self.version()
    }

    /// A layer keeps the rules that it has when a node has no rules of its parent yet.
    fn document(app: &AppParts) -> Result<Arc<Document>, ApiError> {
        match &app.server.parent {
            Some(parent) if !parent.has_rules() => Err(ApiError::unavailable(
                "this node has no rules yet: its parent has not answered; retry later",
            )),
            _ => Ok(app.document.get()),
        }
    }

    fn authorize(
        entity: Option<&Self>,
        name: &str,
        restrictions: &Restrictions,
    ) -> Result<(), ApiError> {
        authorize::rule(entity, name, restrictions)
    }
}

/// A conditional read without query parameters.
#[derive(Debug)]
pub(in crate::http) struct ReadRequest {
    pub(super) app: AppState,
    pub(super) caller: Caller,
    headers: HeaderMap,
    /// The newest document was asked for, and could not be read.
    is_stale: bool,
}

impl FromRequestParts<AppState> for ReadRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let caller = Caller::from_request_parts(parts, state).await?;
        NoQuery::from_request_parts(parts, state).await?;
        Ok(Self {
            app: state.clone(),
            caller,
            headers: std::mem::take(&mut parts.headers),
            is_stale: false,
        })
    }
}

impl ReadRequest {
    /// Activates the newest document if the caller asks for it. The response says if it cannot be
    /// read.
    pub(super) async fn refresh(&mut self) {
        if conditional::wants_newest(&self.headers) {
            self.is_stale = self.app.editor.refresh().await.is_err();
        }
    }

    /// The response with a value of this version.
    ///
    /// # Errors
    /// 412 if the request is for another version.
    pub(super) fn respond(
        &self,
        version: &str,
        value: &impl Serialize,
    ) -> Result<Response<Body>, ApiError> {
        Preconditions::of(&self.headers).check_if_match(Some(version))?;
        let mut response = conditional::json(&self.headers, version, || value);
        if self.is_stale {
            conditional::set_stale(&mut response);
        }
        Ok(response)
    }

    pub(super) async fn entity<T: Entity>(
        mut self,
        name: &str,
    ) -> Result<Response<Body>, ApiError> {
        T::authorize_name(name, self.caller.restrictions())?;
        self.refresh().await;
        let restrictions = self.caller.restrictions();
        let document = T::document(&self.app)?;
        let entity = T::find(&document, name);
        T::authorize(entity, name, restrictions)?;
        let entity = entity.ok_or_else(|| not_found::<T>(name))?;
        self.respond(&entity.version(), entity)
    }
}

/// Changes an entity, or describes the change in a dry run.
pub(super) async fn change<T: Entity>(
    request: EditRequest,
    name: String,
    change: Change,
) -> Result<Response<Body>, ApiError> {
    T::authorize_name(&name, request.restrictions())?;
    let changed = name.clone();
    let restrictions = request.restrictions().clone();
    let preconditions = request.preconditions.clone();
    let plan = move |document: &Document| {
        let entity = T::find(document, &name);
        let creates = entity.is_none() && matches!(change, Change::Put(_));
        if !creates {
            T::authorize(entity, &name, &restrictions)?;
        }
        let missing = || match &change {
            Change::Patch(_) => not_found::<T>(&name).with_hint("PUT creates one"),
            Change::Put(_) | Change::Delete => not_found::<T>(&name),
        };
        if entity.is_none() && !creates {
            return Err(missing());
        }
        preconditions.check(entity.map(T::version).as_deref())?;
        let edited = T::edit(document, &name, &change).ok_or_else(missing)??;
        authorize::edit(document, &edited.document, &restrictions)?;
        Ok(edited)
    };
    if request.dry_run {
        return request.describe(plan).await;
    }
    let restrictions = request.restrictions().clone();
    let edit = request.make(plan).await?;
    Ok(match T::find(&edit.after, &changed) {
        Some(entity) => {
            let is_new = T::find(&edit.before, &changed).is_none();
            edit::saved(&edit, entity, &entity.version(), is_new, &restrictions)
        }
        None => edit::deleted(&edit, &restrictions),
    })
}

fn not_found<T: Entity>(name: &str) -> ApiError {
    let name: String = name.chars().take(256).collect();
    ApiError::new(
        ProblemType::NotFound,
        format!("the document has no {} `{name}`", T::KIND),
    )
}
