//! The OpenAPI document is committed, valid and true.

use std::{collections::BTreeSet, env, fs};

use axum::http::Method;
use doorman_openapi::{OPENAPI_JSON, ProblemType};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::*;
use crate::auth::testing::{Home, SECRET};

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi/openapi.json");

/// One operation of the document.
pub(super) struct Operation {
    pub(super) path: String,
    pub(super) method: Method,
    pub(super) spec: Value,
}

pub(super) fn operations() -> Vec<Operation> {
    let document: Value = serde_json::from_str(&crate::openapi_json()).unwrap();
    let paths = document["paths"].as_object().unwrap().clone();
    paths
        .into_iter()
        .flat_map(|(path, operations)| {
            let operations = operations.as_object().unwrap().clone();
            operations.into_iter().map(move |(method, spec)| Operation {
                path: path.clone(),
                method: method.to_uppercase().parse().unwrap(),
                spec,
            })
        })
        .collect()
}

#[test]
fn committed_openapi_document_matches_the_routes() {
    let generated = crate::openapi_json();
    if env::var_os("DOORMAN_UPDATE").is_some() {
        fs::write(COMMITTED, &generated).unwrap();
    }
    let committed = fs::read_to_string(COMMITTED).unwrap();
    assert!(
        committed == generated,
        "openapi/openapi.json is outdated: `DOORMAN_UPDATE=1 cargo test -p doorman-server openapi` rewrites it"
    );
}

/// A pointer or a name in a file of data that matches nothing would be skipped.
#[test]
fn every_schema_and_example_in_files_of_data_is_in_a_document() {
    let data =
        |text: &str| -> serde_json::Map<String, Value> { serde_json::from_str(text).unwrap() };
    let documents: [Value; 2] = [
        serde_json::from_str(OPENAPI_JSON).unwrap(),
        crate::http::agent::agent_document(),
    ];
    for (pointer, schema) in data(include_str!("../openapi/schemas.json")) {
        let pointer = format!("/components/schemas{pointer}");
        let mut described = documents.iter().filter_map(|it| it.pointer(&pointer));
        assert!(described.any(|it| *it == schema), "{pointer}");
    }
    for (id, examples) in data(include_str!("../openapi/examples.json")) {
        let operation = documents
            .iter()
            .flat_map(|it| it["paths"].as_object().unwrap().values())
            .flat_map(|it| it.as_object().unwrap().values())
            .find(|it| it["operationId"] == *id)
            .unwrap_or_else(|| panic!("no operation {id}"));
        let requests = &operation["requestBody"]["content"]["application/json"]["examples"];
        assert_eq!(requests, &examples["requests"], "{id}");
        for (status, example) in examples["responses"].as_object().into_iter().flatten() {
            let mut contents = operation["responses"][status]["content"]
                .as_object()
                .unwrap()
                .values();
            assert!(
                contents.any(|it| it["example"] == *example),
                "{id} {status}"
            );
        }
    }
}

#[tokio::test]
async fn served_openapi_document_is_the_committed_one() {
    let auth = Arc::new(Home::new().secret(SECRET).load().unwrap());
    let server = Stored::authenticating(&Document::built_in(), Some(auth));
    let reply = get(&server.router, "/openapi.json").await;
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.body, OPENAPI_JSON.as_bytes());
}

#[tokio::test]
async fn openapi_document_without_authentication_has_no_security() {
    let open = get(&router(), "/openapi.json").await.json();
    assert!(open["components"].get("securitySchemes").is_none());
    let committed: Value = serde_json::from_str(OPENAPI_JSON).unwrap();
    for (path, operations) in committed["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let mut expected = operation.clone();
            let operation = expected.as_object_mut().unwrap();
            let needs_tokens = operation.remove("security") != Some(json!([]));
            let responses = operation["responses"].as_object_mut().unwrap();
            assert_eq!(
                responses.remove("401").is_some(),
                needs_tokens,
                "{method} {path}"
            );
            assert!(open["paths"][path][method] == expected, "{method} {path}");
        }
    }
}

