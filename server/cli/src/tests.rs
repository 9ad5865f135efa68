//! Command lines, executed against a server.

mod revisions;
mod servers;
mod simulate;
mod tree;
mod usage;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use doorman_config::Source;
use doorman_server::{
    ElectionSettings, Server, Settings, TlsSettings,
    etcd::{EtcdSettings, EtcdUser},
};
use reqwest::StatusCode;
use tempfile::TempDir;

use super::*;

fn parse(line: &str) -> Cli {
    Cli::read(line.split_whitespace()).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a command that calls the server at this address.
async fn call(address: &str, line: &str) -> Result<String, Failure> {
    run(&format!("doorman {line} --server {address}")).await
}

async fn run(line: &str) -> Result<String, Failure> {
    match parse(line).command.unwrap() {
        Command::OneShot(command) => command.run().await,
        Command::Serve(_) | Command::Agent(_) => panic!("does not exit"),
    }
}

/// The rows of a table, without its headings.
fn rows(table: &str) -> &str {
    let (headings, rows) = table.split_once('\n').unwrap();
    assert!(headings.contains('\t'), "{table}");
    rows
}

/// Calls `test` with the address of a new server.
async fn with_server(test: impl AsyncFnOnce(String)) {
    let home = TempDir::new().unwrap();
    let server = Server::bind(Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        data_dir: home.path().join("data"),
        document_source: Some(Source::Sqlite(home.path().join("doorman.db"))),
        ..Settings::default()
    })
    .await
    .unwrap();
    let address = format!("http://{}", server.local_addr());
    tokio::select! {
        stopped = server.run(std::future::pending()) => panic!("{stopped:?}"),
        () = test(address) => {}
    }
}

#[test]
fn arguments_are_consistent() {
    with_variables(Cli::command()).debug_assert();
}

#[test]
fn default_command_is_serve() {
    assert!(parse("doorman --listen 127.0.0.1:0").command.is_none());
    assert!(matches!(
        parse("doorman serve").command,
        Some(Command::Serve(_))
    ));
}

#[tokio::test]
async fn leases_are_shown_until_released() {
    with_server(async |address| {
        let got = call(&address, "get tenant/acme --wants 50 --client c")
            .await
            .unwrap();
        assert_eq!(
            got,
            "RESOURCE\tCAPACITY\tLIMIT\tSECONDS\tREFRESH\tREASON\n\
             tenant/acme\t50\t1000\t60\t5\tgranted\n"
        );
        let shown = call(&address, "show").await.unwrap();
        assert_eq!(
            shown,
            "RESOURCE\tCAPACITY\tHAS\tWANTS\tLOAD\tUNMET\tUNMET SINCE\tREFUSED\tOVERLOADED\tCLIENTS\tLEARNING\tTEMPLATE\t\
             ALGORITHM\ntenant/acme\t1000\t50\t50\t5%\t0\t-\t-\t-\t1\tno\t*\tFAIR_SHARE\n"
        );
        let shown = call(&address, "show tenant/acme").await.unwrap();
        for text in [
            "\nleases of 60 s, refreshed every 5 s; safe capacity without a lease: 1000\nfree: 950\n",
            "\nc\tclient\t0\t50\t50\t50\t50\t0\t-\t",
            "\t-\tit has what it wants\n",
        ] {
            assert!(shown.contains(text), "{shown}");
        }
        let only = |client: &str| format!("show tenant/acme --client {client}");
        let shown = call(&address, &only("c")).await.unwrap();
        assert!(shown.contains("\nc\tclient\t"), "{shown}");
        let shown = call(&address, &only("d")).await.unwrap();
        assert!(!shown.contains("\tclient\t"), "{shown}");

        let release = "release tenant/acme --client c";
        let released = call(&address, release).await.unwrap();
        assert_eq!(released, "released 1 lease of c\n");
        assert_eq!(call(&address, release).await.unwrap(), "");
        let shown = call(&address, "show").await.unwrap();
        let shown = rows(&shown);
        assert!(
            shown.is_empty() || shown.contains("\t0\t0\t0%\t0\t-\t-\t-\t0\t"),
            "{shown}"
        );
    })
    .await;
}

#[tokio::test]
async fn json_is_the_response_of_the_server() {
    with_server(async |address| {
        let got = call(&address, "get db --wants 5 --json").await.unwrap();
        let got: serde_json::Value = serde_json::from_str(&got).unwrap();
        assert_eq!(got["resources"][0]["gets"]["capacity"], 5.0);
        let shown = call(&address, "show db --json").await.unwrap();
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["resource"]["sum_has"], 5.0);
        assert_eq!(shown["leases"][0]["has"], 5.0);
    })
    .await;
}

