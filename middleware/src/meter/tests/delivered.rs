//! Alerts and dashboard in `deploy/` name what is counted.

use super::*;
use crate::meter::{LeaseMeter, LeasePhase};

/// Every metric of the layer in a file, with the values of its labels that are named.
fn asked(text: &str) -> Vec<(&str, Vec<String>)> {
    let is_of_a_name = |it: char| it.is_ascii_lowercase() || it == '_';
    let starts = text.match_indices("doorman_layer_");
    starts
        .map(|(at, _)| {
            let text = &text[at..];
            let end = text.find(|it| !is_of_a_name(it)).unwrap_or(text.len());
            let (metric, rest) = text.split_at(end);
            let matchers = rest.strip_prefix('{').and_then(|it| it.split_once('}'));
            let matchers = matchers.map_or("", |(it, _)| it).split(", ");
            (metric, matchers.flat_map(values).collect())
        })
        .collect()
}

/// What a matcher asks for of a label that has few values: `outcome=~"spent|blocked"`.
fn values(matcher: &str) -> Vec<String> {
    let (label, values) = matcher.split_once('=').unwrap_or_default();
    if !["outcome", "fallback", "to"].contains(&label) {
        return Vec::new();
    }
    let values = values.trim_matches(['~', '"', '\\']).split('|');
    values.map(|value| format!("{label}={value}")).collect()
}

#[tokio::test(start_paused = true)]
async fn the_dashboard_and_the_alerts_name_what_is_counted() {
    let counts = Counts::default();
    let _guard = counts.install();
    let (registry, _nudges) = leased_registry(10);
    send(&limited(&registry, [per_tenant()]), tenant("a")).await;
    let _rate = Rate::new(Arc::clone(&registry), "db");
    let limiters = registry.limiters();
    let db = limiters.iter().find(|it| it.is_permanent()).unwrap();
    LeaseMeter::default().published(&mut LeasePhase::default(), db, leased(1.0, MINUTE), 1.0);
    let series = counts.series();
    for file in [
        "grafana/doorman.json",
        "prometheus/alerts.yaml",
        "prometheus/alerts.test.yaml",
    ] {
        let path = format!("{}/../deploy/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let asked = asked(&text);
        assert!(asked.len() >= 5, "{file}: {asked:?}");
        for (metric, values) in asked {
            let of: Vec<Vec<_>> = series
                .iter()
                .map(|series| series.split(' ').collect())
                .filter(|words: &Vec<_>| words.first() == Some(&metric))
                .collect();
            assert!(!of.is_empty(), "{file}: {metric} is none of {series:#?}");
            for value in values {
                let has = of.iter().any(|words| words.contains(&value.as_str()));
                assert!(has, "{file}: {metric} has no {value}");
            }
        }
    }
}
