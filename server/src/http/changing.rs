//! What all calls that change the document have in common: what they are sent with, how they fail, and what they answer.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Path, Request},
    http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header, request::Parts},
    response::IntoResponse,
};
use doorman_config::{Document, EditError, Restrictions, StoreErrorKind, ValidationErrors};
use doorman_openapi::{FieldError, ProblemType};
use serde::de::IgnoredAny;

use super::{
    body,
    conditional::Preconditions,
    internal_error, media, permit,
    query::{self, Query},
    refusal::Refusal,
    reply::Fresh,
};
use crate::{
    auth::Caller,
    document::{DocumentEditor, Edit, EditFailed},
    http::state::AppState,
    quota::{Quotas, ReadKind},
    util::clock,
};

/// How a change is asked for.
#[derive(Debug)]
pub(super) struct Asked {
    caller: Caller,
    /// Only say what it would do.
    dry_run: bool,
    preconditions: Preconditions,
}

impl Asked {
    /// LimitScope, and of what, it may be.
    pub(super) fn restrictions(&self) -> &Restrictions {
        self.caller.restrictions()
    }

    fn of(parts: &Parts, caller: Caller) -> Result<Self, Refusal> {
        Ok(Self {
            caller,
            dry_run: dry_run(&parts.uri)?,
            preconditions: Preconditions::of(&parts.headers),
        })
    }
}

impl FromRequestParts<AppState> for Asked {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Refusal> {
        let caller = Caller::from_request_parts(parts, state).await?;
        Self::of(parts, caller)
    }
}

/// A change, with what is put: JSON in UTF-8, whatever it says.
#[derive(Debug)]
pub(super) struct PutRequest {
    pub(super) asked: Asked,
    pub(super) text: String,
}

impl FromRequest<AppState> for PutRequest {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Refusal> {
        let (mut parts, body) = request.into_parts();
        let asked = Asked::from_request_parts(&mut parts, state).await?;
        media::check(&parts.headers)?;
        let bytes = body::take(&parts.headers, body, &state.room).await?;
        let malformed = |detail| Refusal::new(ProblemType::MalformedRequest, detail);
        let text = String::from_utf8(bytes.into()).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            malformed(format!("the body is not UTF-8 from byte {valid} on"))
        })?;
        if let Err(error) = serde_json::from_str::<IgnoredAny>(&text) {
            return Err(malformed(format!("the body is not JSON: {error}")));
        }
        Ok(Self { asked, text })
    }
}

/// The template or rule that a path names, percent-decoded.
#[derive(Debug)]
pub(super) struct EntryName(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for EntryName {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(_) => Err(query::bad(
                "the name in the path must be percent-encoded UTF-8",
            )),
        }
    }
}

fn dry_run(uri: &Uri) -> Result<bool, Refusal> {
    let [dry_run] = Query::read(uri, ["dry_run"])?.into_values();
    match dry_run.as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(query::bad("`dry_run` in the query must be true or false")),
    }
}

/// Makes a change, or says what it would do. `version` is that of what the call is about, as it is now; `edit` makes the new document.
/// `answer` shows what came of it.
pub(super) async fn change(
    editor: &Arc<DocumentEditor>,
    limits: Arc<Quotas>,
    asked: Asked,
    version: impl FnOnce(&Document) -> Result<Option<String>, Refusal> + Send + 'static,
    edit: impl FnOnce(&Document) -> Result<Document, Refusal> + Send + 'static,
    answer: impl FnOnce(&Edit) -> Response<Body>,
) -> Result<Response<Body>, Refusal> {
    let Asked {
        caller,
        dry_run,
        preconditions,
    } = asked;
    let author = caller.name();
    let (restrictions, told) = (caller.restrictions().clone(), caller.restrictions().clone());
    let plan = move |document: &Document| {
        preconditions.check(version(document)?.as_deref())?;
        let edited = edit(document)?;
        permit::edit(document, &edited, &restrictions)?;
        Ok::<_, Refusal>(edited)
    };
    if dry_run {
        let pause = move || limits.read_delay(ReadKind::All, clock::now());
        let account = editor.dry_run(told, pause, plan).await?;
        Ok(Fresh::new(account).into_response())
    } else {
        let made = editor.edit(author, plan).await?;
        Ok(answer(&made))
    }
}

/// Whether something was there before it was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    There,
    Absent,
}

/// Whether there was one.
pub(super) fn before<T>(was: Option<&T>) -> Before {
    match was {
        Some(_) => Before::There,
        None => Before::Absent,
    }
}

/// The answer that shows something as it is now, with its version.
pub(super) fn shown(before: Before, version: &str, is: impl serde::Serialize) -> Response<Body> {
    let mut response = Fresh::new(is).into_response();
    if response.status().is_success() {
        *response.status_mut() = match before {
            Before::There => StatusCode::OK,
            Before::Absent => StatusCode::CREATED,
        };
        if let Ok(tag) = HeaderValue::try_from(format!("\"{version}\"")) {
            response.headers_mut().insert(header::ETAG, tag);
        }
    }
    response
}

/// What was deleted is not shown.
pub(super) fn gone(_: &Edit) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    response
}

/// Checks what a call that only reads was sent with, against what it is about.
pub(super) fn check_read(headers: &HeaderMap, version: &str) -> Result<(), Refusal> {
    Preconditions::of(headers).check_match(Some(version))
}

pub(super) fn not_there(kind: &str, name: &str) -> Refusal {
    let name: String = name.chars().take(256).collect();
    Refusal::new(
        ProblemType::NotFound,
        format!("the document has no {kind} `{name}`"),
    )
}

impl From<EditError> for Refusal {
    fn from(error: EditError) -> Self {
        match error {
            EditError::Invalid(faults) => faults.into(),
            EditError::Conflict(faults) => {
                let first = faults.list().first();
                let first = first.map_or_else(String::new, ToString::to_string);
                Self::new(
                    ProblemType::Conflict,
                    format!("the rest of the document would be wrong: {first}"),
                )
                .with_errors(errors(&faults))
            }
        }
    }
}

impl From<ValidationErrors> for Refusal {
    fn from(faults: ValidationErrors) -> Self {
        Self::of_faults(errors(&faults))
    }
}

fn errors(faults: &ValidationErrors) -> Vec<FieldError> {
    let listed = faults.list().iter().map(|fault| FieldError {
        pointer: fault.pointer().to_owned(),
        detail: fault.message().to_owned(),
    });
    let omitted = (faults.omitted() > 0).then(|| FieldError {
        pointer: String::new(),
        detail: format!("has {} more faults", faults.omitted()),
    });
    listed.chain(omitted).collect()
}

impl<E: Into<Self>> From<EditFailed<E>> for Refusal {
    fn from(failed: EditFailed<E>) -> Self {
        match failed {
            EditFailed::Rejected(why) => why.into(),
            EditFailed::ReadOnly => Self::new(
                ProblemType::Conflict,
                "the document is not changed here: `config_source` of /v1/status says where it comes from",
            ),
            EditFailed::Busy => Self::new(
                ProblemType::Unavailable,
                "too many changes of the document are under way",
            ),
            EditFailed::Store(error) => {
                let kind = match error.kind() {
                    StoreErrorKind::Full => ProblemType::InsufficientStorage,
                    _ => ProblemType::Unavailable,
                };
                Self::new(kind, format!("nothing was changed: {error}"))
            }
            EditFailed::Poisoned(poisoned) => poisoned.into(),
            EditFailed::Panicked => internal_error(),
        }
    }
}
