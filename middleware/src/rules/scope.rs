//! Which requests a rule is for.

use std::sync::Arc;

use doorman_openapi::Rule;
use http::Method;
use matchit::Router;

use super::Malformed;
use crate::RequestHead;

/// Methods and paths. Whoever names GET names HEAD: a server answers it as a GET without a body (RFC 9110 section 9.3.2), and axum's
/// handlers of GET run for it. A path is matched by itself, whatever other rules there are, by the matcher of axum's router, so that it means
/// what a route of that text means; and like a route it sees the path as it was sent, with what is percent-encoded in it.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// `None`: any.
    methods: Option<Box<[Method]>>,
    /// `None`: any.
    path: Option<Router<()>>,
}

impl Pattern {
    pub(super) fn of(rule: &Rule) -> Result<Self, Malformed> {
        let methods = rule.methods.as_ref().map(|methods| {
            methods
                .iter()
                .map(|method| Method::from_bytes(method.as_bytes()))
                .collect::<Result<Box<[_]>, _>>()
        });
        let path = rule.path.as_ref().map(|path| {
            let mut router = Router::new();
            router.insert(path, ()).map(|()| router)
        });
        Ok(Self {
            methods: methods
                .transpose()
                .map_err(|_| Malformed::new(rule, "has a method that is none"))?,
            path: path
                .transpose()
                .map_err(|why| Malformed::new(rule, format!("has a path that is none: {why}")))?,
        })
    }

    fn matches(&self, method: &Method, path: &str) -> bool {
        self.methods
            .as_ref()
            .is_none_or(|methods| name(methods, method))
            && self
                .path
                .as_ref()
                .is_none_or(|router| router.at(path).is_ok())
    }
}

fn name(methods: &[Method], method: &Method) -> bool {
    methods.contains(method) || (method == Method::HEAD && methods.contains(&Method::GET))
}

/// The requests of one rule: those that it matches, but for those that a rule before it exempts.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(super) own: Pattern,
    pub(super) exempt: Box<[Arc<Pattern>]>,
}

impl Scope {
    /// Whether the rule applies to a request.
    pub(crate) fn covers(&self, head: &RequestHead<'_>) -> bool {
        let (method, path) = (head.method(), head.full_path());
        self.own.matches(method, path) && !self.exempt.iter().any(|it| it.matches(method, path))
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn pattern(methods: &[&str], path: Option<&str>) -> Pattern {
        let methods: Vec<_> = methods.iter().map(|it| (*it).to_owned()).collect();
        let rule = Rule {
            methods: (!methods.is_empty()).then_some(methods),
            path: path.map(str::to_owned),
            ..super::super::testing::rule("r", "api")
        };
        Pattern::of(&rule).unwrap()
    }

    fn covers(scope: &Scope, method: &str, path: &str) -> bool {
        let request = Request::builder().method(method).uri(path).body(());
        scope.covers(&RequestHead::of(&request.unwrap()))
    }

    fn alone(own: Pattern) -> Scope {
        Scope {
            own,
            exempt: [].into(),
        }
    }

    #[test]
    fn what_is_not_said_is_any() {
        let any = alone(pattern(&[], None));
        for (method, path) in [("GET", "/"), ("PROPFIND", "/a/b?c"), ("OPTIONS", "*")] {
            assert!(covers(&any, method, path), "{method} {path}");
        }
    }

    #[test]
    fn methods_and_path_must_both_match() {
        let orders = alone(pattern(&["GET", "POST"], Some("/v1/orders/{id}")));
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
            assert_eq!(covers(&orders, method, path), expected, "{method} {path}");
        }
        let rest = alone(pattern(&[], Some("/static/{*rest}")));
        assert!(covers(&rest, "GET", "/static/a/b.css"));
        assert!(!covers(&rest, "GET", "/static/"));
        assert!(!covers(&rest, "GET", "/v1/orders/7"));
    }

    #[test]
    fn who_names_get_names_head_and_nothing_else_is_named_along() {
        for (named, asked, expected) in [
            (&["GET"][..], "HEAD", true),
            (&["POST", "GET"], "HEAD", true),
            (&["HEAD"], "HEAD", true),
            (&["HEAD"], "GET", false),
            (&["POST"], "HEAD", false),
            (&["GET"], "OPTIONS", false),
            (&["GET"], "head", false),
        ] {
            let own = pattern(named, Some("/a"));
            assert_eq!(own.matches(&asked.parse().unwrap(), "/a"), expected);
            // So with what a rule exempts.
            let scope = Scope {
                own: pattern(&[], None),
                exempt: [Arc::new(own)].into(),
            };
            assert_eq!(covers(&scope, asked, "/a"), !expected, "{named:?} {asked}");
        }
    }

    #[cfg(feature = "axum")]
    #[test]
    fn a_router_that_cuts_the_path_does_not_hide_it() {
        let orders = alone(pattern(&[], Some("/v1/orders/{id}")));
        let mut request = Request::get("/orders/7").body(()).unwrap();
        let whole = axum::extract::OriginalUri("/v1/orders/7".parse().unwrap());
        request.extensions_mut().insert(whole);
        assert!(orders.covers(&RequestHead::of(&request)));
    }

    #[test]
    fn what_is_exempt_is_not_covered() {
        let scope = Scope {
            own: pattern(&[], None),
            exempt: [
                pattern(&["GET"], Some("/healthz")),
                pattern(&[], Some("/metrics")),
            ]
            .map(Arc::new)
            .into(),
        };
        assert!(!covers(&scope, "GET", "/healthz"));
        assert!(covers(&scope, "POST", "/healthz"));
        assert!(!covers(&scope, "POST", "/metrics"));
        assert!(covers(&scope, "GET", "/v1"));
    }
}
