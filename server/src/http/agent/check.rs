//! `POST /v1/check`, the renewal and release of permits, and outcomes.

use std::{collections::HashSet, time::Duration};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, Response, StatusCode},
    response::IntoResponse,
};
use doorman_openapi::{
    CheckOutcome, CheckOutcomeRequest, CheckPermit, CheckReleaseRequest, CheckReleaseResponse,
    CheckRenewRequest, CheckRenewResponse, CheckRequest, CheckResponse, EndedPermit, FieldError,
    MAX_CHECKED, MAX_RELEASED, PermitRelease, ProblemType, RequestCount, ResourceCheck, ResourceId,
    ResourceOutcome, Rule, Seconds, Unit, paths,
};
use serde::de::DeserializeOwned;
use tower_doorman::{
    AdmittedCheck, CheckError, Cost, Outcome, OutcomeReport, RequestHead, ResourceUse,
};

use super::{AgentParts, AgentState, permits::PermitId};
use crate::{
    http::{
        error::ApiError,
        extract::{body, json, query},
        response::Json,
    },
    util::clock,
};

pub(super) const UNKNOWN_PERMIT: &str = "unknown permit: it was released, or its time has ended";

/// Check resources
///
/// Takes of every resource, or of none. A gauge is in use until its permit is released, or for
/// `hold_seconds`. With `max_wait` a check waits in the queue of a limit that it exceeds; a caller
/// that disconnects leaves it. The response says what is left in `RateLimit`, by resource.
#[utoipa::path(
    post,
    path = paths::CHECK,
    request_body = CheckRequest,
    responses(
        (
            status = OK,
            description = "Every resource admits it",
            body = CheckResponse,
            headers(
                ("RateLimit" = String, description = "What is left of each resource"),
                ("RateLimit-Policy" = String, description = "The limit of each resource")
            )
        )
    )
)]
pub(super) async fn check_resources(
    State(agent): State<AgentState>,
    request: Request,
) -> Response<Body> {
    match decide(&agent, request).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

async fn decide(agent: &AgentParts, request: Request) -> Result<Response<Body>, ApiError> {
    let (request, head) = read::<CheckRequest>(agent, request).await?;
    let is_list = request.resources.is_some();
    let max_wait = max_wait(&request).map_err(|error| ApiError::invalid(vec![error]))?;
    let resources = resources(request).map_err(|error| ApiError::invalid(vec![error]))?;
    let gauges = resources.iter().filter(|it| it.unit == Unit::Gauge).count();
    let mut slots = agent.permits.reserve(gauges).ok_or_else(too_many_permits)?;
    let uses: Vec<_> = resources.iter().map(resource_use).collect();
    let admitted = match check(agent, &uses, max_wait).await? {
        Ok(admitted) => admitted,
        Err(CheckError::Refused(refused)) => {
            return Ok(refused.to_response(&RequestHead::of(&head)).map(Body::from));
        }
        Err(CheckError::OtherUnit(index)) => {
            return Err(ApiError::invalid(vec![other_unit(
                &resources, index, is_list,
            )]));
        }
        Err(_) => return Err(ApiError::internal()),
    };
    let mut headers = HeaderMap::new();
    admitted.append_headers(&mut headers);
    let now = clock::now();
    let mut permits = Vec::new();
    for (resource_id, permit) in admitted.into_permits() {
        let slot = slots.split(1).ok_or_else(ApiError::internal)?;
        let ends = now.after(hold(&resources, &resource_id).duration());
        let id = agent.permits.hold(permit, slot, ends);
        let permit = id.ok_or_else(ApiError::internal)?.text();
        permits.push(CheckPermit {
            resource_id,
            permit,
        });
    }
    let mut response = Json(CheckResponse { permits }).into_response();
    response.headers_mut().extend(headers);
    Ok(response)
}

/// A check that waits ends when the agent shuts down.
async fn check(
    agent: &AgentParts,
    uses: &[ResourceUse],
    max_wait: Duration,
) -> Result<Result<AdmittedCheck, CheckError>, ApiError> {
    tokio::select! {
        biased;
        decided = agent.checks.check_within(uses, max_wait) => Ok(decided),
        () = agent.draining.begun() => Err(ApiError::unavailable("the agent is shutting down")),
    }
}

/// Renew a permit
///
/// Extends the time of a permit. It never ends sooner than before.
#[utoipa::path(
    post,
    path = paths::CHECK_RENEW,
    request_body = CheckRenewRequest,
    responses((status = OK, description = "The permit is in use for longer", body = CheckRenewResponse))
)]
pub(super) async fn renew_permit(
    State(agent): State<AgentState>,
    request: Request,
) -> Result<Json<CheckRenewResponse>, ApiError> {
    let (request, _) = read::<CheckRenewRequest>(&agent, request).await?;
    let hold = request.hold_seconds.unwrap_or(ResourceCheck::DEFAULT_HOLD);
    validate_hold(hold, "/hold_seconds").map_err(|error| ApiError::invalid(vec![error]))?;
    let now = clock::now();
    let renewed = PermitId::parse(&request.permit)
        .and_then(|id| agent.permits.renew(id, hold.duration(), now));
    match renewed {
        Some(ends) => Ok(Json(CheckRenewResponse {
            hold_seconds: ends.since(now).into(),
        })),
        None => Err(ApiError::new(ProblemType::NotFound, UNKNOWN_PERMIT)),
    }
}

