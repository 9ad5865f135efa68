//! Which requests a rule applies to: methods and paths, minus exemptions.

use std::sync::Arc;

use doorman_openapi::canonical_path;
use http::Method;
use matchit::Router;

use crate::key::RequestHead;

/// Methods and a path template. A path is matched by axum's matcher, on its own and in its
/// canonical spelling. GET includes HEAD (RFC 9110 section 9.3.2).
#[derive(Debug)]
pub(crate) struct RequestPattern {
    /// `None`: any.
    methods: Option<Box<[Method]>>,
    /// `None`: any.
    path: Option<Router<()>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidPattern {
    #[error("has an invalid method `{0}`")]
    Method(String),
    #[error("has an invalid path: {0}")]
    Path(#[from] matchit::InsertError),
}

impl RequestPattern {
    pub(crate) fn new(
        methods: Option<&[String]>,
        path: Option<&str>,
    ) -> Result<Self, InvalidPattern> {
        let method = |name: &String| {
            Method::from_bytes(name.as_bytes()).map_err(|_| InvalidPattern::Method(name.clone()))
        };
        let router = |path| {
            let mut router = Router::new();
            router.insert(&*canonical_path(path), ()).map(|()| router)
        };
        Ok(Self {
            methods: methods
                .map(|methods| methods.iter().map(method).collect())
                .transpose()?,
            path: path.map(router).transpose()?,
        })
    }

    fn includes(&self, method: &Method) -> bool {
        let methods = self.methods.as_deref();
        methods.is_none_or(|methods| includes(methods, method))
    }

    fn matches_path(&self, path: &str) -> bool {
        let router = self.path.as_ref();
        router.is_none_or(|router| router.at(path).is_ok())
    }
}

fn includes(methods: &[Method], method: &Method) -> bool {
    methods.contains(method) || (method == Method::HEAD && methods.contains(&Method::GET))
}

/// The requests of one rule: its pattern, minus the patterns of earlier rules that exempt.
///
/// A rule applies if it matches any [spelling](doorman_openapi::PathSpellings) of the path. One that
/// exempts must match all, of a path that servers read in one way: no spelling evades a limit.
#[derive(Debug)]
pub(crate) struct RequestScope {
    pub(crate) pattern: RequestPattern,
    pub(crate) exempt: Box<[Arc<RequestPattern>]>,
}

impl RequestScope {
    pub(crate) fn contains(&self, head: &RequestHead<'_>) -> bool {
        let (method, sent) = (head.method(), head.full_path());
        if !self.pattern.includes(method) {
            return false;
        }
        let Some(spellings) = self.reads_path().then(|| head.path_spellings()) else {
            return true;
        };
        spellings.any(sent, |path| self.pattern.matches_path(path))
            && !self
                .exempt
                .iter()
                .any(|it| it.includes(method) && spellings.all(sent, |path| it.matches_path(path)))
    }

    fn reads_path(&self) -> bool {
        self.pattern.path.is_some() || !self.exempt.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn pattern(methods: &[&str], path: Option<&str>) -> RequestPattern {
        let methods: Vec<_> = methods.iter().map(|it| (*it).to_owned()).collect();
        let methods = (!methods.is_empty()).then_some(methods);
        RequestPattern::new(methods.as_deref(), path).unwrap()
    }

    fn contains(scope: &RequestScope, method: &str, path: &str) -> bool {
        let request = Request::builder().method(method).uri(path).body(());
        scope.contains(&RequestHead::of(&request.unwrap()))
    }

    fn without_exemptions(pattern: RequestPattern) -> RequestScope {
        RequestScope {
            pattern,
            exempt: [].into(),
        }
    }

    #[test]
    fn empty_pattern_matches_any_request() {
        let any = without_exemptions(pattern(&[], None));
        for (method, path) in [("GET", "/"), ("PROPFIND", "/a/b?c"), ("OPTIONS", "*")] {
            assert!(contains(&any, method, path), "{method} {path}");
        }
    }

    #[test]
    fn method_and_path_must_both_match() {
        let orders = without_exemptions(pattern(&["GET", "POST"], Some("/v1/orders/{id}")));
        for (method, path, expected) in [
            ("GET", "/v1/orders/7", true),
            ("POST", "/v1/orders/a%2Fb?x=/", true),
            ("PUT", "/v1/orders/7", false),
            ("get", "/v1/orders/7", false),
            ("GET", "/v1/orders", false),
            ("GET", "/v1/orders/", false),
            ("GET", "/v1/orders/7/lines", false),
            ("GET", "/V1/orders/7", false),
        ] {
            assert_eq!(contains(&orders, method, path), expected, "{method} {path}");
        }
        let rest = without_exemptions(pattern(&[], Some("/static/{*rest}")));
        assert!(contains(&rest, "GET", "/static/a/b.css"));
        assert!(!contains(&rest, "GET", "/static/"));
        assert!(!contains(&rest, "GET", "/v1/orders/7"));
    }

    #[test]
    fn get_includes_head_only() {
        for (named, requested, expected) in [
            (&["GET"][..], "HEAD", true),
            (&["POST", "GET"], "HEAD", true),
            (&["HEAD"], "HEAD", true),
            (&["HEAD"], "GET", false),
            (&["POST"], "HEAD", false),
            (&["GET"], "OPTIONS", false),
            (&["GET"], "head", false),
        ] {
            let own = pattern(named, Some("/a"));
            assert_eq!(own.includes(&requested.parse().unwrap()), expected);
            let exempting = RequestScope {
                pattern: pattern(&[], None),
                exempt: [Arc::new(own)].into(),
            };
            assert_eq!(
                contains(&exempting, requested, "/a"),
                !expected,
                "{named:?} {requested}"
            );
        }
    }

    #[test]
    fn no_spelling_evades_a_rule() {
        let generate = without_exemptions(pattern(&[], Some("/v1/models/a:b")));
        for path in [
            "/v1/models/a:b",
            "/v1/models/a%3Ab",
            "/v1/models/a%3ab",
            "/v1/%6dodels/%61:b",
            "//v1//models/a:b",
            "/v1/x/../models/./a:b",
            "/v1//../v1/models/a:b",
            "/v1/models//../a:b",
            "/v1%2Fmodels/a:b",
        ] {
            assert!(contains(&generate, "GET", path), "{path}");
        }
        // As sent.
        let rest = without_exemptions(pattern(&[], Some("/v1/{*rest}")));
        assert!(contains(&rest, "GET", "/v1/../healthz"));
        assert!(contains(&rest, "GET", "/v0/../v1/a"));
    }

    #[test]
    fn no_spelling_makes_an_exemption() {
        let exempting = |exempt| RequestScope {
            pattern: pattern(&[], None),
            exempt: [Arc::new(pattern(&[], Some(exempt)))].into(),
        };
        let probes = exempting("/healthz");
        assert!(!contains(&probes, "GET", "/healthz"));
        for path in [
            "/v1/../healthz",
            "//healthz",
            "/health%7a",
            "/v1/..%2fhealthz",
        ] {
            assert!(contains(&probes, "GET", path), "{path}");
        }
        let assets = exempting("/static/{*rest}");
        assert!(!contains(&assets, "GET", "/static/a.css"));
        assert!(!contains(&assets, "GET", "/static/a%20b.css"));
        for path in [
            "/static/../v1/orders",
            "/static/../v1//../static/x",
            "/static/..%2Fv1%2Forders",
            "/static//a.css",
        ] {
            assert!(contains(&assets, "GET", path), "{path}");
        }
    }

    #[cfg(feature = "axum")]
    #[test]
    fn nested_router_matches_the_whole_path() {
        let orders = without_exemptions(pattern(&[], Some("/v1/orders/{id}")));
        let mut request = Request::get("/orders/7").body(()).unwrap();
        let whole = axum::extract::OriginalUri("/v1/orders/7".parse().unwrap());
        request.extensions_mut().insert(whole);
        assert!(orders.contains(&RequestHead::of(&request)));
    }

    #[test]
    fn exempt_requests_are_outside_the_scope() {
        let scope = RequestScope {
            pattern: pattern(&[], None),
            exempt: [
                pattern(&["GET"], Some("/healthz")),
                pattern(&[], Some("/metrics")),
            ]
            .map(Arc::new)
            .into(),
        };
        assert!(!contains(&scope, "GET", "/healthz"));
        assert!(contains(&scope, "POST", "/healthz"));
        assert!(!contains(&scope, "POST", "/metrics"));
        assert!(contains(&scope, "GET", "/v1"));
    }
}