#[test]
fn another_parser_reads_the_openapi_document() {
    let document = oas3::from_json(crate::openapi_json()).unwrap();
    assert!(
        document
            .validate_version()
            .unwrap()
            .to_string()
            .starts_with("3.1")
    );
    let ids: BTreeSet<_> = document
        .operations()
        .map(|(_, _, operation)| operation.operation_id.clone().unwrap())
        .collect();
    let expected = [
        "check_livez",
        "check_readyz",
        "delete_rule",
        "delete_template",
        "get_discovery",
        "get_metrics",
        "get_openapi",
        "get_resource",
        "get_revision",
        "get_rule",
        "get_status",
        "get_template",
        "get_templates",
        "lease_capacity",
        "lease_server_capacity",
        "list_client_leases",
        "list_history",
        "list_leases",
        "list_resources",
        "list_rules",
        "patch_rule",
        "patch_template",
        "poll_hints",
        "put_rule",
        "put_template",
        "release_capacity",
        "release_server_capacity",
        "replace_templates",
    ];
    assert_eq!(ids, expected.map(str::to_owned).into());
}

#[tokio::test]
async fn parameters_in_the_schema_are_those_of_documents() {
    let document: Value = serde_json::from_str(OPENAPI_JSON).unwrap();
    let names = &document["components"]["schemas"]["Parameter"]["properties"]["name"]["enum"];
    let names: Vec<_> = (names.as_array().unwrap().iter())
        .map(|name| name.as_str().unwrap())
        .collect();
    let (last, others) = names.split_last().unwrap();
    let expected = format!("must be {} or {last}", others.join(", "));
    let template = json!({"capacity": 1, "algorithm": {
        "kind": "PRIORITY_SHARE", "parameters": [{"name": "other", "value": "1"}]
    }});
    let reply = put(
        &Stored::new().router,
        "/v1/templates/db",
        template.to_string(),
    )
    .await;
    let problem = format!("{:?}", reply.problem(422));
    assert!(problem.contains(&expected), "{problem}");
}

