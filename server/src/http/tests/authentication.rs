//! Access to all routes, by tokens and scopes.

use axum::http::{Method, header};
use doorman_openapi::{Scope, paths};
use serde_json::json;

use super::{
    openapi::{Operation, operations},
    *,
};
use crate::auth::testing::{Home, Issuer, SECRET, claims, now};
use crate::http::policy::{self, Access};

fn access(method: &Method, path: &str) -> Option<Access> {
    policy::of(method, path).map(|policy| policy.access)
}

/// Routes of the documentation page, which are not part of the API.
const PAGES: [&str; 4] = ["/", "/docs", "/docs/", "/docs/{file}"];

/// Every route with its method.
pub(super) fn routes() -> Vec<(Method, String)> {
    let documented = operations().into_iter();
    let documented = documented.map(|Operation { method, path, .. }| (method, path));
    let pages = PAGES.map(|path| (Method::GET, path.to_owned()));
    documented.chain(pages).collect()
}

/// Every route that needs a token, with its scopes.
pub(super) fn guarded() -> Vec<(Method, String, &'static [Scope])> {
    routes()
        .into_iter()
        .filter_map(|(method, path)| {
            let scopes = access(&method, &path)?.scopes()?;
            // Without a service it lists all rules, which not all of the scopes allow.
            let path = match &*path {
                paths::RULES => format!("{path}?service=shop"),
                _ => path,
            };
            Some((method, path, scopes))
        })
        .collect()
}

/// A server that trusts keys of an issuer and a shared secret, with its files.
pub(super) fn authenticating() -> (Router, Home) {
    let home = Home::new().secret(SECRET).jwks(&[
        Issuer::rs256().with_kid("rsa").jwk(),
        Issuer::es256().with_kid("ec").jwk(),
    ]);
    let auth = Arc::new(home.load().unwrap());
    let app = app().with_auth(Some(auth));
    (crate::http::router(app), home)
}

/// Calls a route with these `Authorization` headers; nothing else of the request is valid.
pub(super) async fn call(
    router: &Router,
    method: &Method,
    path: &str,
    authorization: &[&str],
) -> Reply {
    let uri = path
        .replace("{resource_id}", "db")
        .replace("{file}", "index.html")
        .replace("{identifier_glob}", "*")
        .replace("{name}", "none");
    let mut request = Request::builder().method(method).uri(uri);
    for value in authorization {
        request = request.header(header::AUTHORIZATION, *value);
    }
    send(router, request.body(Body::from("{")).unwrap()).await
}

pub(super) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[test]
fn every_route_has_a_policy() {
    for (method, path) in routes() {
        assert!(
            access(&method, &path).is_some(),
            "{method} {path} is missing in `http/policy.rs`"
        );
    }
    for Operation { path, method, spec } in operations() {
        let security = spec["security"]
            .as_array()
            .unwrap_or_else(|| panic!("{method} {path}"));
        let scopes = access(&method, &path).unwrap().scopes();
        let needs = scopes.unwrap_or_default().iter();
        let needs: Vec<_> = needs.map(|it| json!({"bearer": [it.name()]})).collect();
        assert_eq!(*security, needs, "{method} {path}");
        for status in ["401", "403"] {
            let says = spec["responses"].get(status).is_some();
            assert_eq!(says, !needs.is_empty(), "{method} {path} {status}");
        }
    }
}

/// Listed again, so that no route becomes public by accident.
#[test]
fn public_routes_are_these() {
    let open = routes()
        .into_iter()
        .filter(|(method, path)| access(method, path) == Some(Access::Public));
    let open: Vec<_> = open.map(|(_, path)| path).collect();
    assert_eq!(
        open,
        [
            "/livez",
            "/openapi.json",
            "/readyz",
            "/",
            "/docs",
            "/docs/",
            "/docs/{file}"
        ]
    );
}