#[tokio::test]
async fn all_pages_of_a_list_are_shown() {
    with_server(async |address| {
        let body = serde_json::json!({
            "client_id": "c",
            "resources": (0..2_500)
                .map(|n| serde_json::json!({"resource_id": format!("r{n}"), "wants": 1}))
                .collect::<Vec<_>>()
        });
        let leased = reqwest::Client::new()
            .post(format!("{address}/v1/capacity"))
            .header("content-type", "application/json")
            .body(body.to_string())
            .send()
            .await
            .unwrap();
        assert_eq!(leased.status(), 200);
        let lines = async |line: &str| rows(&call(&address, line).await.unwrap()).lines().count();
        assert_eq!(lines("show --all").await, 2_500);
        assert_eq!(lines("show --prefix r24").await, 50);
        assert_eq!(lines("show --prefix r24 --all").await, 111);
        assert_eq!(lines("show --sort wants --limit 1500").await, 1_500);
        let json = call(&address, "show --json").await.unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["resources"].as_array().unwrap().len(), 2_500);
        let json = call(&address, "show --json --limit 3").await.unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["resources"].as_array().unwrap().len(), 3);
        assert_eq!(json["total"], 2_500);
    })
    .await;
}

/// Adds an unknown field to every object, as a later server may.
fn add_unknown_fields(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            fields.values_mut().for_each(add_unknown_fields);
            fields.insert("later".to_owned(), serde_json::json!({"of": [1, null]}));
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(add_unknown_fields),
        _ => {}
    }
}

#[tokio::test]
async fn responses_of_later_servers_are_read() {
    use axum::{Json, Router, extract::Request};

    with_server(async |address| {
        let http = reqwest::Client::new();
        let later_server = Router::new().fallback(async move |request: Request| {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let response = http.request(head.method.clone(), format!("{address}{}", head.uri));
            let response = response.headers(head.headers).body(body).send().await;
            let text = response.unwrap().bytes().await.unwrap();
            let mut value = serde_json::from_slice(&text).unwrap();
            // A document with unknown fields would limit something else.
            if head.uri.path() != "/v1/templates" || head.method != "GET" {
                add_unknown_fields(&mut value);
            }
            Json(value)
        });
        let home = TempDir::new().unwrap();
        let import = format!("import {} --dry-run", limits(&home, 20));
        for (line, expected) in [
            ("get db --wants 5 --client c", "db\t5\t1000\t"),
            (
                "show",
                "db\t1000\t5\t5\t0%\t0\t-\t-\t-\t1\tno\t*\tFAIR_SHARE\n",
            ),
            ("show --all", "db\t1000\t5\t5\t"),
            ("show db", "\nc\tclient\t0\t5\t"),
            ("show db --tree", "c\tclient\t1\t5\t"),
            ("show --client c", "c\tdb\tclient\t0\t5\t"),
            ("show --json", "\"clients\": 1,"),
            ("master", "\tnode-"),
            ("history", "1\t"),
            ("set * capacity=7 --dry-run", "would change: "),
            (&import, "would change: "),
            ("release db --client c", "released 1 lease of c\n"),
        ] {
            let output = call_stub(later_server.clone(), line).await;
            let output = output.unwrap_or_else(|failure| panic!("{line}: {failure}"));
            assert!(output.contains(expected), "{line}: {output}");
        }
    })
    .await;
}

#[tokio::test]
async fn rates_are_shown_with_their_period_and_sorted_per_second() {
    with_server(async |address| {
        let home = TempDir::new().unwrap();
        let file = home.path().join("limits.yaml");
        let text = "resources:\n- {identifier_glob: 'minute/*', capacity: 60000, per: 60}\n\
            - {identifier_glob: drop, capacity: 120, algorithm: {kind: SUPPRESSION}}\n\
            - {identifier_glob: '*', capacity: 2000, algorithm: {kind: FAIR_SHARE}}\n";
        std::fs::write(&file, text).unwrap();
        let import = format!("import {}", file.display());
        call(&address, &import).await.unwrap();
        let get = async |line: &str| call(&address, &format!("get {line}")).await.unwrap();
        let got = get("minute/a --wants 16500 --client c").await;
        let expected = "minute/a\t16500/60s\t60000/60s\t60\t";
        assert!(rows(&got).starts_with(expected), "{got}");
        let got = get("b --wants 1606 --client c").await;
        assert!(rows(&got).starts_with("b\t1606\t2000\t60\t"), "{got}");
        for client in ["c", "d"] {
            get(&format!("drop --wants 1 --client {client}")).await;
        }

        let expected = [
            "b\t2000\t1606\t1606\t80%\t0\t-\t-\t-\t1\tno\t*\tFAIR_SHARE\n",
            "minute/a\t60000/60s\t16500/60s\t16500/60s\t28%\t0/60s\t-\t-\t-\t1\tno\tminute/*\tFAIR_SHARE\n",
            "drop\t120\t-\t2\t2%\t0\t-\t-\t-\t2\tno\tdrop\tSUPPRESSION, admits 1\n",
        ];
        for sorting in ["--sort wants", "--sort wants --all"] {
            let shown = call(&address, &format!("show {sorting}")).await.unwrap();
            assert_eq!(rows(&shown), expected.concat());
        }
        let first = call(&address, "show --sort wants --limit 1").await;
        assert_eq!(rows(&first.unwrap()), expected[0]);
        let leases = call(&address, "show --client c").await.unwrap();
        let start = |line: &str| line.split('\t').take(7).collect::<Vec<_>>().join(" ");
        let leases: Vec<_> = rows(&leases).lines().map(start).collect();
        assert_eq!(
            leases,
            [
                "c b client 0 1606 1606 1606",
                "c drop client 0 1 120 120",
                "c minute/a client 0 16500/60s 16500/60s 16500/60s"
            ]
        );
        call(&address, "get drop --wants 1 --client c2")
            .await
            .unwrap();
        let of_prefix = call(&address, "show --client c*").await.unwrap();
        let names: Vec<_> = rows(&of_prefix).lines().map(start).collect();
        assert_eq!(names[..3], leases);
        assert_eq!(names[3..], ["c2 drop client 0 1 120 120"]);
        let of_drop = call(&address, "show drop --client c*").await.unwrap();
        let holders = of_drop.lines().filter(|line| line.contains("\tclient\t"));
        let holders: Vec<_> = holders.map(|line| line.split('\t').next()).collect();
        assert_eq!(holders, [Some("c"), Some("c2")]);
        let none = call(&address, "show --client x*").await.unwrap();
        assert_eq!(rows(&none), "");
        let json = call(&address, "show --client d --json").await.unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["leases"].as_array().unwrap().len(), 1);
        assert_eq!(json["leases"][0]["resource"]["resource_id"], "drop");
        let none = call(&address, "show --client e").await.unwrap();
        assert_eq!(rows(&none), "");
        let one = call(&address, "show minute/a").await.unwrap();
        let expected = format!("{}\nall amounts are per 60 s\n", expected[1]);
        assert!(rows(&one).starts_with(&expected), "{one}");
        let json = call(&address, "show minute/a --json").await.unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["resource"]["per"], 60.0);
        assert_eq!(json["resource"]["unit"], "rate");
    })
    .await;
}

