//! Bodies of lease calls: parsed strictly, then checked for what no type expresses. The first error
//! is reported, with a JSON Pointer to its place. Unknown fields are ignored.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

use axum::extract::{FromRequest, FromRequestParts, Request};
use doorman_config::Restrictions;
use doorman_openapi::{
    Band, Capacity, CapacityRequest, ClientBand, FieldError, MAX_BANDS, MAX_ENTRIES_PER_PRIORITY,
    MAX_RESOURCES, ReleaseRequest, ResourceId, ResourceRequest, ServerCapacityRequest,
    ServerReleaseRequest,
};
use foldhash::fast::RandomState;
use serde::de::DeserializeOwned;

use crate::{
    auth::Caller, http::authorize::FORBIDDEN, http::authorize::above_max_priority,
    http::error::ApiError, http::extract::body, http::extract::json, http::extract::query,
    http::state::AppState,
};
use doorman_core::{ledger::LeaseCall, ledger::ReleaseCall};

/// The most clients that a request replaces.
const MAX_REPLACED: usize = 8;

/// The part by which a sum of bands may differ from `wants`.
const SUM_TOLERANCE: f64 = 1e-9;

pub(in crate::http) trait CallBody: DeserializeOwned {
    type Call: From<Self>;

    /// Checks what the types do not.
    ///
    /// # Errors
    /// The first invalid field.
    fn validate(&self) -> Result<(), FieldError>;

    /// The fields that the caller's restrictions forbid.
    fn forbidden(&self, restrictions: &Restrictions) -> impl Iterator<Item = FieldError>;
}

/// Extracts a lease call that is valid, and that its caller may make.
#[derive(Debug)]
pub(in crate::http) struct LeaseBody<T: CallBody>(pub(super) T::Call);

impl<T: CallBody> FromRequest<AppState> for LeaseBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::from_request_parts(&mut parts, state).await?;
        query::parse(&parts.uri, [])?;
        let bytes = body::read(&parts.headers, body::JSON, body, &state.body_buffer).await?;
        let request: T = parse(&bytes)?;
        authorize(&request, caller.restrictions())?;
        Ok(Self(request.into()))
    }
}

/// Parses and validates a body.
///
/// # Errors
/// 400 unless it is JSON in UTF-8; 422 with the first invalid field.
fn parse<T: CallBody>(bytes: &[u8]) -> Result<T, ApiError> {
    let request: T = json::parse(bytes)?;
    match request.validate() {
        Ok(()) => Ok(request),
        Err(error) => Err(ApiError::invalid(vec![error])),
    }
}

/// Checks a request against the restrictions of its caller. All forbidden fields are listed, so
/// that a client can go on without those resources.
///
/// # Errors
/// 403 with the first 100 forbidden fields, and the number of the others.
fn authorize(request: &impl CallBody, restrictions: &Restrictions) -> Result<(), ApiError> {
    const MAX_LISTED: usize = 100;

    if restrictions.is_unrestricted() {
        return Ok(());
    }
    let mut forbidden = request.forbidden(restrictions);
    let mut errors: Vec<_> = forbidden.by_ref().take(MAX_LISTED).collect();
    let omitted = forbidden.count();
    let Some(first) = errors.first() else {
        return Ok(());
    };
    let mut detail = format!("{} {}", first.pointer, first.detail);
    let others = errors.len().saturating_add(omitted).saturating_sub(1);
    if others > 0 {
        detail += &format!(" (and {others} more errors)");
    }
    if omitted > 0 {
        errors.push(FieldError::new("", format!("has {omitted} more errors")));
    }
    Err(ApiError::restricted(detail).with_errors(errors))
}

impl CallBody for CapacityRequest {
    type Call = LeaseCall;

    fn validate(&self) -> Result<(), FieldError> {
        if self.replaces.len() > MAX_REPLACED {
            let detail = format!("must have at most {MAX_REPLACED} elements");
            return Err(FieldError::new("/replaces", detail));
        }
        unique_resources(self.resources.iter().map(|resource| &resource.resource_id))?;
        for (index, resource) in self.resources.iter().enumerate() {
            if let Some(bands) = &resource.bands {
                valid_bands(index, resource, bands)?;
            }
        }
        Ok(())
    }

