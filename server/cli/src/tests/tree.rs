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

/// The holder in the responses of a stub.
#[derive(Debug, Clone)]
enum Below {
    /// The resource has none: it is not live.
    NotFound,
    /// A node that reports no address.
    WithoutAddress(String),
    /// A node at this address.
    At(String, String),
}

impl Stub {
    /// The node `name` with the holder `below` at `address`; by default its own.
    async fn node(name: &str, below: &str, address: Option<String>) -> Self {
        Self::bind(name, |own| {
            Below::At(below.to_owned(), address.unwrap_or(own))
        })
        .await
    }

    async fn with(name: &str, below: Below) -> Self {
        Self::bind(name, |_| below).await
    }

    async fn bind(name: &str, below: impl FnOnce(String) -> Below) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = format!("http://{}", listener.local_addr().unwrap());
        let stub = Self {
            address: own.clone(),
            with_token: Arc::default(),
            requests: Arc::default(),
        };
        let (with_token, requests) = (Arc::clone(&stub.with_token), Arc::clone(&stub.requests));
        let (name, below) = (name.to_owned(), below(own));
        let routes = Router::new().fallback(async move |request: Request| {
            requests.fetch_add(1, SeqCst);
            if request.headers().contains_key(header::AUTHORIZATION) {
                with_token.fetch_add(1, SeqCst);
            }
            respond(request.uri().path(), &name, &below)
        });
        tokio::spawn(async move { axum::serve(listener, routes).await });
        stub
    }

    fn counts(&self) -> (usize, usize) {
        (self.requests.load(SeqCst), self.with_token.load(SeqCst))
    }
}

fn respond(path: &str, name: &str, below: &Below) -> Response {
    let (below, address) = match below {
        Below::NotFound if path != "/v1/discovery" => {
            let problem = json!({"type": "/problems/not-found", "title": "Not found",
                "status": 404, "detail": "resource `db` is not live"});
            return (StatusCode::NOT_FOUND, Json(problem)).into_response();
        }
        Below::NotFound => ("", None),
        Below::WithoutAddress(below) => (below.as_str(), None),
        Below::At(below, address) => (below.as_str(), Some(address)),
    };
    let body = match path {
        "/v1/discovery" => json!({"is_master": true, "mastership": {}, "server_id": "s",
            "node": name, "level": 0, "epoch": 1}),
        "/v1/resources/db" => json!({"resource_id": "db", "capacity": 10, "unit": "rate", "per": 1,
            "sum_has": 4, "sum_wants": 4, "clients": 1, "in_learning_mode": false, "template": "db",
            "algorithm": "FAIR_SHARE", "lease_length": 60, "refresh_interval": 5,
            "safe_capacity": 1}),
        _ => {
            let mut lease = json!({"client_id": below, "kind": "node", "clients": 3,
                "priority": 0, "wants": 4, "share": 4, "has": 4, "why": "",
                "booked": 4, "outstanding": 0, "used": null, "expires_in": 60, "expiry_time": 1});
            if let Some(address) = address {
                lease["address"] = json!(address);
            }
            json!({"leases": [lease]})
        }
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
async fn node_without_an_address_is_named() {
    let root = Stub::with("root", Below::WithoutAddress("eu".to_owned())).await;
    let shown = call(&root.address, "show db --tree").await.unwrap();
    assert!(shown.contains("\neu\tnode\t3\t4\t4\t"), "{shown}");
    assert!(
        shown.ends_with("\t-; the node reports no address\n"),
        "{shown}"
    );
    assert_eq!(root.counts().0, 3, "discovery, resource and leases");
}

#[tokio::test]
async fn depth_of_the_tree_is_limited() {
    // From the lowest up: twelve levels below the root.
    let mut below = Stub::with("n12", Below::NotFound).await;
    let mut requests = vec![Arc::clone(&below.requests)];
    for level in (0..12).rev() {
        let holder = format!("n{}", level + 1);
        let at = Below::At(holder, below.address);
        below = Stub::with(&format!("n{level}"), at).await;
        requests.push(Arc::clone(&below.requests));
    }
    let shown = call(&below.address, "show db --tree").await.unwrap();
    let row = |name: &str| {
        let mut rows = shown.lines();
        let row = rows.find(|row| row.split('\t').next().unwrap().trim() == name);
        row.map(ToOwned::to_owned)
    };
    assert!(row("n10").unwrap().starts_with(&"  ".repeat(9)), "{shown}");
    let limit = row("n11").unwrap();
    assert!(
        limit.ends_with("; not asked: more than 10 levels"),
        "{shown}"
    );
    assert_eq!(row("n12"), None, "{shown}");
    let asked: Vec<_> = requests.iter().map(|it| it.load(SeqCst) > 0).collect();
    let expected: Vec<_> = (0..13).rev().map(|level| level <= 10).collect();
    assert_eq!(asked, expected);
}

#[tokio::test]
async fn node_without_holders_has_no_rows() {
    let node = Stub::with("eu", Below::NotFound).await;
    let at = Below::At("eu".to_owned(), node.address.clone());
    let root = Stub::with("root", at).await;
    let shown = call(&root.address, "show db --tree").await.unwrap();
    let last = shown.lines().last().unwrap();
    assert!(last.starts_with("eu\tnode\t"), "{shown}");
    assert!(last.ends_with(&format!("\t{}", node.address)), "{shown}");
    let json = call(&root.address, "show db --tree --json").await.unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let eu = &json["leases"][0];
    assert_eq!(
        eu["below"],
        json!({"node": "eu", "leases": [], "total": 0}),
        "{json}"
    );
    assert_eq!(eu.get("not_shown"), None);
    // Discovery and the resource, each time.
    assert_eq!(node.counts().0, 4);
}

#[tokio::test]
async fn json_nests_holders_of_nodes() {
    let leaf = Stub::with("eu-1", Below::WithoutAddress("eu-1-a".to_owned())).await;
    let node = Stub::node("eu", "eu-1", Some(leaf.address.clone())).await;
    let root = Stub::node("root", "eu", Some(node.address.clone())).await;
    let json = call(&root.address, "show db --tree --json").await.unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["node"], &json["total"]), (&json!("root"), &json!(1)));
    let mut level = &json;
    for (node, holder) in [("root", "eu"), ("eu", "eu-1"), ("eu-1", "eu-1-a")] {
        assert_eq!(level["node"], node, "{json}");
        assert_eq!(level["resource"]["resource_id"], "db", "{json}");
        let lease = &level["leases"][0];
        assert_eq!(
            (&lease["client_id"], &lease["has"]),
            (&json!(holder), &json!(4.0))
        );
        level = &lease["below"];
    }
    assert_eq!(*level, Value::Null);
    let last = &json["leases"][0]["below"]["leases"][0]["below"]["leases"][0];
    assert_eq!(last["not_shown"], "the node reports no address", "{json}");
}

