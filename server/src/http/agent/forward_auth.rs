//! `/v1/forward-auth`: decides by the rules on a request that a proxy holds back meanwhile.
//!
//! The proxy describes the request. One that puts the path of the request behind that of the agent
//! (Envoy) sends its method and headers as they are. Others (nginx, Traefik, Caddy) send
//! `X-Forwarded-Method` and `X-Forwarded-Uri`. A caller could set further headers itself, so no
//! others are read.

use std::convert::Infallible;

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, Response, Uri, header, request::Parts},
    response::IntoResponse,
};
use doorman_openapi::{ResourceCheck, paths};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use tower::{Layer, ServiceExt, service_fn};
use tower_doorman::{LimitLayer, Outcome, Permit, Refusal, RequestHead};

use super::{
    AgentParts, AgentState,
    answers::{RecentAnswers, RequestId},
    check::too_many_permits,
};
use crate::{http::error::ApiError, util::clock};

const METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const PERMIT: HeaderName = HeaderName::from_static("doorman-permit");

/// RFC 3986, appendix A.
const NOT_IN_URIS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Decide on a forwarded request
///
/// Applies the rules to the request that a proxy describes: by `X-Forwarded-Method` and
/// `X-Forwarded-Uri`, or by the method and the path behind `/v1/forward-auth`. Any method. Gauges
/// are in use until the permit in `Doorman-Permit` is released, or for 60 s. A request with the id
/// of an earlier one, in the header of `--request-id-header`, is answered as before for a second.
#[utoipa::path(
    get,
    path = paths::FORWARD_AUTH,
    params(
        ("X-Forwarded-Method" = inline(Option<String>), Header, description = "The method of the request", example = "GET"),
        ("X-Forwarded-Uri" = inline(Option<String>), Header, description = "The path and query of the request", example = "/orders/7"),
        ("X-Forwarded-Host" = inline(Option<String>), Header, description = "The host of the request; without it, `Host`"),
        ("X-Forwarded-For" = inline(Option<String>), Header, description = "The addresses of the caller and of proxies; the last one is that which the proxy saw")
    ),
    responses(
        (
            status = OK,
            description = "The rules admit the request",
            headers(
                ("RateLimit" = String, description = "What is left of each limit"),
                ("RateLimit-Policy" = String, description = "Each limit"),
                ("Doorman-Permit" = String, description = "The permit of the gauges, if any applies")
            )
        )
    )
)]
pub(super) async fn forward_auth(
    State(agent): State<AgentState>,
    request: Request,
) -> Response<Body> {
    let (parts, _) = request.into_parts();
    match answer(&agent, parts).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

/// Decides on a request once, although a proxy may ask again.
async fn answer(agent: &AgentParts, parts: Parts) -> Result<Response<Body>, ApiError> {
    let id = request_id(agent, &parts)?;
    let request = original(parts)?;
    let Some((answers, id)) = id else {
        return Ok(decide(agent, request).await);
    };
    let id = id.of(&request);
    if let Some(answer) = answers.find(&id) {
        return Ok(answer.map(Body::from));
    }
    let (mut head, body) = decide(agent, request).await.into_parts();
    let body = to_bytes(body, usize::MAX).await;
    let body = body.map_err(|_| ApiError::internal())?;
    head.extensions.clear();
    let response = Response::from_parts(head, body);
    answers.insert(id, response.clone());
    Ok(response.map(Body::from))
}

/// The id of the request. A proxy that puts the path behind that of the agent passes on the headers
/// of the caller.
fn request_id<'a>(
    agent: &'a AgentParts,
    parts: &Parts,
) -> Result<Option<(&'a RecentAnswers, RequestId)>, ApiError> {
    let Some(answers) = &agent.answers else {
        return Ok(None);
    };
    let name = answers.header();
    if path_behind(&parts.uri).is_some() || !parts.headers.contains_key(name) {
        return Ok(None);
    }
    let id = RequestId::new(required(&parts.headers, name)?).ok_or_else(|| invalid(name))?;
    Ok(Some((answers, id)))
}

/// Decides on forwarded requests.
#[derive(Debug)]
pub(crate) struct ForwardRules(LimitLayer);

