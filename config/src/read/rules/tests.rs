use doorman_openapi::MAX_RULES;

use crate::Document;

const RESOURCES: &str =
    "resources: [{identifier_glob: 'tenant/*', capacity: 1, algorithm: {kind: STATIC}}]\nrules:\n";

/// Checks every line of what is said about these rules; the first is on line 3.
#[track_caller]
fn check(rules: &str, lines: &[&str]) {
    let text = format!("{RESOURCES}{rules}");
    match Document::parse(&text) {
        Ok(document) => panic!("{text} should be refused, and reads as {document:?}"),
        Err(faults) => assert_eq!(
            faults.to_string().lines().collect::<Vec<_>>(),
            lines,
            "{text}"
        ),
    }
}

/// The same for a rule that has but this field besides what it needs.
#[track_caller]
fn check_field(field: &str, fault: &str) {
    let rule = format!("- name: r\n  service: s\n  resource: tenant/a\n  {field}\n");
    check(&rule, &[fault]);
}

/// The same for its resource.
#[track_caller]
fn check_resource(resource: &str, fault: &str) {
    let rule = format!("- name: r\n  service: s\n  resource: \"{resource}\"\n");
    check(
        &rule,
        &[&format!(r#"5:13: rules[0] "r": resource: must {fault}"#)],
    );
}

#[test]
fn lists_every_fault_with_its_place_and_what_would_be_right() {
    check(
        "
- name: per-tenant
  service: 'orders['
  methods: [get, POST, POST, PSOT, 'a b']
  paths: /v1
  resource: 'tenant/{jwt}'
  unit: requests
  cost: 0
  burst: -1
  on_limit: {action: slow, max_delay: 0}
  on_missing_key: ignore
  fallback: open
  priority: 1.5
- name: per-tenant
  service: orders
  on_limit: {action: delay}
- {}
- all
",
        &[
            r#"5:12: rules[0] "per-tenant": service: must be a glob whose every `[` is closed by a `]`, not "orders[""#,
            r#"6:13: rules[0] "per-tenant": methods[0]: must be a method in upper case, not "get"; did you mean GET?"#,
            r#"6:24: rules[0] "per-tenant": methods[2]: must stand only once"#,
            r#"6:30: rules[0] "per-tenant": methods[3]: must be a method in upper case, not "PSOT"; did you mean POST?"#,
            r#"6:36: rules[0] "per-tenant": methods[4]: must be a method in upper case, such as GET, not the text "a b""#,
            r#"7:3: rules[0] "per-tenant": paths: is not a known field; did you mean "path"?"#,
            r#"8:13: rules[0] "per-tenant": resource: must have no other placeholders than {header:NAME}, {jwt:CLAIM}, {client_ip}, {method}, {route}, {host} and {api_key}, not "{jwt}""#,
            r#"9:9: rules[0] "per-tenant": unit: must be rate or gauge, not the text "requests""#,
            r#"10:9: rules[0] "per-tenant": cost: must be a number above 0 and at most 1e15, not 0"#,
            r#"11:10: rules[0] "per-tenant": burst: must be a number of seconds from 0 to 31536000 (a year), not -1"#,
            r#"12:22: rules[0] "per-tenant": on_limit.action: must be reject, delay, shadow or exempt, not the text "slow""#,
            r#"12:39: rules[0] "per-tenant": on_limit.max_delay: must be a number of seconds from 0.001 to 31536000 (a year), not 0"#,
            r#"13:19: rules[0] "per-tenant": on_missing_key: must be shared, skip or reject, not the text "ignore""#,
            r#"14:13: rules[0] "per-tenant": fallback: must be safe, optimistic or pessimistic, not the text "open""#,
            r#"15:13: rules[0] "per-tenant": priority: must be a whole number from -2147483648 to 2147483647, not 1.5"#,
            r#"18:13: rules[1] "per-tenant": on_limit.max_delay: is missing; must be a number of seconds from 0.001 to 31536000 (a year), for `delay`"#,
            "19:3: rules[2]: name: is missing; must be a name of 1 to 256 bytes of UTF-8 without control characters",
            r#"19:3: rules[2]: service: is missing; must be a glob over the names of services, such as "orders*""#,
            r#"19:3: rules[2]: resource: is missing; must be a resource, such as "tenant/{jwt:sub}""#,
            r#"20:3: rules[3]: must be a map with the fields name, service, methods, path, resource, unit, cost, burst, on_limit, on_missing_key, fallback, priority, not the text "all""#,
        ],
    );
}

#[test]
fn a_name_stands_once() {
    check(
        "- {name: a, service: s, resource: tenant/a}\n- {name: a, service: t, resource: tenant/b}\n",
        &[r#"4:10: rules[1] "a": name: must be unique; the same name stands at 3:10"#],
    );
}

#[test]
fn a_fault_knows_its_rule() {
    let text = format!("{RESOURCES}- {{name: a, service: s, resource: tenant/a, cost: -1}}\n");
    let faults = Document::parse(&text).unwrap_err();
    let fault = &faults.list()[0];
    assert_eq!(
        (fault.rule_index(), fault.rule_name()),
        (Some(0), Some("a"))
    );
    assert_eq!(
        (fault.template_index(), fault.identifier_glob()),
        (None, None)
    );
    assert_eq!((fault.field(), fault.pointer()), ("cost", "/rules/0/cost"));
}

#[test]
fn paths_are_what_axum_takes_for_routes() {
    for path in [
        "/",
        "/v1/orders",
        "/v1/orders/{id}",
        "/v1/{a}/x/{b}/",
        "/{*rest}",
        "/a/{{b}}",
    ] {
        let rule = format!("- {{name: r, service: s, resource: tenant/a, path: '{path}'}}\n");
        let document = Document::parse(&format!("{RESOURCES}{rule}")).unwrap();
        assert_eq!(
            document.rules()[0].definition().path.as_deref(),
            Some(path),
            "{path}"
        );
    }
    for path in ["", "orders", "5", "/a\\nb"] {
        let shown = match path {
            "5" => "5".to_owned(),
            _ => format!("the text \"{path}\""),
        };
        let written = if path == "5" {
            path.to_owned()
        } else {
            format!("\"{path}\"")
        };
        check_field(
            &format!("path: {written}"),
            &format!(
                r#"6:9: rules[0] "r": path: must be a path as axum writes routes, such as "/v1/orders/{{id}}", not {shown}"#
            ),
        );
    }
    for path in ["/:id", "/a/*rest"] {
        check_field(
            &format!("path: '{path}'"),
            &format!(
                r#"6:9: rules[0] "r": path: must have its placeholders in braces, such as {{id}} or {{*rest}}, not "{path}""#
            ),
        );
    }
    for path in ["/{}", "/{a", "/a}", "/{*rest}/a", "/{a}b", "/{*}"] {
        check_field(
            &format!("path: '{path}'"),
            &format!(
                r#"6:9: rules[0] "r": path: must have placeholders that have a name and end with their segment, and {{*rest}} at its end, not "{path}""#
            ),
        );
    }
}

#[test]
fn resources_are_templates_of_what_can_be_known_of_a_request() {
    for (resource, fault) in [
        (
            "",
            "be a resource, such as \"tenant/{jwt:sub}\"; there is nothing in it",
        ),
        (
            "a\\nb",
            "be a resource, such as \"tenant/{jwt:sub}\", without control characters",
        ),
        (
            "a{",
            "be a resource, such as \"tenant/{jwt:sub}\"; the brace at byte 1 has no other: a placeholder is like {method}",
        ),
        (
            "{host}-{method}",
            "be a resource, such as \"tenant/{jwt:sub}\"; nothing separates the placeholder that ends at byte 6 from the next: put \
             something between them that no value contains, such as `/`",
        ),
        (
            "{header:Cookie}",
            "be a resource, such as \"tenant/{jwt:sub}\"; {header:cookie} would put secrets into the ids of resources: {api_key:NAME} \
             takes a header by its hash, such as {api_key:cookie}",
        ),
        ("{header:a b}", "name a header that can be, not \"a b\""),
    ] {
        check_resource(resource, fault);
    }
    for name in ["peer", "jwt:", "tenant", "method:x", ""] {
        check_resource(
            &format!("{{{name}}}"),
            &format!(
                "have no other placeholders than {{header:NAME}}, {{jwt:CLAIM}}, {{client_ip}}, {{method}}, {{route}}, {{host}} and \
                 {{api_key}}, not \"{{{name}}}\""
            ),
        );
    }
}

#[test]
fn only_a_delay_has_an_end() {
    check_field(
        "on_limit: {action: shadow, max_delay: 1}",
        r#"6:41: rules[0] "r": on_limit.max_delay: must be left out: only `delay` has one"#,
    );
    check_field(
        "on_limit: reject",
        r#"6:13: rules[0] "r": on_limit: must be a map with the fields action, max_delay, not the text "reject""#,
    );
}

#[test]
fn there_are_not_more_rules_than_a_request_can_walk_through() {
    let rules = |count: usize| {
        (0..count)
            .map(|index| format!("- {{name: r{index}, service: s, resource: tenant/a}}\n"))
            .collect::<String>()
    };
    let most = format!("{RESOURCES}{}", rules(MAX_RULES));
    assert_eq!(Document::parse(&most).unwrap().rules().len(), MAX_RULES);
    check(
        &rules(MAX_RULES + 1),
        &[
            "3:3: rules: must be at most 1000 rules, since each request walks through them, not 1001",
        ],
    );
}

#[test]
fn warns_of_rules_that_nothing_limits() {
    for (resource, warned) in [
        ("tenant/a", false),
        ("tenant/{method}", false),
        ("{method}/x", false),
        ("te{method}", false),
        ("user/{method}", true),
        ("api", true),
    ] {
        let rule = format!("- {{name: r, service: s, resource: '{resource}'}}\n");
        let document = Document::parse(&format!("{RESOURCES}{rule}")).unwrap();
        let warning = r#"3:35: rules[0] "r": resource: no template matches it, so that it is unlimited, or refused, as `--unmatched` says"#;
        let expected: &[&str] = if warned { &[warning] } else { &[] };
        assert_eq!(document.warnings(), expected, "{resource}");
    }
}