#[tokio::test]
async fn unmet_demand_is_shown_and_sorted() {
    with_server(async |address| {
        let home = TempDir::new().unwrap();
        let file = home.path().join("limits.yaml");
        let text = "resources:\n- {identifier_glob: each, capacity: 10, algorithm: {kind: STATIC}}\n\
            - {identifier_glob: hour, capacity: 3600, per: 3600}\n\
            - {identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE}}\n";
        std::fs::write(&file, text).unwrap();
        let import = format!("import {}", file.display());
        call(&address, &import).await.unwrap();
        for (resource, client, wants) in [
            ("large", "a", 100),
            ("short", "a", 90),
            ("short", "b", 60),
            ("hour", "a", 7200),
            ("each", "a", 8),
            ("each", "b", 30),
        ] {
            let get = format!("get {resource} --client {client} --wants {wants}");
            call(&address, &get).await.unwrap();
        }
        for all in ["", " --all"] {
            let shown = call(&address, &format!("show --sort unmet{all}")).await;
            let shown = shown.unwrap();
            let mut sorted = Vec::new();
            for row in rows(&shown).lines() {
                let cells: Vec<_> = row.split('\t').collect();
                let is_unmet = cells[6].starts_with("20") && cells[6].ends_with('Z');
                assert_eq!(is_unmet, cells[0] != "large", "{row}");
                sorted.push([cells[0], cells[4], cells[5]]);
            }
            let expected = [
                ["short", "150%", "50"],
                ["each", "-", "20"],
                ["hour", "200%", "3600/3600s"],
                ["large", "100%", "0"],
            ];
            assert_eq!(sorted, expected, "{all}");
        }
        let shown = call(&address, "show short --sort unmet").await.unwrap();
        assert!(shown.contains("\ndemand exceeds the capacity: "), "{shown}");
        let first = shown.lines().find(|line| line.contains("\tclient\t"));
        assert!(first.unwrap().starts_with("b\t"), "{shown}");
        let shown = call(&address, "show large").await.unwrap();
        assert!(!shown.contains("exceeds"), "{shown}");
    })
    .await;
}

#[tokio::test]
async fn largest_holders_are_shown_with_a_summary() {
    with_server(async |address| {
        let http = reqwest::Client::new();
        for number in 0..120 {
            let resource = serde_json::json!({"resource_id": "db", "wants": number});
            let body =
                serde_json::json!({"client_id": format!("c{number}"), "resources": [resource]});
            let leased = http.post(format!("{address}/v1/capacity"));
            let leased = leased.header("content-type", "application/json");
            let leased = leased.body(body.to_string()).send().await.unwrap();
            assert_eq!(leased.status(), 200);
        }
        let holders = async |line: &str| {
            let shown = call(&address, line).await.unwrap();
            let rows = shown.lines().filter(|line| line.contains("\tclient\t"));
            let names: Vec<_> = rows
                .map(|row| row.split('\t').next().unwrap().to_owned())
                .collect();
            (names, shown)
        };
        let (names, shown) = holders("show db").await;
        assert_eq!((names.len(), names[0].as_str()), (50, "c119"), "{shown}");
        let summary = "\n50 of 120 holders, the largest by wants; --all shows all\n";
        assert!(shown.contains(summary), "{shown}");
        let (names, shown) = holders("show db --all").await;
        assert_eq!(names.len(), 120);
        assert!(!shown.contains("--all"), "{shown}");
        let (names, _) = holders("show db --prefix c1 --sort wants --limit 2").await;
        assert_eq!(names, ["c119", "c118"]);
    })
    .await;
}