impl ForwardRules {
    /// A refusal of a gRPC request has an HTTP status, too: the layer answers it with 200, and a
    /// proxy forwards the request then.
    pub(crate) fn new(rules: LimitLayer) -> Self {
        let respond = |refusal: &Refusal, _: &RequestHead<'_>| {
            refusal.to_response(&RequestHead::of(&Request::new(())))
        };
        Self(rules.on_refusal(respond))
    }
}

/// Applies the layer to a service that does nothing.
async fn decide(agent: &AgentParts, request: Request<()>) -> Response<Body> {
    let admit = service_fn(async |request: Request<()>| {
        let mut response = Response::new(Body::empty());
        // The response of the target is not seen.
        response.extensions_mut().insert(Outcome::None);
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(permit) = request.extensions().get::<Permit>() {
            response.extensions_mut().insert(permit.clone());
        }
        Ok::<_, Infallible>(response)
    });
    let limited = agent.rules.0.layer(admit);
    let Ok(mut response) = limited.oneshot(request).await;
    if let Some(permit) = response.extensions_mut().remove::<Permit>() {
        match hold(agent, permit) {
            Ok(id) => response.headers_mut().insert(PERMIT, id),
            Err(error) => return error.into_response(),
        };
    }
    response.map(Body::new)
}

/// The proxy cannot tell when the request ends.
fn hold(agent: &AgentParts, permit: Permit) -> Result<HeaderValue, ApiError> {
    let slot = agent.permits.reserve(1).ok_or_else(too_many_permits)?;
    let ends = clock::now().after(ResourceCheck::DEFAULT_HOLD.duration());
    let id = agent.permits.hold(permit, slot, ends);
    let id = id.ok_or_else(ApiError::internal)?;
    HeaderValue::try_from(id.text()).map_err(|_| ApiError::internal())
}

/// The request that the proxy describes.
fn original(parts: Parts) -> Result<Request<()>, ApiError> {
    let Parts {
        method,
        uri,
        mut headers,
        ..
    } = parts;
    let (method, uri) = match path_behind(&uri) {
        Some(behind) => {
            if let Some(host) = uri
                .authority()
                .filter(|_| !headers.contains_key(header::HOST))
            {
                let host = HeaderValue::from_str(host.as_str());
                headers.insert(header::HOST, host.map_err(|_| invalid(&header::HOST))?);
            }
            (method, parse_uri(behind.as_bytes())?)
        }
        None => {
            let method = required(&headers, &METHOD)?;
            let method = Method::from_bytes(method.as_bytes()).map_err(|_| invalid(&METHOD))?;
            let uri = parse_uri(required(&headers, &URI)?.as_bytes())?;
            if headers.contains_key(HOST) {
                let host = required(&headers, &HOST)?.clone();
                headers.insert(header::HOST, host);
            }
            (method, uri)
        }
    };
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Ok(request)
}

/// The path and query behind that of the agent.
fn path_behind(uri: &Uri) -> Option<&str> {
    let sent = uri.path_and_query().map_or("", |it| it.as_str());
    let behind = sent.strip_prefix(paths::FORWARD_AUTH);
    behind.filter(|behind| behind.starts_with('/'))
}

/// A path with its query. Characters that no URI has are escaped, since a proxy may let them pass.
fn parse_uri(text: &[u8]) -> Result<Uri, ApiError> {
    let escaped = percent_encode(text, NOT_IN_URIS).to_string();
    let uri: Uri = escaped.parse().map_err(|_| invalid(&URI))?;
    if escaped == "*" {
        return Ok(uri);
    }
    if escaped.contains('#') {
        let detail = "the path has a `#`, which servers read differently";
        return Err(ApiError::malformed(detail));
    }
    if uri.path().starts_with('/') {
        Ok(uri)
    } else {
        Err(invalid(&URI))
    }
}

/// The only value of a header.
fn required<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<&'h HeaderValue, ApiError> {
    let mut values = headers.get_all(name).into_iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value),
        (None, _) => Err(ApiError::malformed(format!(
            "missing `{name}`: configure the proxy to describe the request"
        ))),
        (Some(_), Some(_)) => Err(ApiError::malformed(format!("duplicate `{name}`"))),
    }
}

fn invalid(name: &HeaderName) -> ApiError {
    ApiError::malformed(format!("invalid `{name}`"))
}
