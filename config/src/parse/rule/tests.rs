use doorman_openapi::MAX_RULES;

use crate::Document;

const RESOURCES: &str =
    "resources: [{identifier_glob: 'tenant/*', capacity: 1, algorithm: {kind: STATIC}}]\nrules:\n";

/// Checks all errors of these rules; the first is on line 3.
#[track_caller]
fn check(rules: &str, lines: &[&str]) {
    let text = format!("{RESOURCES}{rules}");
    match Document::parse(&text) {
        Ok(document) => panic!("{text} should be invalid, not {document:?}"),
        Err(errors) => assert_eq!(
            errors.to_string().lines().collect::<Vec<_>>(),
            lines,
            "{text}"
        ),
    }
}

/// Checks the error of a rule with one more field than it needs.
#[track_caller]
fn check_field(field: &str, fault: &str) {
    let rule = format!("- name: r\n  service: s\n  resource: tenant/a\n  {field}\n");
    check(&rule, &[fault]);
}

/// Checks the error of a resource.
#[track_caller]
fn check_resource(resource: &str, fault: &str) {
    let rule = format!("- name: r\n  service: s\n  resource: \"{resource}\"\n");
    check(
        &rule,
        &[&format!(r#"5:13: rules[0] "r": resource: must {fault}"#)],
    );
}

#[test]
fn every_error_is_listed_with_its_location() {
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
  outcomes: {headers: openai-token, family: x}
- name: per-tenant
  service: orders
  on_limit: {action: delay}
- {}
- all
",
        &[
            r#"5:12: rules[0] "per-tenant": service: must be a glob whose every `[` is closed by a `]`, not "orders[""#,
            r#"6:13: rules[0] "per-tenant": methods[0]: must be a method in upper case, not "get"; did you mean GET?"#,
            r#"6:24: rules[0] "per-tenant": methods[2]: must appear only once"#,
            r#"6:30: rules[0] "per-tenant": methods[3]: must be a method in upper case, not "PSOT"; did you mean POST?"#,
            r#"6:36: rules[0] "per-tenant": methods[4]: must be a method in upper case, such as GET, not the text "a b""#,
            r#"7:3: rules[0] "per-tenant": paths: is not a known field; did you mean "path"?"#,
            r#"8:13: rules[0] "per-tenant": resource: must have no other placeholders than {header:NAME}, {jwt:CLAIM}, {client_ip}, {method}, {route}, {host} and {api_key}, not "{jwt}""#,
            r#"9:9: rules[0] "per-tenant": unit: must be rate or gauge, not the text "requests""#,
            r#"10:9: rules[0] "per-tenant": cost: must be a number above 0 and at most 1e15, not 0"#,
            r#"11:10: rules[0] "per-tenant": burst: must be a number of seconds from 0 to 86400 (a day), not -1"#,
            r#"12:22: rules[0] "per-tenant": on_limit.action: must be reject, delay, shadow or exempt, not the text "slow""#,
            r#"12:39: rules[0] "per-tenant": on_limit.max_delay: must be a number of seconds from 0.001 to 31536000 (a year), not 0"#,
            r#"13:19: rules[0] "per-tenant": on_missing_key: must be shared, skip or reject, not the text "ignore""#,
            r#"14:13: rules[0] "per-tenant": fallback: must be safe, optimistic or pessimistic, not the text "open""#,
            r#"15:13: rules[0] "per-tenant": priority: must be a whole number from -2147483648 to 2147483647, not 1.5"#,
            r#"16:23: rules[0] "per-tenant": outcomes.headers: must be standard, openai-requests, openai-tokens, anthropic-requests, anthropic-input-tokens, anthropic-output-tokens or anthropic-tokens, not "openai-token"; did you mean openai-tokens?"#,
            r#"16:37: rules[0] "per-tenant": outcomes.family: is not a known field; known are headers"#,
            r#"17:9: rules[1] "per-tenant": name: must be unique; rules[0] has the same name"#,
            r#"19:13: rules[1] "per-tenant": on_limit.max_delay: is missing; must be a number of seconds from 0.001 to 31536000 (a year), for `delay`"#,
            "20:3: rules[2]: name: is missing; must be a name of 1 to 256 bytes of UTF-8 without control characters",
            r#"20:3: rules[2]: service: is missing; must be a glob over the names of services, such as "orders*""#,
            r#"20:3: rules[2]: resource: is missing; must be a resource, such as "tenant/{jwt:sub}""#,
            r#"21:3: rules[3]: must be a map with the fields name, service, methods, path, resource, unit, cost, burst, on_limit, on_missing_key, fallback, priority, outcomes, not the text "all""#,
        ],
    );
}

#[test]
fn outcomes_need_known_headers() {
    let expected = "standard, openai-requests, openai-tokens, anthropic-requests, \
                    anthropic-input-tokens, anthropic-output-tokens or anthropic-tokens";
    for (written, fault) in [
        ("{}", format!("6:13: rules[0] \"r\": outcomes.headers: is missing; must be {expected}")),
        ("standard", "6:13: rules[0] \"r\": outcomes: must be a map with the fields headers, not the text \"standard\"".to_owned()),
        ("{headers: 7}", format!("6:23: rules[0] \"r\": outcomes.headers: must be {expected}, not 7")),
        ("{headers: openai}", format!("6:23: rules[0] \"r\": outcomes.headers: must be {expected}, not the text \"openai\"")),
    ] {
        check_field(&format!("outcomes: {written}"), &fault);
    }
}

#[test]
fn rule_names_are_unique() {
    check(
        "- {name: a, service: s, resource: tenant/a}\n- {name: a, service: t, resource: tenant/b}\n",
        &[r#"4:10: rules[1] "a": name: must be unique; rules[0] has the same name"#],
    );
}

#[test]
fn path_must_be_an_axum_route() {
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
    for (path, canonical) in [
        ("/caf\u{e9}", "/caf%C3%A9"),
        ("/a b", "/a%20b"),
        ("//x", "/x"),
        ("/a/../b", "/b"),
        ("/%6F", "/o"),
        ("/a%2fb", "/a%2Fb"),
        ("/models/{id}%3arun", "/models/{id}:run"),
    ] {
        check_field(
            &format!("path: '{path}'"),
            &format!(
                r#"6:9: rules[0] "r": path: must be "{canonical}", the canonical spelling, not "{path}""#
            ),
        );
    }
    check_field(
        "path: '/a?b=c'",
        r#"6:9: rules[0] "r": path: must be "/a", without a query or fragment: only the path is matched, not "/a?b=c""#,
    );
    for method in ["ANY", "all", "'*'"] {
        check_field(
            &format!("methods: [{method}]"),
            r#"6:13: rules[0] "r": methods[0]: must be a list of methods; leave it out to match any method"#,
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
fn resource_must_be_a_valid_key_template() {
    for (resource, fault) in [
        (
            "",
            "be a resource, such as \"tenant/{jwt:sub}\"; empty key template",
        ),
        (
            "a\\nb",
            "be a resource, such as \"tenant/{jwt:sub}\", without control characters",
        ),
        (
            "a{",
            "be a resource, such as \"tenant/{jwt:sub}\"; unbalanced brace at byte 1; a placeholder is like {method}",
        ),
        (
            "{host}-{method}",
            "be a resource, such as \"tenant/{jwt:sub}\"; missing separator after the placeholder that ends at byte 6; use \
             a character that no value contains, such as `/`",
        ),
        (
            "{header:Cookie}",
            "be a resource, such as \"tenant/{jwt:sub}\"; {header:cookie} would expose secrets in resource ids; use \
             {api_key:cookie}, which hashes the header",
        ),
        ("{header:a b}", "have a valid header name, not \"a b\""),
        (
            "{header::path}",
            "have {host}, {method} or {route}, not \"{header::path}\": pseudo-headers are no headers",
        ),
    ] {
        check_resource(resource, fault);
    }
    for resource in ["{client_ip:v4=24,v6=56}", "a/{client_ip:v6=48}"] {
        let rule = format!("{RESOURCES}- {{name: r, service: s, resource: '{resource}'}}");
        let document = Document::parse(&rule).unwrap();
        let resources = document
            .rules()
            .iter()
            .map(|it| it.definition().resource.as_deref());
        assert!(resources.eq([Some(resource)]), "{resource}");
    }
    for lengths in ["24", "v4=0", "v6=129", "v4=24,v4=24", ""] {
        check_resource(
            &format!("{{client_ip:{lengths}}}"),
            &format!(
                "have prefix lengths such as {{client_ip:v4=24,v6=56}}, with v4 from 1 to 32 and v6 from 1 to 128, not \
                 \"{{client_ip:{lengths}}}\""
            ),
        );
    }
    for glob in ["acme/*", "acme/?/{method}", "acme/{method}/a*"] {
        let literal = glob.split_once(['*', '?']).unwrap().0;
        check_resource(
            glob,
            &format!(
                "be the name of a resource, or have a placeholder for each value, such as \
                 \"{literal}{{jwt:sub}}\": it is no glob, as \"{glob}\" is (a literal * is written %2A, \
                 and ? is written %3F)"
            ),
        );
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
fn only_delay_has_a_max_delay() {
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
fn number_of_rules_is_limited() {
    let rules = |count: usize| {
        (0..count)
            .map(|index| format!("- {{name: r{index}, service: s, resource: tenant/a}}\n"))
            .collect::<String>()
    };
    let most = format!("{RESOURCES}{}", rules(MAX_RULES));
    assert_eq!(Document::parse(&most).unwrap().rules().len(), MAX_RULES);
    check(
        &rules(MAX_RULES + 1),
        &["3:3: rules: must have at most 1000 rules, not 1001"],
    );
}

#[test]
fn rule_with_a_bucket_longer_than_its_leases_has_a_warning() {
    for (burst, unit, warned) in [
        (3600, "rate", true),
        (60, "rate", false),
        (3600, "gauge", false),
    ] {
        let document = format!(
            "resources:\n\
             - {{identifier_glob: 'q/*', capacity: 6, unit: {unit}, algorithm: {{kind: FAIR_SHARE, lease_length: 60}}}}\n\
             - {{identifier_glob: '*', capacity: 6, unit: {unit}, algorithm: {{kind: FAIR_SHARE}}}}\n\
             rules:\n\
             - {{name: r, service: s, resource: 'q/{{method}}', unit: {unit}, burst: {burst}}}\n"
        );
        let document = Document::parse(&document).unwrap();
        let warnings: Vec<_> = document
            .warnings()
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected = r#"rules[0] "r": burst: 3600 seconds are longer than a lease of template "q/*" (60 seconds), so this is no exact quota: after a crash, or a fail-over of the control plane, a part may be spent twice"#;
        assert_eq!(warnings.len(), usize::from(warned), "{warnings:?}");
        assert!(
            warnings.iter().all(|it| it.ends_with(expected)),
            "{warnings:?}"
        );
    }
}

#[test]
fn rule_without_a_template_has_a_warning() {
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
        let warning = r#"3:35: rules[0] "r": resource: no template matches: unlimited, or blocked with `--unmatched refuse`"#;
        let expected: &[&str] = if warned { &[warning] } else { &[] };
        let warnings = document.warnings().iter();
        let warnings = warnings.filter(|it| !it.is_of_whole_document());
        let warnings: Vec<_> = warnings.map(ToString::to_string).collect();
        assert_eq!(warnings, expected, "{resource}");
    }
}
