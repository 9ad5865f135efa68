//! The parts of an OpenAPI document that follow from the kind of a field or an operation.
//!
//! Attributes state the rest: paths, own parameters, bodies, and what is special about a field.

use std::collections::BTreeMap;

use axum::http::Method;
use doorman_openapi::{ProblemType, paths};
use serde_json::{Value, json};
use utoipa::{
    IntoResponses,
    openapi::{OpenApi, RefOr, Response},
};

use super::problems::{self, header};

/// By operation, the examples of requests, and of responses by status.
const EXAMPLES: &str = include_str!("examples.json");

/// By JSON Pointer, schemas that no attribute of a type expresses.
const SCHEMAS: &str = include_str!("schemas.json");

/// The last line of OpenMetrics, which other texts have not.
const EOF: &str = "# EOF\n";

/// The JSON Pointer from a body to its JSON.
const JSON: &str = "/content/application~1json";

/// The response to a request for the version that the client has. It marks an operation whose
/// response has a version.
pub(in crate::http) struct NotModified;

impl IntoResponses for NotModified {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let response = Response::new("The client has the current version");
        [("304".to_owned(), response.into())].into()
    }
}

/// Completes a document. `describe` adds to each operation what only its server has.
pub(in crate::http) fn complete(
    document: &OpenApi,
    describe: impl Fn(&Method, &str, &mut Value),
) -> Value {
    let mut document = serde_json::to_value(document).unwrap_or_default();
    omit_null(&mut document);
    let examples: Value = serde_json::from_str(EXAMPLES).unwrap_or_default();
    let mut schemas = document["components"]["schemas"].take();
    let special: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    for (pointer, schema) in special.as_object().into_iter().flatten() {
        if let Some(derived) = schemas.pointer_mut(pointer) {
            *derived = schema.clone();
        }
    }
    schemas["ProblemType"] = problems::types();
    for (path, method, operation) in operations(&mut document) {
        operation["tags"] = json!([tag(path)]);
        // `int64` excludes numbers that the server accepts.
        let parameters = operation.get_mut("parameters");
        let parameters = parameters.and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten() {
            let schema = parameter.get_mut("schema");
            if let Some(schema) = schema.and_then(Value::as_object_mut) {
                schema.remove("format");
            }
        }
        if is_change(&method) {
            describe_change(&method, path, operation, &mut schemas);
        }
        describe_versions(&method, operation);
        add_examples(operation, &examples);
        describe(&method, path, operation);
    }
    document["components"]["schemas"] = schemas;
    document["components"]["responses"] = problems::components();
    document
}

/// The group of an operation.
fn tag(path: &str) -> &'static str {
    match path {
        paths::CAPACITY | paths::CAPACITY_RELEASE | paths::HINTS => "leases",
        paths::SERVER_CAPACITY | paths::SERVER_CAPACITY_RELEASE => "server tree",
        paths::TEMPLATES | paths::TEMPLATE | paths::RULE | paths::HISTORY | paths::REVISION => {
            "document"
        }
        paths::RULES => "rules",
        paths::CHECK
        | paths::CHECK_RENEW
        | paths::CHECK_RELEASE
        | paths::CHECK_OUTCOME
        | paths::FORWARD_AUTH => "agent",
        paths::LIVEZ | paths::READYZ | paths::METRICS => "probes",
        _ => "views",
    }
}

pub(super) fn operations(
    document: &mut Value,
) -> impl Iterator<Item = (&String, Method, &mut Value)> {
    members(&mut document["paths"]).flat_map(|(path, item)| {
        members(item).filter_map(move |(method, operation)| {
            let method = method.to_uppercase().parse().ok()?;
            Some((path, method, operation))
        })
    })
}

pub(super) fn is_change(method: &Method) -> bool {
    [Method::PUT, Method::PATCH, Method::DELETE].contains(method)
}

fn members(value: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    value.as_object_mut().into_iter().flatten()
}