/// A generated client may send the default of every field that its caller does not set.
#[test]
fn fields_of_a_patch_have_no_default() {
    let document: Value = serde_json::from_str(&crate::openapi_json()).unwrap();
    for name in ["TemplatePatch", "TemplateAlgorithmPatch", "RulePatch"] {
        let schema = document["components"]["schemas"][name].to_string();
        assert!(
            schema.contains("properties") && !schema.contains(r#""default""#),
            "{schema}"
        );
    }
}

#[test]
fn openapi_references_resolve() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str));
                members.values().for_each(|value| references(value, found));
            }
            Value::Array(elements) => elements.iter().for_each(|value| references(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    let document: Value = serde_json::from_str(&crate::openapi_json()).unwrap();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 20);
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn every_operation_documents_success_and_errors() {
    for Operation { path, method, spec } in operations() {
        let responses = spec["responses"].as_object().unwrap();
        assert!(
            spec["summary"].is_string() && spec["description"].is_string(),
            "{path}"
        );
        assert!(
            spec["operationId"].as_str().unwrap().contains('_'),
            "{path}"
        );
        let has = |status: &str| responses.contains_key(status);
        assert!(has("200"), "{path}");
        if [Method::POST, Method::PUT, Method::PATCH].contains(&method) {
            let all = ["400", "408", "413", "415", "422", "500", "503"];
            assert!(all.into_iter().all(has), "{path}: {responses:?}");
            assert!(spec["requestBody"]["required"].as_bool().unwrap(), "{path}");
        }
        let changes = [Method::PUT, Method::PATCH, Method::DELETE].contains(&method);
        assert_eq!(has("409") && has("412") && has("507"), changes, "{path}");
        // A PUT creates what does not exist. A node has no document to read.
        let is_document = path == "/v1/templates" && method == Method::GET;
        assert_eq!(
            has("404"),
            is_document || path.contains('{') && method != Method::PUT,
            "{path}"
        );
    }
    let document: Value = serde_json::from_str(&crate::openapi_json()).unwrap();
    let types = &document["components"]["schemas"]["ProblemType"]["description"];
    for kind in ProblemType::ALL {
        let row = format!("| `{}` | {} |", kind.name(), kind.status());
        assert!(types.as_str().unwrap().contains(&row), "{kind:?}");
    }
    // The page shows it above all calls.
    let description = document["info"]["description"].as_str().unwrap();
    assert!(description.len() < 400 && !description.contains('\n'));
    let unavailable = &document["components"]["responses"]["Unavailable"];
    assert!(
        unavailable["headers"]["Retry-After"].is_object(),
        "{unavailable}"
    );
}

/// Sends every example to a new server, after those that it depends on.
#[tokio::test]
async fn every_openapi_example_works() {
    let lease = operations()
        .into_iter()
        .find(|operation| operation.spec["operationId"] == "lease_capacity")
        .unwrap();
    let lease = bodies(&lease.spec).remove(0);
    let rule = r#"{"service": "orders*", "resource": "tenant/{jwt:sub}"}"#;

    for Operation { path, method, spec } in operations() {
        let mut sent = bodies(&spec);
        if [Method::GET, Method::DELETE].contains(&method) {
            sent.push(Value::Null);
        }
        assert!(!sent.is_empty(), "{method} {path} has no example");
        for body in sent {
            let stored = Stored::new();
            let router = &stored.router;
            if path.contains("{resource_id}") {
                post(router, "/v1/capacity", lease.to_string()).await;
            }
            if path.contains("{name}") && method != Method::PUT {
                put(router, "/v1/rules/per-tenant", rule).await;
            }
            let reply = call(router, &method, &uri(&path, &spec), &body).await;
            if reply.status == 204 {
                assert_eq!(method, Method::DELETE, "{path}");
                continue;
            }
            let response = &spec["responses"][reply.status.as_str()];
            assert!(reply.status.is_success(), "{method} {path}: {reply:?}");
            let content = response["content"].as_object().unwrap();
            let media_type = reply.header("content-type").split(';').next().unwrap();
            let documented = content
                .get(media_type)
                .unwrap_or_else(|| panic!("{media_type}"));
            if let Some(example) = documented
                .get("example")
                .filter(|_| media_type.ends_with("json"))
            {
                assert_alike(&reply.json(), example);
            }
        }
    }
}

async fn call(router: &Router, method: &Method, uri: &str, body: &Value) -> Reply {
    let request = Request::builder().method(method).uri(uri);
    let request = match body {
        Value::Null => request.body(Body::empty()),
        body => request
            .header("content-type", "application/json")
            .body(body.to_string().into()),
    };
    send(router, request.unwrap()).await
}

/// The examples of an operation's body.
fn bodies(spec: &Value) -> Vec<Value> {
    let content = spec["requestBody"]["content"].as_object();
    let content = content.into_iter().flat_map(|content| content.values());
    content
        .filter_map(|content| content["examples"].as_object())
        .flat_map(|examples| examples.values())
        .map(|example| example["value"].clone())
        .collect()
}

/// The URI of an operation, from the examples of its parameters.
fn uri(path: &str, spec: &Value) -> String {
    let mut uri = path.to_owned();
    let mut query = Vec::new();
    for parameter in spec["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap();
        let Some(example) = parameter.get("example") else {
            continue;
        };
        let text = example
            .as_str()
            .map_or_else(|| example.to_string(), str::to_owned);
        let text = utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string();
        match parameter["in"].as_str().unwrap() {
            "path" => uri = uri.replace(&format!("{{{name}}}"), &text),
            "query" => query.push(format!("{name}={text}")),
            other => panic!("{other}"),
        }
    }
    format!("{uri}?{}", query.join("&"))
}

/// Asserts that a response has the members of the example; of lists, the first elements.
fn assert_alike(reply: &Value, example: &Value) {
    match (reply, example) {
        (Value::Object(members), Value::Object(expected)) => {
            // The last page has no cursor.
            let names = |of: &serde_json::Map<String, Value>| -> BTreeSet<_> {
                of.keys()
                    .filter(|name| *name != "next_cursor")
                    .cloned()
                    .collect()
            };
            assert_eq!(names(members), names(expected));
            for (name, value) in members {
                assert_alike(value, &expected[name]);
            }
        }
        (Value::Array(elements), Value::Array(expected)) => {
            if let (Some(element), Some(expected)) = (elements.first(), expected.first()) {
                assert_alike(element, expected);
            }
        }
        (reply, example) => {
            assert!(
                !example.is_object() && !example.is_array(),
                "{reply} for {example}"
            );
        }
    }
}
