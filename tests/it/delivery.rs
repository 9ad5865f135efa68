//! What `deploy/` hands to operators is true of the program: alerts and dashboard name what it exports.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use crate::support::{Authority, ControlPlane, doorman};

/// The metrics of the layer are looked for where the layer's are tested.
const OF_THE_LAYER: &str = "doorman_layer_";

/// A document of which a running server exports everything it can: what is divided, what is not, and what has no template.
const DOCUMENT: &str = "resources: [\
    {identifier_glob: db, capacity: 10, algorithm: {kind: FAIR_SHARE}}, \
    {identifier_glob: bucket, capacity: 4, algorithm: {kind: SHARED_BUCKET}}, \
    {identifier_glob: part, capacity: 4, algorithm: {kind: SUPPRESSION}}]";

const ASKS: &str = r#"{"client_id":"a","resources":[
    {"resource_id":"db","wants":5},{"resource_id":"bucket","wants":5},{"resource_id":"part","wants":5}]}"#;

/// What a text asks of one metric: its name, and of each label the values that it names, without those that are patterns.
#[derive(Debug)]
struct Asked<'a> {
    metric: &'a str,
    labels: Vec<(&'a str, Vec<&'a str>)>,
}

fn is_of_a_name(byte: char) -> bool {
    byte.is_ascii_lowercase() || byte == '_'
}

/// Every metric of ours in a text, with the matchers behind it.
fn asked(text: &str) -> Vec<Asked<'_>> {
    let starts = text.match_indices("doorman_").map(|(at, _)| &text[at..]);
    starts
        .map(|text| {
            let (metric, rest) =
                text.split_at(text.find(|it| !is_of_a_name(it)).unwrap_or(text.len()));
            let matchers = rest.strip_prefix('{').and_then(|it| it.split_once('}'));
            let labels = matchers.map_or(Vec::new(), |(it, _)| it.split(", ").map(label).collect());
            Asked { metric, labels }
        })
        .collect()
}

fn label(matcher: &str) -> (&str, Vec<&str>) {
    let (name, rest) = matcher
        .split_once('=')
        .unwrap_or_else(|| panic!("{matcher}"));
    let values = rest.trim_matches(['~', '"', '\\']).split('|');
    let plain = |value: &&str| value.chars().all(|it| is_of_a_name(it) || it == '/');
    (name, values.filter(plain).collect())
}

fn delivered(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn alerts_and_dashboard_name_metrics_and_labels_that_a_running_server_exports() {
    let server = ControlPlane::start_encrypted(DOCUMENT, &Authority::new());
    server.post("/v1/capacity", ASKS);
    server.curl("/nowhere", &[]);
    let scrape = server.curl("/metrics", &[]).body;
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
        let text = delivered(file);
        let all = asked(&text);
        assert!(all.len() > 10, "{file} asks for {all:?}");
        for Asked { metric, labels } in all {
            if metric.starts_with(OF_THE_LAYER) {
                continue;
            }
            assert!(names.contains(metric), "{file}: {metric} in\n{scrape}");
            // What Prometheus itself adds to every series.
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
fn every_alert_has_its_section_in_the_handbook() {
    let handbook =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/OPERATIONS.md"))
            .unwrap();
    let alerts = delivered("prometheus/alerts.yaml");
    let names: Vec<_> = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let anchor = name.to_lowercase();
        assert!(
            alerts.contains(&format!("docs/OPERATIONS.md#{anchor}")),
            "{name} names its section"
        );
        assert!(handbook.contains(&format!("\n### {name}\n")), "{name}");
    }
}

#[test]
fn ready_says_by_its_exit_code_whether_a_server_takes_requests() {
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
fn without_authentication_a_server_for_others_stops_with_one_line_that_names_the_ways_on() {
    let home = tempfile::TempDir::new().expect("a folder for temporary files");
    // As the container starts it.
    let output = Command::new(doorman())
        .arg("serve")
        .env("DOORMAN_LISTEN", "0.0.0.0:0")
        .env("DOORMAN_DATA_DIR", home.path().join("data"))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    for way in ["--auth-secret-file", "127.0.0.1", "--insecure-no-auth"] {
        assert!(said.contains(way), "{way} in: {said}");
    }
}
