//! Commands as they are typed, against a server.

mod usage;

use clap::CommandFactory;
use doorman_config::Source;
use doorman_server::{Server, Settings};
use tempfile::TempDir;

use super::*;

fn parse(line: &str) -> Cli {
    Cli::try_parse_from(line.split_whitespace()).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a command that asks the server at this address.
async fn ask(address: &str, line: &str) -> Result<String, Failure> {
    run(&format!("doorman {line} --server {address}")).await
}

async fn run(line: &str) -> Result<String, Failure> {
    let cli = parse(line);
    match cli.command.unwrap() {
        Command::Get(arguments) => lease::get(arguments).await,
        Command::Release(arguments) => lease::release(arguments).await,
        Command::Show(arguments) => show::run(arguments).await,
        Command::Import(arguments) => import::run(arguments).await,
        Command::Export(arguments) => export::run(arguments).await,
        Command::History(arguments) => history::run(arguments).await,
        Command::Master(arguments) => master::run(arguments).await,
        other => panic!("asks no server: {other:?}"),
    }
}

/// Calls `test` with the address of a fresh server.
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
fn the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn without_a_command_it_serves() {
    assert!(parse("doorman --listen 127.0.0.1:0").command.is_none());
    assert!(matches!(
        parse("doorman serve").command,
        Some(Command::Serve(_))
    ));
}

#[tokio::test]
async fn what_is_leased_is_shown_until_it_is_given_back() {
    with_server(async |address| {
        let got = ask(&address, "get tenant/acme --wants 50 --client c")
            .await
            .unwrap();
        assert_eq!(got, "tenant/acme\t50\t1000\t60\t5\tgranted\n");
        let shown = ask(&address, "show").await.unwrap();
        assert_eq!(shown, "tenant/acme\t1000\t50\t50\t1\tno\t*\tFAIR_SHARE\n");
        let shown = ask(&address, "show tenant/acme").await.unwrap();
        for text in [
            "\nleases of 60 s, refreshed every 5 s; without one a holder may use 1000\nfree: 950\n",
            "\nc\tclient\t0\t50\t50\t50\t50\t0\t-\t",
            "\t-\tit has what it wants\n",
        ] {
            assert!(shown.contains(text), "{shown}");
        }
        let only = |client: &str| format!("show tenant/acme --client {client}");
        let shown = ask(&address, &only("c")).await.unwrap();
        assert!(shown.contains("\nc\tclient\t"), "{shown}");
        let shown = ask(&address, &only("d")).await.unwrap();
        assert!(!shown.contains("\tclient\t"), "{shown}");

        ask(&address, "release tenant/acme --client c")
            .await
            .unwrap();
        let shown = ask(&address, "show").await.unwrap();
        assert!(shown.is_empty() || shown.contains("\t0\t0\t0\t"), "{shown}");
    })
    .await;
}

#[tokio::test]
async fn json_is_what_the_server_answers() {
    with_server(async |address| {
        let got = ask(&address, "get db --wants 5 --json").await.unwrap();
        let got: serde_json::Value = serde_json::from_str(&got).unwrap();
        assert_eq!(got["resources"][0]["gets"]["capacity"], 5.0);
        let shown = ask(&address, "show db --json").await.unwrap();
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["resource"]["sum_has"], 5.0);
        assert_eq!(shown["leases"][0]["has"], 5.0);
    })
    .await;
}

#[tokio::test]
async fn lists_of_many_pages_are_shown_whole() {
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
        assert_eq!(ask(&address, "show").await.unwrap().lines().count(), 2_500);
    })
    .await;
}

#[tokio::test]
async fn a_refusal_and_no_answer_are_told_apart() {
    with_server(async |address| {
        let refused = ask(&address, "show nothing").await.unwrap_err();
        // The request is named, so that it is found in the server's log.
        let said = refused.to_string();
        let words = "doorman: resource `nothing` is not live (request ";
        assert!(said.starts_with(words), "{said}");
        assert_eq!(refused.code(), 1);
    })
    .await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let failure = ask(&address, "show").await.unwrap_err();
    assert!(
        failure
            .to_string()
            .starts_with(&format!("doorman: no answer from {address}: "))
    );
    assert_eq!(failure.code(), 3);
}

