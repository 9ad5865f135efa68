//! Requests to the control plane are found again in its log.

use std::collections::BTreeSet;

use doorman_openapi::{TraceContext, paths};
use tracing::Level;

use super::*;
use crate::testing::Logged;

fn trace_id(call: &Call) -> String {
    let header = call.traceparent.as_deref().expect("every request has one");
    let trace = TraceContext::parse(header.as_bytes()).expect("it is one");
    trace.trace_id.to_string()
}

#[tokio::test(start_paused = true)]
async fn every_request_begins_a_trace_of_its_own() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    let _layer = doorman.layer([]).and_rules();
    doorman.ready(SECOND).await.unwrap_err();
    sleep(5 * SECOND).await;
    doorman.shutdown().await.unwrap();
    let calls = plane.calls();
    for path in [paths::CAPACITY, paths::RULES, paths::CAPACITY_RELEASE] {
        assert!(calls.iter().any(|call| call.path == path), "{path}");
    }
    let traces: BTreeSet<_> = calls.iter().map(trace_id).collect();
    assert_eq!(traces.len(), calls.len());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_is_logged_with_the_names_that_the_control_plane_logs_it_by() {
    let refused = |_: &Call| {
        let problem = Problem::new(ProblemType::Unavailable, "not now");
        let Reply::Is(mut response) = Reply::json(503, &problem) else {
            unreachable!()
        };
        let name = "the-name".parse().unwrap();
        response.headers_mut().insert("x-request-id", name);
        Reply::Is(response)
    };
    for level in [Level::DEBUG, Level::WARN] {
        let (logged, _guard) = Logged::at(level);
        let plane = Plane::new(refused);
        let (doorman, _worker) = run(builder(), &plane);
        let _rate = doorman.rate("db");
        let _layer = doorman.layer([]).and_rules();
        sleep(5 * SECOND).await;
        let lines = logged.lines();
        let told = |path| {
            plane.calls().iter().any(|call| {
                let names = format!("trace_id={} request_id=\"the-name\"", trace_id(call));
                call.path == path && lines.iter().any(|line| line.contains(&names))
            })
        };
        assert!(told(paths::CAPACITY), "{lines:#?}");
        // The rules are told of at once, and then rarely.
        assert!(level == Level::DEBUG || told(paths::RULES), "{lines:#?}");
    }
}
