//! `doorman simulate`.

use super::*;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/scenarios");

#[tokio::test]
async fn scenario_is_summarized() {
    let line = format!("doorman simulate {EXAMPLES}/scenario-two.yaml --seeds 3");
    let table = run(&line).await.unwrap();
    assert!(
        rows(&table).starts_with("scenario\tscenario-two\nseeds\t3\n"),
        "{table}"
    );
    assert!(table.contains("\novershoots\t0\n"), "{table}");
    let json = run(&format!("{line} --json")).await.unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["scenario"], "scenario-two");
    assert_eq!(
        (&json["seeds"], &json["overshoot_episodes"]),
        (&3.into(), &0.into())
    );
    for field in ["held_share_median", "held_share_worst", "peak_share"] {
        let share = json[field].as_f64().unwrap();
        assert!((0.98..=1.0 + 1e-9).contains(&share), "{json}");
    }
}

#[tokio::test]
async fn clients_have_a_row_in_each_phase() {
    let home = TempDir::new().unwrap();
    let scenario = home.path().join("phases.yaml");
    std::fs::write(
        &scenario,
        "
seconds: 300
document: {resources: [{identifier_glob: db, capacity: 100, algorithm: {kind: FAIR_SHARE,
  lease_length: 10, refresh_interval: 2}}]}
clients:
- {name: web, count: 2, resource: db, demand: {constant: {wants: 40}}}
- {name: batch, count: 1, resource: db, demand: {constant: {wants: 90}}, start: {at: 100}}
changes: [{at: 200, template: db, capacity: 60}]
faults: [{kind: pause_clients, at: 260, for: 20, group: batch}]",
    )
    .unwrap();
    let line = format!("doorman simulate {} --seed 3", scenario.display());
    let text = run(&line).await.unwrap();
    for expected in [
        "\nheld, median\t99.",
        " % of min(demand, capacity)\n",
        "\nrejected, median\t",
        " % of the demand\n",
        "\npeak of leases\t100.00 % of the capacity\n",
        "\n\nsecond 0 to 100 (means of seed 3)\nRESOURCE\tCLIENT\tWANTS\tHELD\tUSED\tREJECTED\ndb\tweb 0\t40\t",
        "\n\nsecond 100 to 200: batch starts\nRESOURCE\t",
        "\n\nsecond 200 to 260: capacity of db: 100 → 60\nRESOURCE\t",
        "\n\nsecond 260 to 280: pause_clients begins\nRESOURCE\t",
        "\n\nsecond 280 to 300: pause_clients ends\nRESOURCE\t",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let rows = text.lines().filter(|line| line.starts_with("db\t"));
    assert_eq!(rows.count(), 3 * 5, "{text}");
    let json = run(&format!("{line} --json")).await.unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["shown_seed"], 3);
    let batch = |phase: usize| {
        let client = &json["phases"][phase]["clients"][2];
        assert_eq!(client["client"], "batch");
        ["wants", "held", "rejected"].map(|it| client[it].as_f64().unwrap().round())
    };
    assert_eq!(batch(0), [0.0; 3]);
    let [wants, held, rejected] = batch(2);
    assert_eq!((wants, held + rejected), (90.0, 90.0), "{json}");
    assert!((20.0..24.0).contains(&held), "{json}");
}

#[tokio::test]
async fn run_is_written_as_csv_and_drawn() {
    let home = TempDir::new().unwrap();
    let [csv, svg] = ["run.csv", "run.svg"].map(|it| home.path().join(it).display().to_string());
    let line = format!("doorman simulate {EXAMPLES}/scenario-one.yaml --seed 5");
    run(&format!("{line} --csv {csv} --svg {svg}"))
        .await
        .unwrap();
    let csv = std::fs::read_to_string(csv).unwrap();
    assert!(
        csv.starts_with(
            "second,resource,client,wants,held,used,rejected,capacity,effective\n0,resource0,,"
        ),
        "{csv}"
    );
    // Five clients and the sum, at 0 to 300 s.
    assert_eq!(csv.lines().count(), 1 + 6 * 301);
    let svg = std::fs::read_to_string(svg).unwrap();
    for text in [
        "<svg",
        "scenario-one",
        "resource0: PROPORTIONAL_SHARE, capacity 500 per second, 5 clients, seed 5",
        "capacity",
        "</svg>",
    ] {
        assert!(svg.contains(text), "{text}");
    }
}

