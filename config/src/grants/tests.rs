use doorman_openapi::Scope;

use super::*;

const KUBERNETES: &str = "https://kubernetes.default.svc.cluster.local";

#[test]
fn first_matching_grant_is_found() {
    let grants = Grants::parse(
        r#"
grants:
  - {iss: "https://kubernetes*", sub: "system:serviceaccount:shop:admin", scope: "templates:read templates:write"}
  - iss: "https://kubernetes*"
    sub: "system:serviceaccount:shop:*"
    scope: [capacity, "status:read"]
    client_id: "shop-*"
    resources: ["shop/*", db]
    services: "shop*"
    max_priority: 5
"#,
    )
    .unwrap();
    let sub = |name: &str| format!("system:serviceaccount:shop:{name}");
    let admin = grants.find(KUBERNETES, &sub("admin")).unwrap();
    assert_eq!(admin.scopes.to_string(), "templates:read templates:write");
    assert!(admin.restrictions.is_unrestricted());
    let web = grants.find(KUBERNETES, &sub("web")).unwrap();
    assert!(web.scopes.contains(Scope::Capacity) && !web.scopes.contains(Scope::TemplatesWrite));
    assert!(web.restrictions.allows_client("shop-1") && !web.restrictions.allows_client("bank-1"));
    assert!(web.restrictions.allows_resource("db") && !web.restrictions.allows_resource("bank/db"));
    assert!(web.restrictions.allows_service("shop") && !web.restrictions.allows_service("bank"));
    assert!(web.restrictions.allows_priority(5) && !web.restrictions.allows_priority(6));
    let elsewhere = grants.find(KUBERNETES, "system:serviceaccount:bank:web");
    assert_eq!(elsewhere, None);
    assert_eq!(grants.find("https://other.example", &sub("web")), None);
}

#[test]
fn every_error_is_listed() {
    let errors = Grants::parse(
        r#"
grants:
  - {iss: "a", sub: "web", scope: [capacty], ressources: "x", max_priority: high}
  - {sub: "[", scope: "capacity status:raed", services: []}
  - {iss: "a", sub: "b", resources: ["ok", ""]}
  - 7
"#,
    )
    .unwrap_err()
    .to_string();
    for expected in [
        r#"grants[0] "web": scope[0]: must be"#,
        "did you mean capacity?",
        r#"grants[0] "web": ressources: is not a known field; did you mean "resources"?"#,
        r#"grants[0] "web": max_priority: must be"#,
        r#"grants[1] "[": iss: is missing"#,
        r#"grants[1] "[": sub: must be"#,
        "did you mean status:read?",
        r#"grants[2] "b": scope: is missing"#,
        r#"grants[2] "b": resources[1]: must be"#,
        "grants[3]: must be a map",
    ] {
        assert!(errors.contains(expected), "{expected} in:\n{errors}");
    }
    for wrong in ["", "[]", "grants: 5", "{}", "grants: []\nrules: []"] {
        assert!(Grants::parse(wrong).is_err(), "{wrong}");
    }
    assert_eq!(Grants::parse("grants: []").unwrap(), Grants::default());
}
