//! What a server's response means. It is untrusted: whatever it says, this ends in leases or in a failure.

use std::time::Duration;

use bytes::Bytes;
use doorman_openapi::{CapacityResponse, Problem};
use http::{HeaderName, Response, StatusCode, header};
use serde_json::from_slice;

use super::{Failure, address::Address, rules::News};

/// A failure, and what the log should say of it.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) failure: Failure,
    pub(super) reason: String,
}

impl Failed {
    pub(super) fn unavailable(reason: String) -> Self {
        Self {
            failure: Failure::Unavailable { retry_after: None },
            reason,
        }
    }
}

/// Reads the response to a request for leases.
pub(super) fn read(
    response: &Response<Bytes>,
    servers: &[Address],
) -> Result<CapacityResponse, Failed> {
    let status = response.status();
    if status == StatusCode::OK {
        return from_slice(response.body())
            .map_err(|error| Failed::unavailable(format!("answers what is not a lease: {error}")));
    }
    let problem: Option<Problem> = from_slice(response.body()).ok();
    let failure = if status.is_redirection() {
        Failure::Redirected {
            to: master(response, problem.as_ref(), servers),
        }
    } else if status == StatusCode::PAYLOAD_TOO_LARGE {
        Failure::TooLarge
    } else if status == StatusCode::TOO_MANY_REQUESTS {
        Failure::Limited {
            retry_after: retry_after(response),
        }
    } else if status == StatusCode::FORBIDDEN || status == StatusCode::UNPROCESSABLE_ENTITY {
        Failure::Refused {
            positions: problem.as_ref().map_or_else(Vec::new, positions),
        }
    } else {
        Failure::Unavailable {
            retry_after: retry_after(response),
        }
    };
    let reason = match failure {
        Failure::Redirected { to: None } => {
            format!("answers {status}, and names no configured server as the master")
        }
        _ => reason(status, problem.as_ref()),
    };
    Err(Failed { failure, reason })
}

/// Reads the response to a request for rules.
pub(super) fn read_rules(
    response: &Response<Bytes>,
    asked_with_a_tag: bool,
) -> Result<News, Failed> {
    match response.status() {
        StatusCode::NOT_MODIFIED if asked_with_a_tag => Ok(News::Unchanged),
        StatusCode::OK => from_slice(response.body())
            .map(|rules| News::Rules(rules, response.headers().get(header::ETAG).cloned()))
            .map_err(|error| {
                Failed::unavailable(format!("answers what is not understood as rules: {error}"))
            }),
        status => {
            let problem = from_slice(response.body()).ok();
            let reason = reason(status, problem.as_ref());
            let retry_after = retry_after(response);
            let failure = match status {
                StatusCode::TOO_MANY_REQUESTS => Failure::Limited { retry_after },
                _ => Failure::Unavailable { retry_after },
            };
            Err(Failed { failure, reason })
        }
    }
}

fn reason(status: StatusCode, problem: Option<&Problem>) -> String {
    match problem {
        Some(problem) => format!("answers {status}: {}", shortened(&problem.detail)),
        None => format!("answers {status}"),
    }
}

/// The configured server that a response names as the master. No other is ever asked: it would be handed our credentials.
fn master(
    response: &Response<Bytes>,
    problem: Option<&Problem>,
    servers: &[Address],
) -> Option<usize> {
    let told = problem
        .and_then(|problem| problem.mastership.as_ref())
        .and_then(|mastership| mastership.master_address.as_deref());
    let named = told.or_else(|| text(response, &header::LOCATION))?;
    servers.iter().position(|server| server.serves(named))
}

/// The positions in `/resources/3/…` of a problem's pointers.
fn positions(problem: &Problem) -> Vec<usize> {
    problem
        .errors
        .iter()
        .filter_map(|error| {
            let rest = error.pointer.strip_prefix("/resources/")?;
            rest.split('/').next()?.parse().ok()
        })
        .collect()
}

