//! Alerts and dashboard in `deploy/` use metrics that exist.

use doorman_openapi::ResourceId;

use super::*;
use crate::meter::{LeaseMeter, LeasePhase};

/// The layer's metrics in a file, each with the label values that it selects.
fn selected(text: &str) -> Vec<(&str, Vec<String>)> {
    let is_name = |it: char| it.is_ascii_lowercase() || it == '_';
    let starts = text.match_indices("doorman_layer_");
    starts
        .map(|(at, _)| {
            let text = &text[at..];
            let end = text.find(|it| !is_name(it)).unwrap_or(text.len());
            let (metric, rest) = text.split_at(end);
            let matchers = rest.strip_prefix('{').and_then(|it| it.split_once('}'));
            let matchers = matchers.map_or("", |(it, _)| it).split(", ");
            (metric, matchers.flat_map(values).collect())
        })
        .collect()
}

/// The label values that a matcher like `outcome=~"spent|blocked"` selects, for labels with fixed
/// values.
fn values(matcher: &str) -> Vec<String> {
    let (label, values) = matcher.split_once('=').unwrap_or_default();
    if !["outcome", "fallback", "to"].contains(&label) {
        return Vec::new();
    }
    let values = values.trim_matches(['~', '"', '\\']).split('|');
    values.map(|value| format!("{label}={value}")).collect()
}

#[tokio::test(start_paused = true)]
async fn dashboard_and_alerts_use_existing_metrics() {
    let counts = Counts::default();
    let _guard = counts.install();
    let (registry, _nudges) = leased_registry(10);
    send(&limited(&registry, [per_tenant()]), tenant("a")).await;
    let _rate = Rate::new(Arc::clone(&registry), "db");
    let mut leases = LeaseMeter::default();
    leases.on_lease_change(LeasePhase::Leased);
    leases.set_capacity(&ResourceId::new("db").unwrap(), 1.0);
    let series = counts.series();
    for file in [
        "grafana/doorman.json",
        "prometheus/alerts.yaml",
        "prometheus/alerts.test.yaml",
    ] {
        let path = format!("{}/../deploy/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let selected = selected(&text);
        assert!(selected.len() >= 5, "{file}: {selected:?}");
        for (metric, values) in selected {
            let of: Vec<Vec<_>> = series
                .iter()
                .map(|series| series.split(' ').collect())
                .filter(|words: &Vec<_>| words.first() == Some(&metric))
                .collect();
            assert!(!of.is_empty(), "{file}: {metric} is not in {series:#?}");
            for value in values {
                let has = of.iter().any(|words| words.contains(&value.as_str()));
                assert!(has, "{file}: {metric} has no {value}");
            }
        }
    }
}
