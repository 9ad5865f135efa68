//! `doorman show RESOURCE --tree`.

use axum::{
    Json, Router,
    extract::Request,
    http::header,
    response::{IntoResponse, Response},
};
use doorman_server::ParentSettings;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;

/// Header and claims of a JWT, with a signature that nobody checks here.
const TOKEN: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJvcHMifQ.AAAA";

/// A node whose only holder is a node. It records whether requests have a token.
struct Stub {
    address: String,
    with_token: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Stub {
    /// The node `name` with the holder `below` at `address`; by default its own.
    async fn node(name: &'static str, below: &'static str, address: Option<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = format!("http://{}", listener.local_addr().unwrap());
        let stub = Self {
            address: own.clone(),
            with_token: Arc::default(),
            requests: Arc::default(),
        };
        let (with_token, requests) = (Arc::clone(&stub.with_token), Arc::clone(&stub.requests));
        let address = address.unwrap_or(own);
        let routes = Router::new().fallback(async move |request: Request| {
            requests.fetch_add(1, SeqCst);
            if request.headers().contains_key(header::AUTHORIZATION) {
                with_token.fetch_add(1, SeqCst);
            }
            respond(request.uri().path(), name, below, &address)
        });
        tokio::spawn(async move { axum::serve(listener, routes).await });
        stub
    }

    fn counts(&self) -> (usize, usize) {
        (self.requests.load(SeqCst), self.with_token.load(SeqCst))
    }
}

fn respond(path: &str, name: &str, below: &str, address: &str) -> Response {
    let body = match path {
        "/v1/discovery" => json!({"is_master": true, "mastership": {}, "server_id": "s",
            "node": name, "level": 0, "epoch": 1}),
        "/v1/resources/db" => json!({"resource_id": "db", "capacity": 10, "unit": "rate", "per": 1,
            "sum_has": 4, "sum_wants": 4, "clients": 1, "in_learning_mode": false, "template": "db",
            "algorithm": "FAIR_SHARE", "lease_length": 60, "refresh_interval": 5,
            "safe_capacity": 1}),
        _ => json!({"leases": [{"client_id": below, "kind": "node", "clients": 3,
            "address": address, "priority": 0, "wants": 4, "share": 4, "has": 4, "why": "",
            "booked": 4, "outstanding": 0, "used": null, "expires_in": 60, "expiry_time": 1}]}),
    };
    Json(body).into_response()
}

#[tokio::test]
async fn token_is_sent_to_named_hosts_only() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    let node = Stub::node("eu", "eu-1", Some("http://eu-1.example".to_owned())).await;
    let root = Stub::node("root", "eu", Some(node.address.clone())).await;
    let show = format!("show db --tree --token-file {}", file.display());

    let shown = call(&root.address, &show).await.unwrap();
    assert!(shown.contains("--token-hosts does not match"), "{shown}");
    assert_eq!(node.counts(), (0, 0));
    assert_eq!(root.counts().1, root.counts().0);

    let named = format!("{show} --token-hosts 127.0.0.*");
    let shown = call(&root.address, &named).await.unwrap();
    // `eu-1.example` is another host.
    assert!(shown.contains("\n  eu-1\tnode\t3\t"), "{shown}");
    assert!(shown.contains("--token-hosts does not match"), "{shown}");
    assert_eq!(node.counts(), (3, 3));

    // It is for servers with TLS.
    let servers = format!("{},https://127.0.0.1:1", root.address);
    let shown = call(&servers, &named).await.unwrap();
    assert!(shown.contains("has no TLS"), "{shown}");
    assert_eq!(node.counts(), (3, 3));

    // A server of the command line gets it anyway.
    let itself = Stub::node("root", "root", None).await;
    let shown = call(&itself.address, &show).await.unwrap();
    assert!(
        shown.contains("cycle: the node is its own ancestor"),
        "{shown}"
    );
}

#[tokio::test]
async fn nodes_without_an_answer_are_named() {
    let refusing = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", refusing.local_addr().unwrap());
    drop(refusing);
    let other = Stub::node("us", "us-1", None).await;
    for (address, reason) in [
        (address, "no response from"),
        (
            other.address.clone(),
            "another node answers at its address: us",
        ),
        ("gopher://x".to_owned(), "not the URL of a server"),
    ] {
        let root = Stub::node("root", "eu", Some(address)).await;
        let shown = call(&root.address, "show db --tree").await.unwrap();
        assert!(shown.contains(reason), "{shown}");
        let json = call(&root.address, "show db --tree --json").await.unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        let not_shown = json["leases"][0]["not_shown"].as_str().unwrap();
        assert!(not_shown.contains(reason), "{json}");
    }
}

#[tokio::test]
async fn holders_of_all_levels_are_shown() {
    with_server(async |root| {
        let home = TempDir::new().unwrap();
        let node = Server::bind(Settings {
            listen: ([127, 0, 0, 1], 0).into(),
            data_dir: home.path().join("data"),
            node: Some("eu".parse().unwrap()),
            parent: Some(ParentSettings {
                servers: vec![root.parse().unwrap()],
                token_file: None,
                ca_file: None,
            }),
            ..Settings::default()
        });
        let node = node.await.unwrap();
        let address = format!("http://{}", node.local_addr());
        let test = async {
            call(&address, "get db --wants 50 --client c")
                .await
                .unwrap();
            let shown = call(&root, "show db --tree").await.unwrap();
            let rows: Vec<Vec<_>> = shown.lines().map(|row| row.split('\t').collect()).collect();
            let eu = rows.iter().find(|row| row[0] == "eu").unwrap();
            assert_eq!(eu[1..4], ["node", "1", "50"], "{shown}");
            assert_eq!(eu[9], address, "{shown}");
            let client = rows.iter().find(|row| row[0] == "  c").unwrap();
            assert_eq!(client[1..6], ["client", "1", "50", "50", "50"], "{shown}");

            // The node says what it leases.
            let shown = call(&address, "show db").await.unwrap();
            let leased = shown
                .lines()
                .find_map(|it| it.strip_prefix("leased from the parent: "));
            let of_tree = " of 1000, the capacity of the tree, for ";
            let (leased, _) = leased.unwrap().split_once(of_tree).unwrap();
            assert!(
                shown.starts_with(&format!("db\t{leased}\t50\t50\t1\t")),
                "{shown}"
            );
        };
        tokio::select! {
            stopped = node.run(std::future::pending()) => panic!("{stopped:?}"),
            () = test => {}
        }
    })
    .await;
}