/// Release permits
///
/// Gives the units of gauges back, and states the outcomes of their operations. The call is
/// idempotent: unknown and released permits are ignored.
#[utoipa::path(
    post,
    path = paths::CHECK_RELEASE,
    request_body = CheckReleaseRequest,
    responses((status = OK, description = "The permits are given back", body = CheckReleaseResponse))
)]
pub(super) async fn release_permits(
    State(agent): State<AgentState>,
    request: Request,
) -> Result<Json<CheckReleaseResponse>, ApiError> {
    let (request, _) = read::<CheckReleaseRequest>(&agent, request).await?;
    let permits = request.permits;
    if permits.len() > MAX_RELEASED {
        let detail = format!(
            "must have at most {MAX_RELEASED} elements, not {}",
            permits.len()
        );
        return Err(ApiError::invalid_field("/permits", detail));
    }
    let permits = permits.iter().filter_map(|it| match it {
        PermitRelease::Silent(permit) => Some((PermitId::parse(permit)?, None)),
        PermitRelease::WithOutcome(EndedPermit { permit, outcome }) => {
            Some((PermitId::parse(permit)?, Some(outcome_of(*outcome))))
        }
    });
    let released = agent.permits.release(permits);
    Ok(Json(CheckReleaseResponse { released }))
}

/// Report outcomes
///
/// States what became of operations that checks admitted, so that the control plane sees which
/// targets refuse requests. A repeated call counts again. The outcome of an operation with a permit
/// is stated by the release of the permit.
#[utoipa::path(
    post,
    path = paths::CHECK_OUTCOME,
    request_body = CheckOutcomeRequest,
    responses((status = NO_CONTENT, description = "The outcomes are counted"))
)]
pub(super) async fn report_outcomes(
    State(agent): State<AgentState>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let (request, _) = read::<CheckOutcomeRequest>(&agent, request).await?;
    let all = request.resources;
    if all.is_empty() || all.len() > MAX_CHECKED {
        let detail = format!("must have 1 to {MAX_CHECKED} elements, not {}", all.len());
        return Err(ApiError::invalid_field("/resources", detail));
    }
    let reports = all.iter().enumerate().map(|(index, one)| {
        let report = outcome_report(one, &format!("/resources/{index}"))?;
        Ok((&one.resource_id, report))
    });
    let reports = reports.collect::<Result<Vec<_>, FieldError>>();
    let reports = reports.map_err(|error| ApiError::invalid(vec![error]))?;
    for (resource, report) in reports {
        agent.checks.outcome(resource, &report);
    }
    Ok(StatusCode::NO_CONTENT)
}

fn outcome_report(one: &ResourceOutcome, place: &str) -> Result<OutcomeReport, FieldError> {
    let most = ResourceOutcome::MAX_COUNT;
    let count = one.count.map_or(1, RequestCount::get);
    if count == 0 || count > most {
        let detail = format!("must be from 1 to {most}, not {count}");
        return Err(FieldError::new(format!("{place}/count"), detail));
    }
    let mut report = OutcomeReport::new(outcome_of(one.outcome)).count(count);
    if let Some(pause) = one.pause {
        if one.outcome != CheckOutcome::Overloaded {
            let detail = "is only for `outcome` overloaded";
            return Err(FieldError::new(format!("{place}/pause"), detail));
        }
        report = report.pause(pause.duration());
    }
    if let Some(seen) = one.seen {
        report = report.seen(seen);
    }
    Ok(report)
}

fn outcome_of(stated: CheckOutcome) -> Outcome {
    match stated {
        CheckOutcome::Ok => Outcome::Ok,
        CheckOutcome::Overloaded => Outcome::Overloaded,
        CheckOutcome::Failed => Outcome::Failed,
        CheckOutcome::None => Outcome::None,
    }
}

async fn read<T: DeserializeOwned>(
    agent: &AgentParts,
    request: Request,
) -> Result<(T, Request<()>), ApiError> {
    let (head, body) = request.into_parts();
    query::parse(&head.uri, [])?;
    let bytes = body::read(&head.headers, body::JSON, body, &agent.body_buffer).await?;
    Ok((json::parse(&bytes)?, Request::from_parts(head, ())))
}

