//! Commands against recorded responses of earlier servers.

use axum::{
    Router,
    http::{HeaderName, header},
    routing::{get, post},
};

use super::*;

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/recorded");

type Response = ([(HeaderName, &'static str); 2], String);

fn response(release: &str, name: &str) -> Response {
    let path = format!("{RECORDED}/{release}/responses/{name}.json");
    let body = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::ETAG, "\"recorded\""),
    ];
    (headers, body)
}

fn routes(release: &str) -> Router {
    let recorded = |name: &str| {
        let response = response(release, name);
        get(async move || response)
    };
    let leased = response(release, "capacity");
    let dry_run = response(release, "dry-run");
    let put = async move || dry_run;
    Router::new()
        .route("/v1/resources", recorded("resources"))
        .route("/v1/resources/db", recorded("resource"))
        .route("/v1/resources/db/leases", recorded("leases"))
        .route("/v1/discovery", recorded("discovery"))
        .route("/v1/history", recorded("history"))
        .route("/v1/templates", recorded("templates").put(put))
        .route("/v1/capacity", post(async move || leased))
}

#[tokio::test]
async fn commands_read_responses_of_earlier_servers() {
    let home = TempDir::new().unwrap();
    let import = format!("import {} --dry-run", limits(&home, 20));
    let commands = [
        ("show", "db\t30\t5\t5\t1\tno\tdb\tFAIR_SHARE\n"),
        ("show db", "\nc\tclient\t0\t5\t"),
        ("show --json", "\"clients\": 1,"),
        ("master", "\tnode-"),
        ("history", "3\t"),
        ("export", "capacity: 30"),
        ("get db --wants 5 --client c", "db\t5\t30\t"),
        (&import, "would change: "),
    ];
    for release in ["first", "second", "third"] {
        for (line, expected) in commands {
            let output = call_stub(routes(release), line).await;
            let output = output.unwrap_or_else(|failure| panic!("{release}: {line}: {failure}"));
            assert!(output.contains(expected), "{release}: {line}: {output}");
        }
    }
}
