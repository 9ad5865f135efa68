use doorman_config::Document;
use doorman_openapi::{
    AlgorithmKind, Balance, Capacity, CapacityResponse, Epoch, FillLevel, Moment, NodeId,
    Probability, Reason, SafeCapacity, ServerCapacityResponse,
};
use proptest::{prelude::*, sample::select};

use super::*;
use doorman_core::ledger::{Reporting, Signal};

const DOCUMENT: &str = r#"
resources:
  - {identifier_glob: plain, capacity: 100}
  - {identifier_glob: "\"quoted\\\\\"ü*", capacity: 0.125, per: 60}
  - {identifier_glob: gauge, capacity: 1e12, unit: gauge}
  - {identifier_glob: '*', capacity: 100, algorithm: {kind: STATIC}}
"#;

fn node() -> NodeId {
    NodeId::new("a \"node\"").unwrap()
}

fn seconds() -> impl Strategy<Value = Seconds> {
    // Few, so that neighbours are often equal.
    select(vec![0.0, 0.25, 5.0, 59.9]).prop_map(Seconds::saturating)
}

fn granted() -> impl Strategy<Value = Grant> {
    let document = Document::parse(DOCUMENT).unwrap();
    let templates: Vec<_> = document.templates().iter().cloned().map(Some).collect();
    let kinds = vec![AlgorithmKind::FairShare, AlgorithmKind::Suppression];
    let reasons = vec![Reason::Granted, Reason::Share, Reason::Full];
    let response = ("[^\\p{C}]{1,20}|\"|\\\\", 0.0f64..1e6, select(reasons));
    let safe = prop_oneof![
        Just(SafeCapacity::Unlimited),
        (0.0f64..1e3).prop_map(|it| SafeCapacity::AtMost(Capacity::saturating(it)))
    ];
    let signal = prop_oneof![
        Just(Signal::None),
        (0.0f64..1.0).prop_map(|it| Signal::AdmissionProbability(Probability::saturating(it))),
        (-1e3f64..1e3).prop_map(|it| Signal::Balance(Balance::saturating(it)))
    ];
    let template = select([templates, vec![None]].concat());
    let levels = prop::collection::vec((-9i32..9, 0.0f64..1e3), 0..3);
    let terms = (seconds(), seconds(), template, select(kinds), seconds());
    let signal = (signal, levels);
    (response, terms, safe, signal).prop_map(
        |(
            (id, capacity, reason),
            (length, refresh, template, kind, longest),
            safe,
            (signal, levels),
        )| {
            let levels = levels.into_iter().map(|(priority, level)| FillLevel {
                priority: (priority >= 0).then_some(priority),
                level: Capacity::saturating(level),
            });
            Grant {
                resource_id: ResourceId::new(id).unwrap(),
                capacity: Capacity::saturating(capacity),
                lease_length: length,
                refresh_interval: refresh,
                reason,
                template,
                safe_capacity: safe,
                algorithm: Algorithm {
                    kind,
                    lease_length: longest,
                    refresh_interval: refresh,
                },
                signal,
                tokens: (length == longest).then(|| Balance::saturating(capacity)),
                levels: levels.collect(),
                reporting: Reporting {
                    is_early: length == longest,
                    is_ignored: false,
                    effective: (length == refresh).then(|| Capacity::saturating(capacity)),
                },
                booked_until: Moment::ORIGIN,
            }
        },
    )
}

proptest! {
    #[test]
    fn output_equals_the_types_of_the_contract(
        granted in prop::collection::vec(granted(), 0..12),
        warnings in prop::collection::vec("[ -~]{0,20}", 0..3),
        unix_now in 0..1u64 << 53
    ) {
        let (node, epoch) = (node(), Epoch::new(7).unwrap());
        let responses = granted.iter().map(|granted| granted.clone().into_response(unix_now));
        let of_client = CapacityResponse {
            node: node.clone(),
            epoch,
            warnings: warnings.clone(),
            resources: responses.collect(),
        };
        let of_node = ServerCapacityResponse {
            node: node.clone(),
            epoch,
            level: 2,
            warnings: warnings.clone(),
            resources: granted
                .iter()
                .map(|granted| granted.clone().into_server_response(unix_now))
                .collect(),
        };
        let granted = Granted { epoch, grants: granted };
        let written = |to| write(&node, &granted, to, 2, &warnings, unix_now).unwrap();
        prop_assert_eq!(written(HolderKind::Client), serde_json::to_vec(&of_client).unwrap());
        prop_assert_eq!(written(HolderKind::Node), serde_json::to_vec(&of_node).unwrap());
    }
}