#[tokio::test]
async fn only_public_routes_work_without_a_token() {
    let (router, _home) = authenticating();
    let methods = [
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW",
    ];
    for (_, path) in routes() {
        for method in methods {
            let method: Method = method.parse().unwrap();
            let status = call(&router, &method, &path, &[]).await.status.as_u16();
            match (access(&method, &path), access(&Method::GET, &path)) {
                (Some(Access::Public), _) => assert!(status < 400, "{method} {path}: {status}"),
                (None, Some(Access::Public)) => assert_eq!(status, 405, "{method} {path}"),
                (Some(Access::AnyOf(_)) | None, _) => assert_eq!(status, 401, "{method} {path}"),
            }
        }
    }
    get(&router, "/nothing").await.problem(404);
}

#[tokio::test]
async fn route_without_a_policy_is_closed() {
    let (_, home) = authenticating();
    let auth = Arc::new(home.load().unwrap());
    let app = app().with_auth(Some(auth));
    let router = Router::new()
        .route("/v1/new", axum::routing::get(|| async { "secrets" }))
        .layer(axum::middleware::from_fn_with_state(
            app,
            crate::http::guard::guard,
        ));
    call(&router, &Method::GET, "/v1/new", &[])
        .await
        .problem(401);
    let token = Issuer::rs256().sign(&claims(&json!({"scope": ""})));
    let reply = call(&router, &Method::GET, "/v1/new", &[&bearer(&token)]).await;
    reply.problem(403);
}

#[tokio::test]
async fn each_route_needs_one_of_its_scopes() {
    let (router, _home) = authenticating();
    for (method, path, needs) in guarded() {
        for scope in Scope::ALL {
            let token = Issuer::rs256().sign(&claims(&json!({"scope": scope.name()})));
            let reply = call(&router, &method, &path, &[&bearer(&token)]).await;
            if needs.contains(scope) {
                let status = reply.status.as_u16();
                assert!(
                    status != 401 && status != 403,
                    "{method} {path} {scope}: {status}"
                );
            } else {
                let problem = reply.problem(403);
                assert_eq!(problem.kind, "/problems/forbidden");
                let challenge = reply.header("www-authenticate");
                assert!(challenge.starts_with("Bearer "), "{challenge}");
                assert!(
                    challenge.contains(r#"error="insufficient_scope""#),
                    "{challenge}"
                );
                for needed in needs {
                    assert!(challenge.contains(needed.name()), "{challenge}");
                }
            }
        }
        let good = Issuer::rs256().sign(&claims(&json!({"scope": needs[0].name()})));
        for written in [format!("bearer {good}"), format!("BEARER  {good}")] {
            let status = call(&router, &method, &path, &[&written])
                .await
                .status
                .as_u16();
            assert!(status != 401 && status != 403, "{method} {path}: {status}");
        }
    }
}

#[tokio::test]
async fn challenge_names_the_error() {
    let (router, _home) = authenticating();
    let challenge = async |authorization: &[&str]| {
        let reply = call(&router, &Method::GET, paths::STATUS, authorization).await;
        reply.header("www-authenticate").to_owned()
    };
    // RFC 6750, section 3.1: without a token there is no error attribute.
    assert_eq!(challenge(&[]).await, r#"Bearer realm="doorman""#);
    assert!(
        challenge(&["Bearer a", "Bearer a"])
            .await
            .contains("invalid_request")
    );
    assert!(
        challenge(&["Bearer a.b.c"])
            .await
            .contains(r#"error="invalid_token""#)
    );
    let late = Issuer::rs256().sign(&claims(&json!({"exp": now() - 60})));
    assert!(challenge(&[&bearer(&late)]).await.contains("expired"));
}

#[tokio::test]
async fn metrics_listener_serves_only_metrics_and_probes_without_tokens() {
    let (_, home) = authenticating();
    let auth = Arc::new(home.load().unwrap());
    let app = app().with_auth(Some(auth));
    let router = crate::http::metrics_router(app, false);
    let open = [paths::METRICS, paths::LIVEZ, paths::READYZ];
    for path in open {
        assert_eq!(get(&router, path).await.status, 200, "{path}");
    }
    for (_, path) in routes()
        .into_iter()
        .filter(|(_, path)| !open.contains(&path.as_str()))
    {
        let problem = get(&router, &path).await.problem(404);
        let pages = problem.detail.split_once("see ").map(|(_, it)| it);
        assert_eq!(pages, Some("/metrics, /livez and /readyz"));
    }
}