/// The node `eu` below a server.
async fn node_below(root: &str, home: &TempDir) -> Server {
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
    node.await.unwrap()
}

#[tokio::test]
async fn cleanly_stopped_node_releases_nothing() {
    with_server(async |root| {
        let home = TempDir::new().unwrap();
        let holds_at_root = async || {
            let shown = call(&root, "show db --json").await.unwrap();
            let shown: Value = serde_json::from_str(&shown).unwrap();
            let lease = &shown["leases"][0];
            // It may have a surplus.
            lease["client_id"] == "eu" && lease["has"].as_f64().unwrap() >= 50.0
        };
        let node = node_below(&root, &home).await;
        let address = format!("http://{}", node.local_addr());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let test = async {
            let get = "get db --wants 50 --client c";
            call(&address, get).await.unwrap();
            assert!(holds_at_root().await);
            stop.send(()).unwrap();
        };
        let run = node.run(async { drop(stopped.await) });
        let (outcome, ()) = tokio::join!(run, test);
        assert_eq!(outcome.failed, None);
        assert!(holds_at_root().await);

        // The next start has the ledger, and knows what it holds.
        let node = node_below(&root, &home).await;
        let address = format!("http://{}", node.local_addr());
        let test = async {
            let shown = call(&address, "show db").await.unwrap();
            assert!(shown.contains("\nc\tclient\t0\t50\t50\t50\t"), "{shown}");
            assert!(holds_at_root().await);
        };
        tokio::select! {
            stopped = node.run(std::future::pending()) => panic!("{stopped:?}"),
            () = test => {}
        }
    })
    .await;
}

#[tokio::test]
async fn holders_of_all_levels_are_shown() {
    with_server(async |root| {
        let home = TempDir::new().unwrap();
        let node = node_below(&root, &home).await;
        let address = format!("http://{}", node.local_addr());
        let test = async {
            call(&address, "get db --wants 50 --client c")
                .await
                .unwrap();
            let shown = call(&root, "show db --tree").await.unwrap();
            let lines: Vec<Vec<_>> = shown.lines().map(|row| row.split('\t').collect()).collect();
            let eu = lines.iter().find(|row| row[0] == "eu").unwrap();
            assert_eq!(eu[1..4], ["node", "1", "50"], "{shown}");
            assert_eq!(eu[9], address, "{shown}");
            let client = lines.iter().find(|row| row[0] == "  c").unwrap();
            assert_eq!(client[1..6], ["client", "1", "50", "50", "50"], "{shown}");

            // The node says what it leases.
            let shown = call(&address, "show db").await.unwrap();
            let leased = shown
                .lines()
                .find_map(|it| it.strip_prefix("leased from the parent: "));
            let of_tree = " of 1000, the capacity of the tree, for ";
            let (leased, _) = leased.unwrap().split_once(of_tree).unwrap();
            assert!(
                rows(&shown).starts_with(&format!("db\t{leased}\t50\t50\t")),
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

/// A node whose parent does not answer.
#[tokio::test]
async fn commands_at_a_cut_node_name_its_parent() {
    let home = TempDir::new().unwrap();
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let parent = format!("http://{}", unused.local_addr().unwrap());
    drop(unused);
    let node = node_below(&parent, &home).await;
    let address = format!("http://{}", node.local_addr());
    let test = async {
        let got = call(&address, "get db --wants 50 --client c")
            .await
            .unwrap();
        let line = "db\t0\t-\t0\t1\tpending\n";
        assert!(got.ends_with(line), "{got}");
        let shown = call(&address, "show db").await.unwrap();
        for text in [
            "; safe capacity without a lease: unknown before the parent answers\n",
            "leased from the parent: 0, for 0 s; parent unreachable for ",
            "\tparent\tthis node has no lease from its parent; parent unreachable for ",
        ] {
            assert!(shown.contains(text), "{text} in {shown}");
        }
        let ready = call(&address, "ready").await.unwrap();
        assert!(
            ready.starts_with("ready\nparent unreachable for "),
            "{ready}"
        );
        assert!(!ready.contains("source of the document"), "{ready}");
    };
    tokio::select! {
        stopped = node.run(std::future::pending()) => panic!("{stopped:?}"),
        () = test => {}
    }
}