/// How long the server asks to be left alone, in seconds. A date is not read: no wait is computed from wall clocks.
fn retry_after(response: &Response<Bytes>) -> Option<Duration> {
    let seconds = text(response, &header::RETRY_AFTER)?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn text<'a>(response: &'a Response<Bytes>, name: &HeaderName) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// Foreign text in our log: not too long, and without control characters.
fn shortened(text: &str) -> String {
    text.chars()
        .take(200)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers() -> Vec<Address> {
        ["http://a:7300", "http://b:7300"]
            .into_iter()
            .map(|address| Address::parse(address).unwrap())
            .collect()
    }

    #[track_caller]
    fn check(status: u16, headers: &[(HeaderName, &str)], body: &str, expected: &Failure) {
        let mut response = Response::new(Bytes::copy_from_slice(body.as_bytes()));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in headers {
            response
                .headers_mut()
                .insert(name.clone(), value.parse().unwrap());
        }
        let failed = read(&response, &servers()).unwrap_err();
        assert_eq!(&failed.failure, expected, "{status} {body}");
        assert!(failed.reason.len() < 400);
    }

    fn problem(more: &str) -> String {
        format!(r#"{{"type":"x","title":"x","status":1,"detail":"x"{more}}}"#)
    }

    #[test]
    fn reads_leases() {
        let body = r#"{"node":"n","epoch":1,"resources":[]}"#;
        let response = Response::new(Bytes::from_static(body.as_bytes()));
        assert_eq!(read(&response, &servers()).unwrap().epoch.get(), 1);
    }

    #[test]
    fn nonsense_is_a_failure() {
        let unavailable = Failure::Unavailable { retry_after: None };
        for body in ["", "{}", "null", r#"{"node":"","epoch":-1,"resources":[]}"#] {
            check(200, &[], body, &unavailable);
        }
        for status in [101, 204, 400, 401, 404, 500, 502, 599] {
            check(status, &[], "\u{0}", &unavailable);
        }
    }

    #[test]
    fn follows_only_to_configured_servers() {
        let location = |address| [(header::LOCATION, address)];
        let master = |address| {
            problem(&format!(
                r#","mastership":{{"master_address":"{address}"}}"#
            ))
        };
        let to = |to| Failure::Redirected { to };
        check(307, &[], &master("http://b:7300"), &to(Some(1)));
        check(
            307,
            &location("http://b:7300/v1/capacity"),
            "",
            &to(Some(1)),
        );
        check(
            307,
            &location("http://evil:7300/v1/capacity"),
            "",
            &to(None),
        );
        check(307, &[], &master("http://evil"), &to(None));
        check(307, &location("/v1/capacity"), "", &to(None));
        check(307, &[], "", &to(None));
    }

    #[test]
    fn learns_which_resources_are_refused() {
        let errors = problem(
            r#","errors":[{"pointer":"/resources/3/wants","detail":""},{"pointer":"/resources/x","detail":""},
                {"pointer":"/client_id","detail":""},{"pointer":"/resources/4","detail":""}]"#,
        );
        let refused = |positions| Failure::Refused { positions };
        check(422, &[], &errors, &refused(vec![3, 4]));
        check(403, &[], &errors, &refused(vec![3, 4]));
        check(403, &[], "", &refused(vec![]));
        check(413, &[], "", &Failure::TooLarge);
    }

    #[test]
    fn hears_how_long_to_stay_away() {
        for (value, seconds) in [
            ("3", Some(3)),
            ("-1", None),
            ("99999999999999999999", None),
            ("Fri, 31 Dec 1999 23:59:59 GMT", None),
        ] {
            let retry_after = seconds.map(Duration::from_secs);
            let unavailable = Failure::Unavailable { retry_after };
            check(503, &[(header::RETRY_AFTER, value)], "", &unavailable);
            let limited = Failure::Limited { retry_after };
            check(429, &[(header::RETRY_AFTER, value)], "", &limited);
        }
    }
}