#[tokio::test]
async fn rejection_and_no_response_have_different_exit_codes() {
    with_server(async |address| {
        let rejected = call(&address, "show nothing").await.unwrap_err();
        let message = rejected.to_string();
        let expected = "doorman: resource `nothing` is not live (request ";
        assert!(message.starts_with(expected), "{message}");
        assert_eq!(rejected.exit_code(), 1);
    })
    .await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let failure = call(&address, "show").await.unwrap_err();
    assert!(
        failure
            .to_string()
            .starts_with(&format!("doorman: no response from {address}: "))
    );
    assert_eq!(failure.exit_code(), 3);
}

#[tokio::test]
async fn check_lists_all_errors_with_locations() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("limits.yaml");
    let check = async |text: &str| {
        std::fs::write(&file, text).unwrap();
        run(&format!("doorman check {}", file.display())).await
    };
    let invalid = "resources:\n  - identifier_glob: db\n    capacity: -3\n  - capacity: x\n";
    let failure = check(invalid).await.unwrap_err();
    assert_eq!(failure.exit_code(), 1);
    let text = failure.to_string();
    assert!(text.lines().count() >= 3, "{text}");
    assert!(
        text.lines()
            .all(|line| line.starts_with(&*file.to_string_lossy())),
        "{text}"
    );

    let output = check("resources: []\n").await.unwrap();
    assert!(output.contains("ok, 0 templates, version"), "{output}");
    let rules = "resources: []\nrules:\n- {name: a, service: s, resource: api}\n";
    let output = check(rules).await.unwrap();
    assert!(output.contains("ok, 0 templates, 1 rule,"), "{output}");
    let misspelt = rules.replace("resource:", "resorce:");
    let failure = check(&misspelt).await.unwrap_err().to_string();
    assert!(
        failure.contains("limits.yaml:3:25: rules[0] \"a\": resorce:"),
        "{failure}"
    );
}

#[test]
fn check_warns_of_disabled_learning_mode() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("limits.yaml");
    let text = "resources:\n- {identifier_glob: '*', capacity: 1, algorithm: {kind: STATIC, learning_mode_duration: 0}}\n";
    std::fs::write(&file, text).unwrap();
    let line = format!("doorman check {}", file.display());
    let Some(Command::OneShot(OneShot::Check(arguments))) = parse(&line).command else {
        panic!("not a check");
    };
    let mut stderr = Vec::new();
    let output = document::check(&arguments, &mut stderr).unwrap();
    assert!(output.contains("ok, 1 template"), "{output}");
    let warnings = String::from_utf8(stderr).unwrap();
    assert_eq!(warnings.lines().count(), 1, "{warnings}");
    let expected = format!(
        "warning: {}:2:89: resources[0] \"*\": algorithm.learning_mode_duration: 0 disables learning mode: ",
        file.display()
    );
    assert!(warnings.starts_with(&expected), "{warnings}");
}