/// An optional field or parameter is absent where a schema of utoipa lets it be null.
fn omit_null(value: &mut Value) {
    let required = value.get("required").cloned().unwrap_or_default();
    match value {
        Value::Array(elements) => elements.iter_mut().for_each(omit_null),
        Value::Object(all) => {
            for (name, schema) in all.get_mut("properties").into_iter().flat_map(members) {
                if !contains(&required, name) {
                    omit_null_of(schema);
                }
            }
            if let Some(schema) = all.get_mut("schema").filter(|_| required == false) {
                omit_null_of(schema);
            }
            all.values_mut().for_each(omit_null);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn omit_null_of(schema: &mut Value) {
    let Value::Object(schema) = schema else {
        return;
    };
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|it| it != "null");
        if let [only] = types.as_slice() {
            schema["type"] = only.clone();
        }
    }
    if let Some(Value::Array(choices)) = schema.get_mut("oneOf") {
        choices.retain(|it| it["type"] != "null");
        if let [Value::Object(only)] = choices.as_slice() {
            let mut only = only.clone();
            schema.remove("oneOf");
            schema.append(&mut only);
        }
    }
}

fn contains(names: &Value, name: &str) -> bool {
    let mut names = names.as_array().into_iter().flatten();
    names.any(|it| it == name)
}

/// The response to a change has warnings. With `dry_run` it only describes the change.
fn describe_change(method: &Method, path: &str, operation: &mut Value, schemas: &mut Value) {
    let entity = operation.pointer(&format!("/requestBody{JSON}/schema/$ref"));
    let entity = entity.and_then(|it| it.as_str()?.rsplit('/').next());
    let mut result = reference("Deleted");
    if let Some(entity) = entity.map(str::to_owned) {
        let mut schema = schemas[&entity].clone();
        let name = format!("Changed{entity}");
        result = reference(&name);
        schemas[&name] = schema.clone();
        schemas[name]["properties"]["warnings"] = json!({
            "type": "array",
            "items": {"type": "string"},
            "description": "Valid content that is probably a mistake or a risk; absent if there is none"
        });
        let content = &mut operation["requestBody"]["content"];
        if *method == Method::PATCH {
            let patch = json!({"schema": reference(&add_patch(&entity, schemas))});
            *content = json!({"application/merge-patch+json": patch, "application/json": patch});
        } else if let Some(name) = path
            .split_once('{')
            .and_then(|(_, it)| it.strip_suffix('}'))
        {
            if let Some(required) = schema["required"].as_array_mut() {
                required.retain(|it| it != name);
            }
            schema["description"] =
                format!("A `{entity}`. Its `{name}` is in the path, and optional here.").into();
            let body = format!("{entity}Body");
            content["application/json"]["schema"] = reference(&body);
            schemas[body] = schema;
        }
    }
    for (status, response) in members(&mut operation["responses"]) {
        let schema = match status.as_str() {
            "200" => json!({"oneOf": [result, reference("DryRun")]}),
            "201" => result.clone(),
            _ => continue,
        };
        response["content"]["application/json"]["schema"] = schema;
    }
    add_parameter(
        operation,
        "query",
        "dry_run",
        "boolean",
        "Only describe the change",
    );
}

/// Adds the schema of a JSON merge patch, and returns its name. Schemas have names, since generators
/// of clients fail for an inline one that is used twice.
fn add_patch(entity: &str, schemas: &mut Value) -> String {
    let name = format!("{entity}Patch");
    let mut schema = schemas[entity].clone();
    let required = schema["required"].take();
    for (field, property) in members(&mut schema["properties"]) {
        // A client that fills in defaults would change fields that its caller does not name.
        if let Some(property) = property.as_object_mut() {
            property.remove("default");
        }
        let section = match field.as_str() {
            "algorithm" => Some("TemplateAlgorithm"),
            "feedback" => Some("Feedback"),
            _ => None,
        };
        if let Some(section) = section {
            property["$ref"] = reference(&add_patch(section, schemas))["$ref"].take();
        }
        if !contains(&required, field) {
            *property = json!({"anyOf": [property, {"type": "null"}]});
        }
    }
    schema.as_object_mut().map(|it| it.remove("required"));
    schema["description"] =
        format!("A JSON merge patch (RFC 7396) of a `{entity}`: `null` removes a field.").into();
    schemas[&name] = schema;
    name
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Adds conditions, by the version of an entity, and how long a response stays valid.
fn describe_versions(method: &Method, operation: &mut Value) {
    let is_change = is_change(method);
    let has_version = operation["responses"].get("304").is_some();
    let cached = if has_version {
        "`no-cache`"
    } else {
        "`no-store`"
    };
    for (status, response) in members(&mut operation["responses"]) {
        if status.starts_with('2') && response.pointer(JSON).is_some() {
            response["headers"]["Cache-Control"] = header(cached);
            if has_version || is_change && *method != Method::DELETE {
                response["headers"]["ETag"] = header("The version");
            }
        }
    }
    let is_of_document = contains(&operation["tags"], "document");
    let mut add =
        |name, description| add_parameter(operation, "header", name, "string", description);
    let has_conditions = is_change || has_version && is_of_document;
    if has_conditions {
        add(
            "If-Match",
            "Fail with 412 unless the current version has this `ETag`",
        );
    }
    if is_change {
        add(
            "If-None-Match",
            "Fail with 412 if the current version has this `ETag`; `*`: if there is one",
        );
    } else if has_version {
        add("If-None-Match", "The `ETag` of an earlier response");
    }
    if has_conditions {
        problems::add(operation, &[ProblemType::PreconditionFailed]);
    }
}

fn add_examples(operation: &mut Value, examples: &Value) {
    let id = operation["operationId"].as_str().unwrap_or_default();
    let examples = &examples[id];
    if let Some(requests) = examples.get("requests") {
        for (_, content) in members(&mut operation["requestBody"]["content"]) {
            content["examples"] = requests.clone();
        }
    }
    for (status, response) in members(&mut operation["responses"]) {
        if let Some(example) = examples["responses"].get(status) {
            for (media_type, content) in members(&mut response["content"]) {
                content["example"] = match example.as_str().and_then(|it| it.strip_suffix(EOF)) {
                    Some(text) if media_type == "text/plain" => text.into(),
                    _ => example.clone(),
                };
            }
        }
    }
}

fn add_parameter(operation: &mut Value, place: &str, name: &str, kind: &str, description: &str) {
    let parameter = json!({
        "name": name,
        "in": place,
        "description": description,
        "required": false,
        "schema": {"type": kind}
    });
    match &mut operation["parameters"] {
        Value::Array(parameters) => parameters.push(parameter),
        absent => *absent = json!([parameter]),
    }
}
