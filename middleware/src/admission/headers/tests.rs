use doorman_openapi::Moment;

use super::*;

fn headers(name: &str, policy: Option<(f64, f64)>, left: f64, rate: Option<f64>) -> [String; 2] {
    let now = Moment::ORIGIN.after_seconds(3_600.0);
    let reading = Reading {
        policy: policy.map(|(limit, per)| Policy { limit, per }),
        left,
        rate,
        changes_at: now.after_seconds(30.0),
    };
    let mut headers = RateLimitHeaders::default();
    headers.add(&LimitItem::new(name, Unit::Rate), &reading, now);
    [headers.policy, headers.limit].map(text)
}

fn text(list: List) -> String {
    let value = list.into_value();
    value.map_or(String::new(), |value| value.to_str().unwrap().to_owned())
}

fn policy(limit: f64, per: f64) -> String {
    let [policy, _] = headers("x", Some((limit, per)), 1.0, None);
    policy.trim_start_matches(r#""x";"#).to_owned()
}

#[test]
fn policy_is_in_whole_units_and_seconds() {
    for (limit, per, expected) in [
        (1_000.0, 1.0, "q=1000;w=1"),
        (600.0, 3_600.0, "q=600;w=3600"),
        (0.5, 1.0, "q=1;w=2"),
        (2.5, 1.0, "q=2;w=1"),
        (10.0, 0.5, "q=20;w=1"),
        (0.3, 1.0, "q=1;w=4"),
        (0.0, 1.0, "q=0;w=1"),
        (1e15, 1.0, "q=999999999999999;w=1"),
        (1e-300, 1.0, ""),
    ] {
        assert_eq!(policy(limit, per), expected, "{limit} per {per}");
    }
}

#[test]
fn tokens_round_down_and_time_rounds_up() {
    for (left, rate, expected) in [
        (10.0, 10.0, "r=10;t=1"),
        (9.9, 10.0, "r=9;t=1"),
        (0.5, 0.1, "r=0;t=5"),
        (0.0, 0.3, "r=0;t=4"),
        // Debt, and the end of the lease.
        (-2.0, 1.0, "r=0;t=3"),
        (-500.0, 1.0, "r=0;t=30"),
    ] {
        let [_, limit] = headers("x", None, left, Some(rate));
        assert_eq!(limit, format!(r#""x";{expected}"#), "{left} at {rate}");
    }
}

#[test]
fn unlimited_resource_has_no_headers() {
    assert_eq!(headers("x", None, f64::INFINITY, None), ["", ""]);
    let mut headers = HeaderMap::new();
    RateLimitHeaders::default().append_to(&mut headers);
    assert!(headers.is_empty());
}

#[test]
fn name_is_quoted_printable_ascii() {
    for (name, quoted) in [
        ("per-tenant", r#""per-tenant""#),
        ("tenant/{header:x}", r#""tenant/{header:x}""#),
        (r#"a"b\c"#, r#""a\"b\\c""#),
        ("ü\n", r#""??""#),
    ] {
        assert_eq!(
            LimitItem::new(name, Unit::Rate).policy,
            format!("{quoted};q=")
        );
    }
}

#[test]
fn headers_of_inner_layer_are_kept() {
    let mut headers = HeaderMap::new();
    headers.insert(LIMIT, HeaderValue::from_static(r#""inner";r=1;t=1"#));
    let outer = RateLimitHeaders {
        policy: List::Empty,
        limit: List::One(HeaderValue::from_static(r#""outer";r=2;t=1"#)),
    };
    outer.append_to(&mut headers);
    let lines: Vec<_> = headers.get_all(LIMIT).iter().collect();
    assert_eq!(lines, [r#""inner";r=1;t=1"#, r#""outer";r=2;t=1"#]);
}

#[test]
fn limits_are_items_of_one_list_by_their_present_policies() {
    let items = ["a", "b", "c"].map(|name| LimitItem::new(name, Unit::Rate));
    for limit in [10.0, 10.0, 20.0] {
        let mut headers = RateLimitHeaders::default();
        for item in &items {
            let reading = Reading {
                policy: Some(Policy { limit, per: 1.0 }),
                left: 1.0,
                rate: Some(1.0),
                changes_at: Moment::NEVER,
            };
            headers.add(item, &reading, Moment::ORIGIN);
        }
        let [policy, limits] = [headers.policy, headers.limit].map(text);
        assert_eq!(
            policy,
            format!(r#""a";q={limit};w=1, "b";q={limit};w=1, "c";q={limit};w=1"#)
        );
        assert_eq!(limits, r#""a";r=1;t=1, "b";r=1;t=1, "c";r=1;t=1"#);
    }
}