/// Writes a document with this capacity for everything, and a rule.
fn limits(home: &TempDir, capacity: u32) -> String {
    let file = home.path().join(format!("limits-{capacity}.yaml"));
    let text = format!(
        "resources:\n- {{identifier_glob: '*', capacity: {capacity}, algorithm: {{kind: FAIR_SHARE}}}}\n\
         rules:\n- {{name: all, service: shop, resource: db}}\n"
    );
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[tokio::test]
async fn document_is_imported_exported_and_in_the_history() {
    with_server(async |address| {
        let home = TempDir::new().unwrap();
        call(&address, "get db --wants 50 --client c")
            .await
            .unwrap();
        let file = limits(&home, 20);
        let effects = call(&address, &format!("import {file} --dry-run"))
            .await
            .unwrap();
        for line in [
            r#"would change: rule "all" added"#,
            "db: capacity: 1000 → 20 (1 client has 50)",
        ] {
            assert!(
                effects.lines().any(|it| it.trim().starts_with(line)),
                "{line}: {effects}"
            );
        }
        assert!(
            call(&address, "export")
                .await
                .unwrap()
                .contains("capacity: 1000")
        );

        let output = call(&address, &format!("import {file}")).await.unwrap();
        assert!(output.contains(r#"changed: rule "all" added"#), "{output}");
        let output = call(&address, &format!("import {file}")).await.unwrap();
        assert!(output.starts_with("nothing to change"), "{output}");

        let json = call(&address, "export --json").await.unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["resources"][0]["capacity"], 20.0);
        let yaml = home.path().join("exported.yaml");
        std::fs::write(&yaml, call(&address, "export").await.unwrap()).unwrap();
        let output = call(&address, &format!("import {}", yaml.display()))
            .await
            .unwrap();
        assert!(output.starts_with("nothing to change"), "{output}");

        let history = call(&address, "history").await.unwrap();
        let mut changes = rows(&history).lines();
        let first: Vec<_> = changes.next().unwrap().split('\t').collect();
        assert_eq!((first[0], first[2]), ("2", "anonymous"), "{history}");
        assert_eq!(changes.count(), 1);
        let one = call(&address, "history --limit 1").await.unwrap();
        assert_eq!(rows(&one).lines().count(), 1);
    })
    .await;
}

#[tokio::test]
async fn fields_are_set_and_others_stay() {
    with_server(async |address| {
        call(&address, "get db --wants 50 --client c")
            .await
            .unwrap();
        let set = async |line: &str| call(&address, &format!("set {line}")).await;
        let would = set("* capacity=20 --dry-run").await.unwrap();
        assert_eq!(
            would,
            "would change: template \"*\": capacity: 1000 → 20\n  db: capacity: 1000 → 20 (1 client has 50)\n"
        );
        let done = set("* capacity=20 algorithm.lease_length=30 description=")
            .await
            .unwrap();
        assert_eq!(
            done,
            "changed: template \"*\": algorithm.lease_length: 60 → 30, capacity: 1000 → 20, description: \
             \"every resource without an entry of its own\" → absent\n"
        );
        assert_eq!(set("* capacity=20").await.unwrap(), "nothing to change\n");
        let unknown = set("* capcity=5").await.unwrap_err().to_string();
        let expected = "doorman: /capcity is not a known field; did you mean \"capacity\"?";
        assert!(unknown.starts_with(expected), "{unknown}");
        let absent = set("tenant/* capacity=5").await.unwrap_err().to_string();
        assert!(absent.contains("no template `tenant/*`"), "{absent}");
        assert!(absent.contains("create it with --create"), "{absent}");
        let absent = set("--rule x cost=5 --dry-run").await.unwrap_err();
        let absent = absent.to_string();
        assert!(absent.contains("create it with --create"), "{absent}");

        let home = TempDir::new().unwrap();
        let file = limits(&home, 20);
        call(&address, &format!("import {file}")).await.unwrap();
        let done = set("--rule all cost=2").await.unwrap();
        assert_eq!(done, "changed: rule \"all\": cost: 1 → 2\n");
    })
    .await;
}

#[tokio::test]
async fn entries_are_created_only_on_request() {
    with_server(async |address| {
        call(&address, "get tenant/a --wants 50 --client c")
            .await
            .unwrap();
        let set = async |line: &str| call(&address, &format!("set {line}")).await.unwrap();
        let create = "tenant/* capacity=5 description= algorithm.kind=STATIC --create";
        let would = set(&format!("{create} --dry-run")).await;
        assert!(
            would.starts_with("would change: template \"tenant/*\" added\n  tenant/a: "),
            "{would}"
        );
        assert_eq!(set(create).await, "created: template \"tenant/*\"\n");
        let exported = call(&address, "export").await.unwrap();
        assert!(exported.contains("STATIC"), "{exported}");
        assert_eq!(set(create).await, "nothing to change\n");
        let change = "tenant/* capacity=6 --create";
        assert!(set(change).await.contains(": capacity: 5 → 6"));
        let create = "--rule all service=shop resource=db --create";
        assert_eq!(set(create).await, "created: rule \"all\"\n");
    })
    .await;
}

#[tokio::test]
async fn set_shows_all_errors() {
    with_server(async |address| {
        let failed = call(&address, "set * capacity=-3 per=-1 unit=x").await;
        let failed = failed.unwrap_err().to_string();
        let lines: Vec<_> = failed.lines().collect();
        assert_eq!(lines.len(), 3, "{failed}");
        for field in ["/capacity must ", "/per must ", "/unit must "] {
            assert!(failed.contains(field), "{failed}");
        }
    })
    .await;
}

/// A token that is restricted to some rules does not learn of others.
#[tokio::test]
async fn rule_that_may_not_be_read_is_created() {
    use axum::{Json, Router, http::HeaderMap, response::IntoResponse, routing::get};

    let forbidden = |errors: serde_json::Value| {
        let problem = serde_json::json!({"type": "/problems/forbidden", "title": "t", "status": 403,
            "detail": "the token does not allow the rule `r`", "errors": errors});
        (StatusCode::FORBIDDEN, Json(problem)).into_response()
    };
    for is_own in [true, false] {
        let rule = get(async move || forbidden(serde_json::json!([])));
        let rule = rule.put(async move |headers: HeaderMap| {
            assert_eq!(headers["if-none-match"], "*");
            if is_own {
                return (StatusCode::CREATED, Json(serde_json::json!({}))).into_response();
            }
            forbidden(serde_json::json!([
                {"pointer": "/resource", "detail": "is not allowed by the token"}
            ]))
        });
        let routes = Router::new().route("/v1/rules/r", rule);
        let output = call_stub(routes.clone(), "set --rule r resource=x --create").await;
        match output {
            Ok(text) => assert_eq!((text.as_str(), is_own), ("created: rule \"r\"\n", true)),
            Err(failure) => {
                let expected = "doorman: the token does not allow the rule `r`\n  \
                                /resource is not allowed by the token";
                assert_eq!((failure.to_string().as_str(), is_own), (expected, false));
            }
        }
        assert!(call_stub(routes, "set --rule r cost=2").await.is_err());
    }
}

/// Two of three changes meet one of another field.
#[tokio::test]
async fn set_is_repeated_when_the_entry_changes_meanwhile() {
    use axum::{Json, Router, http::HeaderMap, response::IntoResponse, routing::get};

    for (changes, succeeds) in [(2, true), (usize::MAX, false)] {
        let version = Arc::new(AtomicUsize::new(0));
        let read = Arc::clone(&version);
        let entry = |capacity: usize, other: usize| {
            Json(serde_json::json!({"capacity": capacity, "safe_capacity": other}))
        };
        let page = get(async move |headers: HeaderMap| {
            assert_eq!(headers["cache-control"], "no-cache");
            let version = read.load(SeqCst);
            ([("etag", format!("\"{version}\""))], entry(2, version))
        });
        let written = Arc::clone(&version);
        let page = page.patch(async move |headers: HeaderMap| {
            if written.load(SeqCst) < changes {
                written.fetch_add(1, SeqCst);
            }
            let version = written.load(SeqCst);
            if headers["if-match"] == format!("\"{version}\"") && version == changes {
                return entry(20, version).into_response();
            }
            let problem = serde_json::json!({"type": "/problems/precondition-failed", "title": "t",
                "status": 412, "detail": "`if-match` failed"});
            (StatusCode::PRECONDITION_FAILED, Json(problem)).into_response()
        });
        let routes = Router::new().route("/v1/templates/db", page);
        let output = call_stub(routes, "set db capacity=20").await;
        assert_eq!(output.is_ok(), succeeds, "{output:?}");
        match output {
            Ok(text) => assert_eq!(text, "changed: template \"db\": capacity: 2 → 20\n"),
            Err(failure) => {
                let text = failure.to_string();
                assert!(
                    text.contains("nothing was changed: the document has"),
                    "{text}"
                );
            }
        }
    }
}

#[tokio::test]
async fn set_does_not_replace_a_change_of_the_same_field() {
    use axum::{Json, Router, routing::get};

    for is_new in [false, true] {
        let reads = Arc::new(AtomicUsize::new(0));
        let read = async move || {
            let capacity = [5, 7][reads.fetch_add(1, SeqCst)];
            if is_new && capacity == 5 {
                return Err(rejection(404));
            }
            Ok(Json(serde_json::json!({"capacity": capacity})))
        };
        let outdated = async || rejection(412);
        let page = get(read).patch(outdated).put(outdated);
        let routes = Router::new().route("/v1/templates/db", page);
        let failed = call_stub(routes, "set db capacity=20 --create").await;
        let text = failed.unwrap_err().to_string();
        let expected = "somebody else has changed template \"db\" meanwhile: capacity: ";
        assert!(text.contains(expected) && text.contains("7"), "{text}");
    }
}

#[tokio::test]
async fn creation_of_a_hidden_entry_says_that_it_exists() {
    use axum::{Router, routing::get};

    let page = get(async || rejection(403)).put(async || rejection(412));
    let routes = Router::new().route("/v1/rules/r", page);
    let failed = call_stub(routes, "set --rule r cost=20 --create").await;
    let expected = "doorman: nothing was changed: rule \"r\" exists, and the token does not allow to \
                    read it";
    assert_eq!(failed.unwrap_err().to_string(), expected);
}

/// A problem document with this status.
fn rejection(status: u16) -> (StatusCode, axum::Json<serde_json::Value>) {
    let kind = match status {
        403 => "forbidden",
        404 => "not-found",
        _ => "precondition-failed",
    };
    let problem = serde_json::json!({"type": format!("/problems/{kind}"), "title": "t",
        "status": status, "detail": "d"});
    let status = StatusCode::from_u16(status).unwrap();
    (status, axum::Json(problem))
}

/// A server of another release may compute other versions of the same document.
#[tokio::test]
async fn import_uses_the_etag_of_the_server() {
    use axum::{Json, Router, http::HeaderMap, routing::get};

    let document = serde_json::json!({"resources": []});
    let current = document.clone();
    let put = async move |headers: HeaderMap| {
        assert_eq!(headers["if-match"], "\"another\"");
        Json(document.clone())
    };
    let page = get(async move || ([("etag", "\"another\"")], Json(current.clone()))).put(put);
    let home = TempDir::new().unwrap();
    let line = format!("import {}", limits(&home, 20));
    let output = call_stub(Router::new().route("/v1/templates", page), &line).await;
    assert!(output.unwrap().contains("changed: "));
}

#[tokio::test]
async fn rate_limited_requests_are_retried_three_times() {
    use axum::{Router, routing::get};

    for (rejections, succeeds) in [(3, true), (4, false)] {
        let left = Arc::new(AtomicUsize::new(rejections));
        let probe = get(async move || {
            let was = left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
            let status = if was.is_ok() { 429 } else { 200 };
            (
                StatusCode::from_u16(status).unwrap(),
                [("retry-after", "0")],
            )
        });
        let output = call_stub(Router::new().route("/readyz", probe), "ready").await;
        assert_eq!(output.is_ok(), succeeds, "{output:?}");
    }
}

#[tokio::test]
async fn missing_path_of_another_server_has_no_hint() {
    let failed = call_stub(axum::Router::new(), "set db capacity=5").await;
    let failed = failed.unwrap_err().to_string();
    assert!(
        failed.contains("does not respond like a Doorman server"),
        "{failed}"
    );
    assert!(!failed.contains("to add it"), "{failed}");
}

#[tokio::test]
async fn ready_prints_the_remarks_of_the_server() {
    use axum::{Router, routing::get};

    for (text, expected) in [
        ("ok\n", "ready\n"),
        (
            "ok\nlearning mode\n\u{1b}[2J\n",
            "ready\nlearning mode\n\\u001b[2J\n",
        ),
    ] {
        let probe = get(async move || text);
        let output = call_stub(Router::new().route("/readyz", probe), "ready").await;
        assert_eq!(output.unwrap(), expected);
    }
}

/// Calls `test` with a directory and the URL of a server, whose certificate `tls.crt` there is
/// self-signed.
async fn with_self_signed(is_ca: rcgen::IsCa, test: impl AsyncFnOnce(&Path, String)) {
    let home = TempDir::new().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let (certificate, key_file) = (home.path().join("tls.crt"), home.path().join("tls.key"));
    std::fs::write(&certificate, self_signed(&key, is_ca)).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let server = Server::bind(Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        data_dir: home.path().join("data"),
        tls: Some(TlsSettings {
            certificate,
            key: key_file,
            client_authority: None,
        }),
        ..Settings::default()
    })
    .await
    .unwrap();
    let address = format!("https://localhost:{}", server.local_addr().port());
    tokio::select! {
        stopped = server.run(std::future::pending()) => panic!("{stopped:?}"),
        () = test(home.path(), address) => {}
    }
}

fn self_signed(key: &rcgen::KeyPair, is_ca: rcgen::IsCa) -> String {
    let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.is_ca = is_ca;
    params.self_signed(key).unwrap().pem()
}

#[tokio::test]
async fn rejected_self_signed_certificates_have_a_hint() {
    use rcgen::{BasicConstraints, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};

    with_self_signed(IsCa::ExplicitNoCa, async |home, address| {
        // An authority of the same name, with a key of the same kind and of another.
        for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ED25519] {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let other = home.join("other.pem");
            std::fs::write(&other, self_signed(&key, IsCa::NoCa)).unwrap();
            let line = format!("ready --ca-file {}", other.display());
            let failed = call(&address, &line).await.unwrap_err().to_string();
            let hint = "is self-signed; to trust it, pass the certificate itself as --ca-file";
            assert!(failed.ends_with(hint), "{failed}");
        }
        let line = format!("ready --ca-file {}", home.join("tls.crt").display());
        assert_eq!(call(&address, &line).await.unwrap(), "ready\n");
    })
    .await;
    with_self_signed(
        IsCa::Ca(BasicConstraints::Unconstrained),
        async |home, address| {
            let line = format!("ready --ca-file {}", home.join("tls.crt").display());
            let failed = call(&address, &line).await.unwrap_err().to_string();
            assert!(failed.ends_with("basicConstraints=CA:FALSE"), "{failed}");
        },
    )
    .await;
}