#[tokio::test]
async fn targets_of_a_scenario_are_measured_and_drawn() {
    let home = TempDir::new().unwrap();
    let [csv, svg] = ["run.csv", "run.svg"].map(|it| home.path().join(it).display().to_string());
    let line = format!("doorman simulate {EXAMPLES}/partner-shrinks.yaml --seed 1");
    let json = run(&format!("{line} --csv {csv} --svg {svg} --json"))
        .await
        .unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let targets = &json["targets"];
    let mean = |figure: &str| targets[figure]["mean"].as_f64().unwrap();
    assert!(mean("target_use") > 0.95, "{targets}");
    assert!(mean("overloaded_share") < 0.02, "{targets}");
    assert!(mean("drop_seconds") < 5.0, "{targets}");
    assert_eq!(
        targets["rise_seconds"]["worst"],
        targets["rise_seconds"]["mean"]
    );
    let begins = json["phases"].as_array().unwrap().iter();
    let begins = begins.filter_map(|it| it["begins_with"][0].as_str());
    assert_eq!(
        begins.collect::<Vec<_>>(),
        [
            "target of partner accepts 300 a second",
            "target of partner accepts 1000 a second"
        ]
    );
    let csv = std::fs::read_to_string(csv).unwrap();
    let last = |second: &str| {
        let row = csv.lines().find(|line| line.starts_with(second)).unwrap();
        row.rsplit(',').next().unwrap().parse::<f64>().unwrap()
    };
    assert_eq!(last("30,partner,,"), 1_000.0);
    assert!(last("100,partner,,") < 350.0);
    let svg = std::fs::read_to_string(svg).unwrap();
    for text in [
        "A partner that shrinks",
        "target accepts",
        "effective capacity",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    let text = run(&line).await.unwrap();
    for row in [
        "\ntarget use\t9",
        "\noverloaded\t0.",
        "\ndrop\t",
        "\nrise\t",
    ] {
        assert!(text.contains(row), "{row}: {text}");
    }
}

#[tokio::test]
async fn gauge_of_a_database_that_slows_down_is_measured() {
    let line = format!("doorman simulate {EXAMPLES}/database-slows-down.yaml --seed 1");
    let text = run(&line).await.unwrap();
    for row in [
        "\noverloaded\t0.00 % of the requests sent",
        "\nmean time\t1",
        "target of db accepts 300 a second",
    ] {
        assert!(text.contains(row), "{row}: {text}");
    }
}

/// The charts of the guides, which `DOORMAN_UPDATE=1` writes anew.
#[tokio::test]
async fn charts_of_the_docs_are_current() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/charts");
    let home = TempDir::new().unwrap();
    for name in [
        "fair-share",
        "proportional-share",
        "priority-share",
        "shared-bucket",
        "suppression",
        "static",
        "no-algorithm",
        "scale-up",
        "partner-shrinks",
        "database-slows-down",
        "shared-quota",
    ] {
        let drawn = home.path().join("chart.svg");
        let line = format!("doorman simulate {EXAMPLES}/{name}.yaml --seed 1 --svg");
        run(&format!("{line} {}", drawn.display())).await.unwrap();
        let drawn = std::fs::read_to_string(drawn).unwrap();
        let committed = format!("{docs}/{name}.svg");
        if std::env::var_os("DOORMAN_UPDATE").is_some() {
            std::fs::write(&committed, &drawn).unwrap();
        }
        let known = std::fs::read_to_string(&committed).unwrap_or_default();
        assert!(
            known == drawn,
            "{committed} is outdated: `DOORMAN_UPDATE=1 cargo test -p doorman charts` \
             rewrites it"
        );
    }
}

#[tokio::test]
async fn own_document_replaces_that_of_the_scenario() {
    let home = TempDir::new().unwrap();
    let document = home.path().join("own.yaml");
    let text =
        "resources: [{identifier_glob: '*', capacity: 10000, algorithm: {kind: FAIR_SHARE}}]";
    std::fs::write(&document, text).unwrap();
    let line = format!("doorman simulate {EXAMPLES}/scenario-one.yaml --seeds 2 --json");
    let json = run(&format!("{line} --config {}", document.display()))
        .await
        .unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["held_share_worst"], 1.0, "{json}");
}

#[tokio::test]
async fn exceeded_capacity_fails_and_names_the_seed() {
    let home = TempDir::new().unwrap();
    let scenario = home.path().join("unsafe.yaml");
    // Without learning mode a new master does not know the leases of the last one.
    std::fs::write(
        &scenario,
        "
seconds: 60
servers: {count: 2, election_lease: 2}
hints: false
document: {resources: [{identifier_glob: db, capacity: 100, algorithm: {kind: FAIR_SHARE,
  lease_length: 30, refresh_interval: 10, learning_mode_duration: 0}}]}
clients: [{count: 8, resource: db, demand: {random_walk: {start: 40, step: 1, every: 4}}}]
faults: [{kind: lose_master, at: 30, for: 3}]",
    )
    .unwrap();
    let path = scenario.display();
    let failure = run(&format!("doorman simulate {path} --seeds 10"))
        .await
        .unwrap_err();
    assert_eq!(failure.exit_code(), 1);
    let message = failure.to_string();
    assert!(
        message.starts_with("doorman: capacity exceeded with seed "),
        "{message}"
    );
    assert!(failure.output().contains("\novershoots\t"), "{failure:?}");
    let (_, replay) = message.split_once("; replay: ").unwrap();
    let trace = home.path().join("trace.txt");
    let replay = format!("{replay} --trace {}", trace.display());
    let again = run(&replay).await.unwrap_err();
    assert_eq!(again.to_string(), message);
    let trace = std::fs::read_to_string(trace).unwrap();
    assert!(trace.contains("    30.000 LoseMaster for 3 s"), "{trace}");
}

#[tokio::test]
async fn invalid_scenario_is_rejected() {
    let home = TempDir::new().unwrap();
    let scenario = home.path().join("bad.yaml");
    std::fs::write(&scenario, "seconds: 0\nclients: []").unwrap();
    let path = scenario.display();
    let failure = run(&format!("doorman simulate {path}")).await.unwrap_err();
    let expected = format!("doorman: {path}: seconds: must be a number from 1 to 86400, not 0");
    assert_eq!(failure.to_string(), expected);
    let failure = run("doorman simulate absent.yaml").await.unwrap_err();
    assert!(
        failure
            .to_string()
            .starts_with("doorman: cannot read absent.yaml"),
        "{failure}"
    );
}
