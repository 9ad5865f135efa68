//! The files in `deploy/` match the program: alerts and dashboard name metrics that it exports.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use crate::support::{Authority, ControlPlane, doorman};

/// The layer's metrics are tested in its own crate.
const LAYER_PREFIX: &str = "doorman_layer_";

/// Makes a server export every series: shared, bucketed and suppressed resources.
const DOCUMENT: &str = "resources: [\
    {identifier_glob: db, capacity: 10, algorithm: {kind: FAIR_SHARE}}, \
    {identifier_glob: bucket, capacity: 4, algorithm: {kind: SHARED_BUCKET}}, \
    {identifier_glob: part, capacity: 4, algorithm: {kind: SUPPRESSION}}]";

const REQUEST: &str = r#"{"client_id":"a","resources":[
    {"resource_id":"db","wants":5},{"resource_id":"bucket","wants":5},{"resource_id":"part","wants":5}]}"#;

/// A metric used in an expression, and the literal values of each label.
#[derive(Debug)]
struct MetricUse<'a> {
    metric: &'a str,
    labels: Vec<(&'a str, Vec<&'a str>)>,
}

fn is_name_char(byte: char) -> bool {
    byte.is_ascii_lowercase() || byte == '_'
}

/// Every metric of Doorman in a text, with its matchers.
fn metric_uses(text: &str) -> Vec<MetricUse<'_>> {
    let starts = text.match_indices("doorman_").map(|(at, _)| &text[at..]);
    starts
        .map(|text| {
            let (metric, rest) =
                text.split_at(text.find(|it| !is_name_char(it)).unwrap_or(text.len()));
            let matchers = rest.strip_prefix('{').and_then(|it| it.split_once('}'));
            let labels = matchers.map_or(Vec::new(), |(it, _)| it.split(", ").map(label).collect());
            MetricUse { metric, labels }
        })
        .collect()
}

fn label(matcher: &str) -> (&str, Vec<&str>) {
    let (name, rest) = matcher
        .split_once('=')
        .unwrap_or_else(|| panic!("{matcher}"));
    let values = rest.trim_matches(['~', '"', '\\']).split('|');
    let plain = |value: &&str| value.chars().all(|it| is_name_char(it) || it == '/');
    (name, values.filter(plain).collect())
}

fn read_deployed(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn alerts_and_dashboard_use_exported_metrics() {
    let server = ControlPlane::start_encrypted(DOCUMENT, &Authority::new());
    server.post("/v1/capacity", REQUEST);
    server.curl("/nowhere", &[]);
    let root = ControlPlane::start(DOCUMENT);
    let home = tempfile::TempDir::new().expect("a temporary directory");
    let below = ["--parent", root.address(), "--node", "below"];
    let node = ControlPlane::start_with_flags(home, &below);
    let scrapes = [&server, &node].map(|it| it.curl("/metrics", &[]).body);
    let scrape = scrapes.concat();
    let series: Vec<_> = scrape
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let names: BTreeSet<_> = series
        .iter()
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    for file in [
        "grafana/doorman.json",
        "prometheus/alerts.yaml",
        "prometheus/alerts.test.yaml",
    ] {
        let text = read_deployed(file);
        let all = metric_uses(&text);
        assert!(all.len() > 10, "{file} uses {all:?}");
        for MetricUse { metric, labels } in all {
            if metric.starts_with(LAYER_PREFIX) {
                continue;
            }
            assert!(names.contains(metric), "{file}: {metric} in\n{scrape}");
            // Prometheus adds these to every series.
            let ours = labels
                .iter()
                .filter(|(name, _)| !["job", "instance"].contains(name));
            for (name, values) in ours {
                let has = |label: &str| {
                    let of = |line: &&str| line.starts_with(metric) && line.contains(label);
                    series.iter().any(of)
                };
                assert!(
                    has(&format!("{name}=\"")),
                    "{file}: {metric} has no label {name}"
                );
                for value in values {
                    let label = format!("{name}=\"{value}\"");
                    assert!(has(&label), "{file}: {metric} has no {label}");
                }
            }
        }
    }
}

#[test]
fn every_alert_has_a_section_in_operations() {
    let guide =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/OPERATIONS.md"))
            .unwrap();
    let alerts = read_deployed("prometheus/alerts.yaml");
    let names: Vec<_> = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let anchor = name.to_lowercase();
        assert!(
            alerts.contains(&format!("docs/OPERATIONS.md#{anchor}")),
            "{name} must link its section"
        );
        assert!(guide.contains(&format!("\n### {name}\n")), "{name}");
    }
}

#[test]
fn ready_reports_readiness_by_exit_code() {
    let server = ControlPlane::start("resources: []");
    let ready = |address: &str| {
        let mut command = Command::new(doorman());
        let output = command.args(["ready", "--server", address]).output();
        output.expect("it runs").status.code()
    };
    assert_eq!(ready(server.address()), Some(0));
    let address = server.address().to_owned();
    server.terminate();
    assert_eq!(ready(&address), Some(3));
}

#[test]
fn public_address_without_authentication_is_rejected_in_container() {
    let home = tempfile::TempDir::new().expect("a temporary directory");
    // As in the container.
    let output = Command::new(doorman())
        .arg("serve")
        .env("DOORMAN_LISTEN", "0.0.0.0:0")
        .env("DOORMAN_DATA_DIR", home.path().join("data"))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    for option in ["--auth-secret-file", "127.0.0.1", "--insecure-no-auth"] {
        assert!(stderr.contains(option), "{option} in: {stderr}");
    }
}