#[tokio::test]
async fn missing_token_names_the_flag_and_no_other_file_is_sent() {
    use axum::{Json, Router, routing::get};

    let problem = serde_json::json!({
        "type": "/problems/unauthenticated", "title": "t", "status": 401, "detail": "missing token"
    });
    let requests = Arc::new(AtomicUsize::new(0));
    let probe = get({
        let requests = Arc::clone(&requests);
        async move || {
            requests.fetch_add(1, SeqCst);
            (StatusCode::UNAUTHORIZED, Json(problem.clone()))
        }
    });
    let routes = Router::new()
        .route("/v1/status", probe.clone())
        .route("/v1/discovery", probe);
    let failed = call_stub(routes.clone(), "master")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        failed.contains("requires a token: pass --token-file"),
        "{failed}"
    );
    assert_eq!(requests.load(SeqCst), 1);

    let home = TempDir::new().unwrap();
    let file = home.path().join("secret");
    std::fs::write(&file, "c2VjcmV0IHRoYXQgc2lnbnMgdG9rZW5z\n").unwrap();
    let line = format!("master --token-file {}", file.display());
    let failed = call_stub(routes, &line).await.unwrap_err().to_string();
    assert!(failed.contains("secret does not contain a JWT"), "{failed}");
    assert!(!failed.contains("c2VjcmV0"), "{failed}");
    assert_eq!(requests.load(SeqCst), 1);
}

