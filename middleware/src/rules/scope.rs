//! Which requests a rule is for.

use std::sync::Arc;

use doorman_openapi::Rule;
use http::Method;
use matchit::Router;

use super::Malformed;
use crate::RequestHead;

/// Methods and paths. A path is matched by itself, whatever other rules there are, by the matcher of axum's router, so that it means
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
                .collect::<Result<_, _>>()
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
            .is_none_or(|methods| methods.contains(method))
            && self
                .path
                .as_ref()
                .is_none_or(|router| router.at(path).is_ok())
    }
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
        let methods = methods.iter().map(|it| (*it).to_owned()).collect();
        let rule = Rule {
            methods: Some(methods).filter(|it: &Vec<_>| !it.is_empty()),
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