/// The resources of a valid request.
fn resources(request: CheckRequest) -> Result<Vec<ResourceCheck>, FieldError> {
    let CheckRequest {
        resources,
        resource_id,
        cost,
        unit,
        hold_seconds,
        max_wait: _,
    } = request;
    let has_other_fields = cost.is_some() || unit.is_some() || hold_seconds.is_some();
    match (resources, resource_id) {
        (Some(_), Some(_)) => Err(FieldError::new(
            "",
            "has both `resources` and `resource_id`",
        )),
        (Some(_), None) if has_other_fields => Err(FieldError::new(
            "",
            "has fields of one resource beside `resources`; they belong into its elements",
        )),
        (None, None) => Err(FieldError::new(
            "",
            "must have `resources` or `resource_id`",
        )),
        (None, Some(resource_id)) => {
            let one = ResourceCheck {
                resource_id,
                cost: cost.unwrap_or_else(Rule::default_cost),
                unit: unit.unwrap_or_default(),
                hold_seconds,
            };
            validate(&one, "")?;
            Ok(vec![one])
        }
        (Some(all), None) => {
            if all.is_empty() || all.len() > MAX_CHECKED {
                let detail = format!("must have 1 to {MAX_CHECKED} elements, not {}", all.len());
                return Err(FieldError::new("/resources", detail));
            }
            let mut seen = HashSet::with_capacity(all.len());
            for (index, one) in all.iter().enumerate() {
                let place = format!("/resources/{index}");
                if !seen.insert(&one.resource_id) {
                    return Err(FieldError::new(
                        format!("{place}/resource_id"),
                        "duplicate resource",
                    ));
                }
                validate(one, &place)?;
            }
            Ok(all)
        }
    }
}

fn validate(one: &ResourceCheck, place: &str) -> Result<(), FieldError> {
    if one.cost.get() <= 0.0 {
        return Err(FieldError::new(
            format!("{place}/cost"),
            "must be more than 0",
        ));
    }
    let Some(hold) = one.hold_seconds else {
        return Ok(());
    };
    let place = format!("{place}/hold_seconds");
    if one.unit == Unit::Rate {
        return Err(FieldError::new(
            place,
            "is only for a resource with `unit` gauge",
        ));
    }
    validate_hold(hold, &place)
}

fn validate_hold(hold: Seconds, place: &str) -> Result<(), FieldError> {
    if hold <= Seconds::ZERO || hold > ResourceCheck::MAX_HOLD {
        let longest = ResourceCheck::MAX_HOLD;
        let detail = format!("must be more than 0, and at most {longest}, not {hold}");
        return Err(FieldError::new(place, detail));
    }
    Ok(())
}

fn max_wait(request: &CheckRequest) -> Result<Duration, FieldError> {
    let max_wait = request.max_wait.unwrap_or(Seconds::ZERO);
    if max_wait > CheckRequest::MAX_WAIT {
        let longest = CheckRequest::MAX_WAIT;
        let detail = format!("must be at most {longest}, not {max_wait}");
        return Err(FieldError::new("/max_wait", detail));
    }
    Ok(max_wait.duration())
}

fn resource_use(one: &ResourceCheck) -> ResourceUse {
    let resource = one.resource_id.as_str();
    let it = match one.unit {
        Unit::Rate => ResourceUse::rate(resource),
        Unit::Gauge => ResourceUse::gauge(resource),
    };
    it.cost(Cost::new(one.cost.get()).unwrap_or_default())
}

/// How long a permit is held. One that several gauges share is held for the longest of them.
fn hold(resources: &[ResourceCheck], id: &ResourceId) -> Seconds {
    let own = resources.iter().find(|it| it.resource_id == *id);
    let of = |it: &ResourceCheck| it.hold_seconds.unwrap_or(ResourceCheck::DEFAULT_HOLD);
    match own {
        Some(own) => of(own),
        None => {
            let gauges = resources.iter().filter(|it| it.unit == Unit::Gauge);
            Seconds::saturating(gauges.map(|it| of(it).get()).fold(0.0, f64::max))
        }
    }
}

fn other_unit(resources: &[ResourceCheck], index: usize, is_list: bool) -> FieldError {
    let place = if is_list {
        format!("/resources/{index}/unit")
    } else {
        "/unit".to_owned()
    };
    let other = match resources.get(index).map(|it| it.unit) {
        Some(Unit::Gauge) => "rate",
        Some(Unit::Rate) | None => "gauge",
    };
    let detail =
        format!("must be `{other}`: the resource is one, or this agent uses it as one by a rule");
    FieldError::new(place, detail)
}

pub(super) fn too_many_permits() -> ApiError {
    ApiError::unavailable("too many permits are held: release them, or raise --max-permits")
}
