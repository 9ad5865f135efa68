use doorman_openapi::Moment;

use super::*;

fn fields(name: &str, policy: Option<(f64, f64)>, left: f64, rate: Option<f64>) -> [String; 2] {
    let now = Moment::ORIGIN.after_seconds(3_600.0);
    let reading = Reading {
        policy: policy.map(|(limit, per)| Policy { limit, per }),
        left,
        rate,
        changes_at: now.after_seconds(30.0),
    };
    let mut fields = Fields::default();
    fields.add(&FieldName::new(name), &reading, now);
    [fields.policy, fields.limit].map(|line| String::from_utf8(line).unwrap())
}

fn policy(limit: f64, per: f64) -> String {
    let [policy, _] = fields("x", Some((limit, per)), 1.0, None);
    policy.trim_start_matches(r#""x";"#).to_owned()
}

#[test]
fn a_policy_is_told_in_whole_units_and_seconds() {
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
fn what_is_left_is_rounded_down_and_the_time_up() {
    for (left, rate, expected) in [
        (10.0, 10.0, "r=10;t=1"),
        (9.9, 10.0, "r=9;t=1"),
        (0.5, 0.1, "r=0;t=5"),
        (0.0, 0.3, "r=0;t=4"),
        // Owed or promised; and never beyond the end of the lease.
        (-2.0, 1.0, "r=0;t=3"),
        (-500.0, 1.0, "r=0;t=30"),
    ] {
        let [_, limit] = fields("x", None, left, Some(rate));
        assert_eq!(limit, format!(r#""x";{expected}"#), "{left} at {rate}");
    }
}

#[test]
fn nothing_is_said_of_what_is_not_known() {
    assert_eq!(fields("x", None, f64::INFINITY, None), ["", ""]);
    let mut headers = HeaderMap::new();
    Fields::default().append_to(&mut headers);
    assert!(headers.is_empty());
}

#[test]
fn a_name_is_a_string_of_printable_ascii() {
    for (name, quoted) in [
        ("per-tenant", r#""per-tenant""#),
        ("tenant/{header:x}", r#""tenant/{header:x}""#),
        (r#"a"b\c"#, r#""a\"b\\c""#),
        ("ü\n", r#""??""#),
    ] {
        assert_eq!(FieldName::new(name).policy, format!("{quoted};q="));
    }
}

#[test]
fn fields_of_another_layer_stay() {
    let mut headers = HeaderMap::new();
    headers.insert(LIMIT, HeaderValue::from_static(r#""inner";r=1;t=1"#));
    let fields = Fields {
        policy: Line::new(),
        limit: br#""outer";r=2;t=1"#.to_vec(),
    };
    fields.append_to(&mut headers);
    let lines: Vec<_> = headers.get_all(LIMIT).iter().collect();
    assert_eq!(lines, [r#""inner";r=1;t=1"#, r#""outer";r=2;t=1"#]);
}
