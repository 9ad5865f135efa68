//! Slashes in names: `/v1/templates/tenant/*` means `/v1/templates/tenant%2F*`.
//!
//! A request that matches no route gets the slashes of its name escaped, and is routed again. So
//! both spellings have one route, and with it one policy, cost and metric. A wildcard route could
//! not exist beside `/v1/resources/{resource_id}/leases`.

use axum::{Router, extract::Request, http::Uri};
use doorman_openapi::paths;
use tower::ServiceExt;

/// The collections whose entries are in the path by name.
const COLLECTIONS: [&str; 3] = [paths::TEMPLATES, paths::RULES, paths::RESOURCES];

/// The rest of a path after the name of a resource.
const LEASES: &str = "/leases";

/// Makes unescaped slashes in names work.
pub(super) fn accept(router: Router) -> Router {
    let by_escaped = router.clone();
    router.fallback(move |mut request: Request| {
        if let Some(uri) = escaped(request.uri()) {
            *request.uri_mut() = uri;
        }
        by_escaped.clone().oneshot(request)
    })
}

/// The URI with the slashes of its name escaped. `None` without such slashes, or if proxies and
/// clients may have changed the path: they remove empty segments, `.` and `..`.
fn escaped(uri: &Uri) -> Option<Uri> {
    let name = Name::of(uri.path())?;
    if name.text.split('/').any(|it| matches!(it, "" | "." | "..")) {
        return None;
    }
    let path = name.escaped();
    let path_and_query = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path_and_query.parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// The path with the slashes of its name escaped; `None` without such slashes.
pub(super) fn corrected(path: &str) -> Option<String> {
    Name::of(path).map(Name::escaped)
}

/// A path with slashes in the name of an entry.
struct Name<'p> {
    collection: &'static str,
    text: &'p str,
    rest: &'static str,
}

impl<'p> Name<'p> {
    fn of(path: &'p str) -> Option<Self> {
        let (collection, text) = COLLECTIONS.into_iter().find_map(|collection| {
            let name = path.strip_prefix(collection)?.strip_prefix('/')?;
            Some((collection, name))
        })?;
        let leases = text
            .strip_suffix(LEASES)
            .filter(|_| collection == paths::RESOURCES);
        let (text, rest) = leases.map_or((text, ""), |resource| (resource, LEASES));
        text.contains('/').then_some(Self {
            collection,
            text,
            rest,
        })
    }

    fn escaped(self) -> String {
        let escaped = self.text.replace('/', "%2F");
        format!("{}/{escaped}{}", self.collection, self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(uri: &str) -> Option<String> {
        escaped(&uri.parse().unwrap()).map(|uri| uri.to_string())
    }

    #[test]
    fn slashes_of_names_are_escaped() {
        for (uri, expected) in [
            ("/v1/templates/tenant/*", "/v1/templates/tenant%2F*"),
            ("/v1/templates/a/b/leases", "/v1/templates/a%2Fb%2Fleases"),
            ("/v1/rules/a/b?dry_run=true", "/v1/rules/a%2Fb?dry_run=true"),
            ("/v1/resources/a/b%2Fc", "/v1/resources/a%2Fb%2Fc"),
            (
                "/v1/resources/a/b/leases?limit=1",
                "/v1/resources/a%2Fb/leases?limit=1",
            ),
            ("/v1/resources/a/b%2Fleases", "/v1/resources/a%2Fb%2Fleases"),
            (
                "/v1/resources/leases/leases/leases",
                "/v1/resources/leases%2Fleases/leases",
            ),
        ] {
            assert_eq!(routed(uri).as_deref(), Some(expected), "{uri}");
        }
    }

    #[test]
    fn other_paths_stay_as_they_are() {
        for uri in [
            "/v1/templates",
            "/v1/templates/",
            "/v1/templates/a",
            "/v1/templates/a%2Fb",
            "/v1/resources/a/leases",
            "/v1/capacity/a/b",
            "/v1/templatesx/a/b",
            "/v1/templates/a/",
            "/v1/templates//a",
            "/v1/templates/a//b",
            "/v1/templates/a/../b",
            "/v1/resources/a/leases/",
            "/",
        ] {
            assert_eq!(routed(uri), None, "{uri}");
        }
    }
}