/// Runs a command against a server with these routes only.
async fn call_stub(routes: axum::Router, line: &str) -> Result<String, Failure> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::select! {
        stopped = axum::serve(listener, routes) => panic!("{stopped:?}"),
        output = call(&address, line) => output,
    }
}

#[tokio::test]
async fn store_is_accessible_unless_a_server_uses_it() {
    let home = TempDir::new().unwrap();
    let store = home.path().join("doorman.db").display().to_string();
    let missing = run(&format!("doorman export --store {store}"))
        .await
        .unwrap_err();
    assert!(missing.to_string().contains("no store"), "{missing}");
    for capacity in [20, 30] {
        let file = limits(&home, capacity);
        let output = run(&format!("doorman import {file} --store {store}"))
            .await
            .unwrap();
        assert!(output.contains("version"), "{output}");
    }
    let file = limits(&home, 40);
    let effects = run(&format!("doorman import {file} --store {store} --dry-run")).await;
    assert!(effects.unwrap().contains("capacity: 30 → 40"));
    let exported = run(&format!("doorman export --store {store}"))
        .await
        .unwrap();
    assert!(exported.contains("capacity: 30"), "{exported}");
    let first = run(&format!("doorman export --store {store} --revision 1"))
        .await
        .unwrap();
    assert!(first.contains("capacity: 20"), "{first}");
    let history = run(&format!("doorman history --store {store}"))
        .await
        .unwrap();
    assert_eq!(rows(&history).lines().count(), 2, "{history}");
    assert!(history.contains("doorman import by "), "{history}");

    let server = Server::bind(Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        data_dir: home.path().join("data"),
        document_source: Some(Source::Sqlite(store.clone().into())),
        ..Settings::default()
    });
    let server = server.await.unwrap();
    let file = limits(&home, 50);
    let rejected = run(&format!("doorman import {file} --store {store}"))
        .await
        .unwrap_err();
    assert!(rejected.to_string().contains("in use"), "{rejected}");
    assert!(
        run(&format!("doorman export --store {store}"))
            .await
            .is_ok()
    );
    drop(server);
}

