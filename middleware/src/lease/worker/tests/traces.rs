//! Trace and request ids of requests to the control plane.

use std::collections::BTreeSet;

use doorman_openapi::{TraceContext, paths};
use tracing::Level;

use super::*;
use crate::testing::Logged;

fn trace_id(call: &Received) -> String {
    let header = call.traceparent.as_deref().expect("a header");
    let trace = TraceContext::parse(header.as_bytes()).expect("a trace context");
    trace.trace_id.to_string()
}

#[tokio::test(start_paused = true)]
async fn every_request_begins_its_own_trace() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    let _layer = doorman.layer([]).unwrap().and_rules();
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
async fn failed_request_is_logged_with_its_ids() {
    let unavailable = |_: &Received| {
        let problem = Problem::new(ProblemType::Unavailable, "not now");
        let Reply::Response(mut response) = Reply::json(503, &problem) else {
            unreachable!()
        };
        let id = "the-id".parse().unwrap();
        response.headers_mut().insert("x-request-id", id);
        Reply::Response(response)
    };
    for level in [Level::DEBUG, Level::WARN] {
        let (logged, _guard) = Logged::at(level);
        let plane = Plane::new(unavailable);
        let (doorman, _worker) = run(builder(), &plane);
        let _rate = doorman.rate("db");
        let _layer = doorman.layer([]).unwrap().and_rules();
        sleep(5 * SECOND).await;
        let lines = logged.lines();
        let is_logged = |path| {
            plane.calls().iter().any(|call| {
                let ids = format!("trace_id={} request_id=\"the-id\"", trace_id(call));
                call.path == path && lines.iter().any(|line| line.contains(&ids))
            })
        };
        assert!(is_logged(paths::CAPACITY), "{lines:#?}");
        // A failed poll is logged immediately, then rarely.
        assert!(
            level == Level::DEBUG || is_logged(paths::RULES),
            "{lines:#?}"
        );
    }
}
