//! The tables of the original Doorman's algorithm docs, through curl.

use serde_json::json;

use crate::support::ControlPlane;

/// A document with one resource per algorithm, capacity 120.
const DOCUMENT: &str = "
resources:
  - {identifier_glob: none, capacity: 120, algorithm: {kind: NO_ALGORITHM}}
  - {identifier_glob: static, capacity: 120, algorithm: {kind: STATIC}}
  - {identifier_glob: proportional, capacity: 120, algorithm: {kind: PROPORTIONAL_SHARE}}
  - {identifier_glob: fair, capacity: 120, algorithm: {kind: FAIR_SHARE}}
";

/// The capacities after every client has refreshed three times.
fn settle(server: &ControlPlane, resource: &str, wants: &[f64]) -> Vec<f64> {
    let mut has = vec![0.0; wants.len()];
    for _ in 0..4 {
        for (client, wants) in wants.iter().enumerate() {
            let body = json!({
                "client_id": format!("client-{client}"),
                "resources": [{"resource_id": resource, "wants": wants, "has": {"capacity": has[client]}}],
            });
            let response = server.post("/v1/capacity", &body.to_string());
            has[client] = response["resources"][0]["gets"]["capacity"]
                .as_f64()
                .expect("a number");
        }
    }
    has
}

#[test]
fn algorithms_match_the_original_tables() {
    let server = ControlPlane::start(DOCUMENT);
    for (resource, wants, expected) in [
        (
            "proportional",
            [1000.0, 50.0, 10.0],
            [69.690_721_65, 40.309_278_351, 10.0],
        ),
        ("fair", [1000.0, 50.0, 10.0], [60.0, 50.0, 10.0]),
        ("static", [50.0, 200.0, 300.0], [50.0, 120.0, 120.0]),
        ("none", [1000.0, 50.0, 10.0], [1000.0, 50.0, 10.0]),
    ] {
        let has = settle(&server, resource, &wants);
        for (has, expected) in has.iter().zip(expected) {
            assert!(
                (has - expected).abs() < 1e-8,
                "{resource}: {has} is not {expected}"
            );
        }
        let view = server.get(&format!("/v1/resources/{resource}"));
        assert_eq!(view["sum_wants"], wants.iter().sum::<f64>());
        assert_eq!(view["clients"], 3.0);
    }
}