#[test]
fn the_faults_of_a_document_are_told_line_by_line() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("limits.yaml");
    std::fs::write(
        &file,
        "resources:\n  - identifier_glob: db\n    capacity: -3\n  - capacity: x\n",
    )
    .unwrap();
    let Some(Command::Check(arguments)) =
        parse(&format!("doorman check {}", file.display())).command
    else {
        panic!("not a check");
    };
    let failure = check::run(&arguments).unwrap_err();
    assert_eq!(failure.code(), 1);
    let text = failure.to_string();
    assert!(text.lines().count() >= 3, "{text}");
    assert!(
        text.lines()
            .all(|line| line.starts_with(&*file.to_string_lossy())),
        "{text}"
    );

    std::fs::write(&file, "resources: []\n").unwrap();
    assert!(
        check::run(&arguments)
            .unwrap()
            .contains("ok, 0 templates, version")
    );

    let rules = "resources: []\nrules:\n- {name: a, service: s, resource: api}\n";
    std::fs::write(&file, rules).unwrap();
    assert!(
        check::run(&arguments)
            .unwrap()
            .contains("ok, 0 templates, 1 rule,")
    );
    std::fs::write(&file, rules.replace("resource:", "resorce:")).unwrap();
    let failure = check::run(&arguments).unwrap_err().to_string();
    assert!(
        failure.contains("limits.yaml:3:25: rules[0] \"a\": resorce:"),
        "{failure}"
    );
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
async fn a_document_is_imported_and_exported_and_remembered() {
    with_server(async |address| {
        let home = TempDir::new().unwrap();
        ask(&address, "get db --wants 50 --client c").await.unwrap();
        let file = limits(&home, 20);
        let tried = ask(&address, &format!("import {file} --dry-run"))
            .await
            .unwrap();
        for line in [
            r#"would change: rule "all" added"#,
            "db: capacity: 1000 → 20 (1 client has 50)",
        ] {
            assert!(
                tried.lines().any(|it| it.trim().starts_with(line)),
                "{line}: {tried}"
            );
        }
        assert!(
            ask(&address, "export")
                .await
                .unwrap()
                .contains("capacity: 1000")
        );

        let said = ask(&address, &format!("import {file}")).await.unwrap();
        assert!(said.contains(r#"changed: rule "all" added"#), "{said}");
        let said = ask(&address, &format!("import {file}")).await.unwrap();
        assert!(said.starts_with("nothing to change"), "{said}");

        let json = ask(&address, "export --json").await.unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["resources"][0]["capacity"], 20.0);
        let yaml = home.path().join("exported.yaml");
        std::fs::write(&yaml, ask(&address, "export").await.unwrap()).unwrap();
        let said = ask(&address, &format!("import {}", yaml.display()))
            .await
            .unwrap();
        assert!(said.starts_with("nothing to change"), "{said}");

        let history = ask(&address, "history").await.unwrap();
        let first: Vec<_> = history.lines().next().unwrap().split('\t').collect();
        assert_eq!((first[0], first[2]), ("2", "anonymous"), "{history}");
        assert_eq!(history.lines().count(), 2);
        assert_eq!(
            ask(&address, "history --limit 1")
                .await
                .unwrap()
                .lines()
                .count(),
            1
        );
    })
    .await;
}

/// As one of another release would: what it says is known, and the versions of it are not.
#[tokio::test]
async fn a_document_is_imported_where_versions_are_made_in_another_way() {
    use axum::{Json, Router, http::HeaderMap, routing::get};

    let document = serde_json::json!({"resources": []});
    let shown = document.clone();
    let put = async move |headers: HeaderMap| {
        assert_eq!(headers["if-match"], "\"another\"");
        Json(document.clone())
    };
    let page = get(async move || ([("etag", "\"another\"")], Json(shown.clone()))).put(put);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server = axum::serve(listener, Router::new().route("/v1/templates", page));
    let home = TempDir::new().unwrap();
    let line = format!("import {}", limits(&home, 20));
    tokio::select! {
        stopped = server => panic!("{stopped:?}"),
        said = ask(&address, &line) => {
            assert!(said.unwrap().contains("changed: "));
        }
    }
}

#[tokio::test]
async fn the_store_of_a_server_that_does_not_run_is_worked_on_and_that_of_one_that_runs_is_not() {
    let home = TempDir::new().unwrap();
    let store = home.path().join("doorman.db").display().to_string();
    let none = run(&format!("doorman export --store {store}"))
        .await
        .unwrap_err();
    assert!(none.to_string().contains("no store"), "{none}");
    for capacity in [20, 30] {
        let file = limits(&home, capacity);
        let said = run(&format!("doorman import {file} --store {store}"))
            .await
            .unwrap();
        assert!(said.contains("version"), "{said}");
    }
    let file = limits(&home, 40);
    let tried = run(&format!("doorman import {file} --store {store} --dry-run")).await;
    assert!(tried.unwrap().contains("capacity: 30 → 40"));
    let exported = run(&format!("doorman export --store {store}"))
        .await
        .unwrap();
    assert!(exported.contains("capacity: 30"), "{exported}");
    let past = run(&format!("doorman export --store {store} --revision 1"))
        .await
        .unwrap();
    assert!(past.contains("capacity: 20"), "{past}");
    let history = run(&format!("doorman history --store {store}"))
        .await
        .unwrap();
    assert_eq!(history.lines().count(), 2, "{history}");
    assert!(history.contains("doorman import by "), "{history}");

    let server = Server::bind(Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        data_dir: home.path().join("data"),
        document_source: Some(Source::Sqlite(store.clone().into())),
        ..Settings::default()
    });
    let server = server.await.unwrap();
    let file = limits(&home, 50);
    let refused = run(&format!("doorman import {file} --store {store}"))
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("in use"), "{refused}");
    assert!(
        run(&format!("doorman export --store {store}"))
            .await
            .is_ok()
    );
    drop(server);
}

#[test]
fn certificate_and_key_are_given_together_or_not_at_all() {
    let settings = |flags: &str| {
        let cli = Cli::try_parse_from(format!("doorman {flags}").split_whitespace()).unwrap();
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
            (failure.code(), failure.to_string().lines().count()),
            (2, 1)
        );
    }
}