    fn forbidden(&self, restrictions: &Restrictions) -> impl Iterator<Item = FieldError> {
        let resources = self.resources.iter().enumerate();
        let fields = resources.flat_map(move |(index, resource)| {
            let bands = resource.bands.iter().flatten().enumerate();
            let bands = bands.filter_map(move |(band, wants)| {
                let pointer = || format!("/resources/{index}/bands/{band}/priority");
                forbidden_priority(pointer, wants.priority, restrictions)
            });
            // With bands it is their highest priority, or absent.
            let alone = resource.bands.is_none().then_some(resource.priority);
            let priority = alone.and_then(|priority| {
                let pointer = || format!("/resources/{index}/priority");
                forbidden_priority(pointer, priority.unwrap_or(0), restrictions)
            });
            forbidden_resource(index, &resource.resource_id, restrictions)
                .into_iter()
                .chain(priority)
                .chain(bands)
        });
        let replaced = self.replaces.iter().enumerate();
        let replaced = replaced.filter_map(move |(index, client)| {
            forbidden_holder(&format!("/replaces/{index}"), client.as_str(), restrictions)
        });
        forbidden_holder("/client_id", self.client_id.as_str(), restrictions)
            .into_iter()
            .chain(replaced)
            .chain(fields)
    }
}

impl CallBody for ServerCapacityRequest {
    type Call = LeaseCall;

    fn validate(&self) -> Result<(), FieldError> {
        unique_resources(self.resources.iter().map(|resource| &resource.resource_id))?;
        for (index, resource) in self.resources.iter().enumerate() {
            let bands = &resource.wants;
            let wants: f64 = bands.iter().map(|band| band.wants.get()).sum();
            let invalid = |detail| FieldError::new(format!("/resources/{index}/wants"), detail);
            if bands.is_empty() {
                return Err(invalid("must have at least 1 element"));
            }
            if wants > Capacity::MAX.get() {
                return Err(invalid("must sum to at most 1e15"));
            }
            if let Some(band) = first_beyond_limit(bands) {
                return Err(FieldError::new(
                    format!("/resources/{index}/wants/{band}/priority"),
                    format!("must be the priority of at most {MAX_ENTRIES_PER_PRIORITY} entries"),
                ));
            }
        }
        Ok(())
    }

    fn forbidden(&self, restrictions: &Restrictions) -> impl Iterator<Item = FieldError> {
        let resources = self.resources.iter().enumerate();
        let fields = resources.flat_map(move |(index, resource)| {
            let bands = resource.wants.iter().enumerate();
            let priorities = bands.filter_map(move |(band, wants)| {
                let pointer = || format!("/resources/{index}/wants/{band}/priority");
                forbidden_priority(pointer, wants.priority, restrictions)
            });
            forbidden_resource(index, &resource.resource_id, restrictions)
                .into_iter()
                .chain(priorities)
        });
        forbidden_holder("/node_id", self.node_id.as_str(), restrictions)
            .into_iter()
            .chain(fields)
    }
}

impl CallBody for ReleaseRequest {
    type Call = ReleaseCall;

    fn validate(&self) -> Result<(), FieldError> {
        unique_resource_ids(self.resource_ids.as_deref())
    }

    fn forbidden(&self, restrictions: &Restrictions) -> impl Iterator<Item = FieldError> {
        forbidden_holder("/client_id", self.client_id.as_str(), restrictions)
            .into_iter()
            .chain(forbidden_resource_ids(
                self.resource_ids.as_deref(),
                restrictions,
            ))
    }
}

impl CallBody for ServerReleaseRequest {
    type Call = ReleaseCall;

    fn validate(&self) -> Result<(), FieldError> {
        unique_resource_ids(self.resource_ids.as_deref())
    }

    fn forbidden(&self, restrictions: &Restrictions) -> impl Iterator<Item = FieldError> {
        forbidden_holder("/node_id", self.node_id.as_str(), restrictions)
            .into_iter()
            .chain(forbidden_resource_ids(
                self.resource_ids.as_deref(),
                restrictions,
            ))
    }
}