#[test]
fn certificate_and_key_require_each_other() {
    let settings = |flags: &str| {
        let cli = Cli::read(format!("doorman {flags}").split_whitespace()).unwrap();
        cli.serve.tls_settings()
    };
    assert!(settings("").unwrap().is_none());
    assert!(settings("--tls-cert c --tls-key k").unwrap().is_some());
    assert!(
        settings("--tls-cert c --tls-key k --tls-client-ca a")
            .unwrap()
            .is_some()
    );
    for (flags, missing) in [
        ("--tls-cert c", "without --tls-key"),
        ("--tls-key k", "without --tls-cert"),
        ("--tls-client-ca a", "without --tls-cert and --tls-key"),
        ("--tls-key k --tls-client-ca a", "without --tls-cert"),
    ] {
        let failure = settings(flags).unwrap_err();
        assert!(failure.to_string().contains(missing), "{failure}");
        assert_eq!(
            (failure.exit_code(), failure.to_string().lines().count()),
            (2, 1)
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn etcd_flags_belong_together() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("limits.yaml");
    std::fs::write(&file, "resources: []").unwrap();
    let settings = |flags: &str| {
        let line = format!("doorman {flags}");
        let line = line.replace("FILE", &file.display().to_string());
        Cli::read(line.split_whitespace()).unwrap().serve.settings()
    };
    let alone = settings("--config file:FILE").unwrap();
    assert_eq!((alone.etcd, alone.election), (None, None));
    let defaults = settings("--config file:FILE --etcd-endpoints http://a:2379,https://b:2379");
    let defaults = defaults.unwrap();
    assert_eq!(
        defaults.election,
        Some(ElectionSettings {
            prefix: "doorman".to_owned(),
            ttl: 5
        })
    );
    let etcd = defaults.etcd.unwrap();
    assert_eq!(etcd.endpoints.len(), 2);
    assert_eq!(
        (etcd.user, etcd.ca_file, etcd.certificate),
        (None, None, None)
    );
    let source = |flags: &str| settings(flags).unwrap().config_source;
    assert_eq!(source("--etcd-endpoints http://a"), "etcd:doorman");
    let other = "--etcd-endpoints http://a --election-prefix x";
    assert_eq!(source(other), "etcd:x");
    assert_eq!(source(&format!("{other} --config etcd:y")), "etcd:y");
    let all = settings(
        "--config file:FILE --etcd-endpoints https://a:2379 --etcd-user u --etcd-password-file p \
         --etcd-ca-file c --etcd-cert d --etcd-key e --election-prefix /x/y --election-ttl 2",
    );
    let all = all.unwrap();
    assert_eq!(
        all.election,
        Some(ElectionSettings {
            prefix: "/x/y".to_owned(),
            ttl: 2
        })
    );
    assert_eq!(
        all.etcd,
        Some(EtcdSettings {
            endpoints: vec!["https://a:2379".parse().unwrap()],
            user: Some(EtcdUser {
                name: "u".to_owned(),
                password_file: "p".into()
            }),
            ca_file: Some("c".into()),
            certificate: Some(("d".into(), "e".into())),
        })
    );
    for (flags, reason) in [
        (
            "--etcd-user u",
            "--etcd-user is given without --etcd-password-file",
        ),
        (
            "--etcd-password-file p",
            "--etcd-password-file is given without --etcd-user",
        ),
        ("--etcd-cert c", "--etcd-cert is given without --etcd-key"),
        ("--etcd-key k", "--etcd-key is given without --etcd-cert"),
        (
            "--etcd-ca-file c",
            "--etcd-ca-file is given without --etcd-endpoints",
        ),
        (
            "--etcd-user u --etcd-password-file p",
            "--etcd-user is given without --etcd-endpoints",
        ),
        (
            "--etcd-endpoints http://a --config sqlite:x.db",
            "--config sqlite:x.db is the store of one server",
        ),
        (
            "--config etcd:x",
            "--config etcd:x is given without --etcd-endpoints",
        ),
    ] {
        let failure = settings(flags).unwrap_err();
        assert!(failure.to_string().contains(reason), "{failure}");
        assert_eq!(
            (failure.exit_code(), failure.to_string().lines().count()),
            (2, 1)
        );
    }
}