/// The bands of a client agree with its `wants` and `priority`.
fn valid_bands(
    index: usize,
    resource: &ResourceRequest,
    bands: &[ClientBand],
) -> Result<(), FieldError> {
    let invalid = |field: &str, detail: String| {
        Err(FieldError::new(
            format!("/resources/{index}/{field}"),
            detail,
        ))
    };
    let priorities = bands.iter().map(|band| band.priority);
    let highest = priorities.clone().max();
    let Some(highest) = highest.filter(|_| bands.len() <= MAX_BANDS) else {
        let count = bands.len();
        let detail = format!("must have 1 to {MAX_BANDS} elements, not {count}");
        return invalid("bands", detail);
    };
    if let Some(band) = first_repeated(priorities) {
        let field = format!("bands/{band}/priority");
        return invalid(&field, "duplicate priority".to_owned());
    }
    let sum: f64 = bands.iter().map(|band| band.wants.get()).sum();
    let wants = resource.wants.get();
    if (sum - wants).abs() > SUM_TOLERANCE * sum.max(wants) {
        return invalid(
            "wants",
            format!("must be the sum of `bands`, {sum}, not {wants}"),
        );
    }
    match resource.priority {
        Some(priority) if priority != highest => invalid(
            "priority",
            format!("must be absent or the highest of `bands`, {highest}, not {priority}"),
        ),
        _ => Ok(()),
    }
}

fn unique_resources<'a>(
    ids: impl ExactSizeIterator<Item = &'a ResourceId>,
) -> Result<(), FieldError> {
    check_unique(ids, "/resources", "/resource_id")
}

fn unique_resource_ids(ids: Option<&[ResourceId]>) -> Result<(), FieldError> {
    check_unique(ids.unwrap_or_default().iter(), "/resource_ids", "")
}

fn check_unique<'a>(
    ids: impl ExactSizeIterator<Item = &'a ResourceId>,
    list: &str,
    field: &str,
) -> Result<(), FieldError> {
    if ids.len() > MAX_RESOURCES {
        let count = ids.len();
        let detail = format!("must have at most {MAX_RESOURCES} elements, not {count}");
        return Err(FieldError::new(list, detail));
    }
    match first_repeated(ids) {
        None => Ok(()),
        Some(index) => Err(FieldError::new(
            format!("{list}/{index}{field}"),
            "duplicate resource",
        )),
    }
}

/// The index of the first entry beyond the most of one priority.
fn first_beyond_limit(bands: &[Band]) -> Option<usize> {
    // The usual request has few.
    if bands.len() <= MAX_ENTRIES_PER_PRIORITY {
        return None;
    }
    let mut entries: HashMap<i32, usize, RandomState> = HashMap::default();
    bands.iter().position(|band| {
        let entries = entries.entry(band.priority).or_default();
        *entries = entries.saturating_add(1);
        *entries > MAX_ENTRIES_PER_PRIORITY
    })
}

/// The index of the first element that equals an earlier one.
fn first_repeated<T: Eq + Hash>(mut items: impl ExactSizeIterator<Item = T>) -> Option<usize> {
    // The usual request has one.
    if items.len() <= 1 {
        return None;
    }
    let mut seen = HashSet::with_capacity_and_hasher(items.len(), RandomState::default());
    items.position(|item| !seen.insert(item))
}

fn forbidden_holder(pointer: &str, name: &str, restrictions: &Restrictions) -> Option<FieldError> {
    (!restrictions.allows_client(name)).then(|| FieldError::new(pointer, FORBIDDEN))
}

fn forbidden_resource(
    index: usize,
    id: &ResourceId,
    restrictions: &Restrictions,
) -> Option<FieldError> {
    (!restrictions.allows_resource(id.as_str()))
        .then(|| FieldError::new(format!("/resources/{index}/resource_id"), FORBIDDEN))
}

fn forbidden_priority(
    pointer: impl FnOnce() -> String,
    priority: i32,
    restrictions: &Restrictions,
) -> Option<FieldError> {
    (!restrictions.allows_priority(priority))
        .then(|| FieldError::new(pointer(), above_max_priority(restrictions)))
}

/// A release without a list is limited to the allowed resources elsewhere.
fn forbidden_resource_ids(
    ids: Option<&[ResourceId]>,
    restrictions: &Restrictions,
) -> impl Iterator<Item = FieldError> {
    let ids = ids.unwrap_or_default().iter().enumerate();
    ids.filter(|(_, id)| !restrictions.allows_resource(id.as_str()))
        .map(|(index, _)| FieldError::new(format!("/resource_ids/{index}"), FORBIDDEN))
}

#[cfg(test)]
mod tests;
