//! Commands with several servers.

use std::sync::Mutex;

use axum::{
    Json, Router,
    extract::Request,
    http::header,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;

/// A server that counts its requests.
struct Stub {
    address: String,
    requests: Arc<AtomicUsize>,
}

impl Stub {
    async fn new(respond: impl Fn() -> Response + Clone + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let routes = Router::new().fallback(async move |_: Request| {
            count.fetch_add(1, SeqCst);
            respond()
        });
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { address, requests }
    }

    /// A server that is not the master and names another one, or none.
    async fn standby(master: Option<String>) -> Self {
        let status = match master {
            Some(_) => StatusCode::TEMPORARY_REDIRECT,
            None => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(move || {
            let problem = json!({
                "type": "/problems/unavailable", "title": "t", "status": status.as_u16(),
                "detail": "not the master", "mastership": {"master_address": master}
            });
            let location = format!("{}/v1/capacity", master.as_deref().unwrap_or_default());
            (status, [(header::LOCATION, location)], Json(problem)).into_response()
        })
        .await
    }

    async fn master() -> Self {
        Self::new(|| {
            let lease = json!({"capacity": 5.0, "lease_length": 60.0, "refresh_interval": 5.0,
                "expiry_time": 0});
            let resource = json!({"resource_id": "db", "gets": lease, "reason": "granted",
                "template": null, "safe_capacity": 1.0});
            Json(json!({"node": "n", "epoch": 1, "resources": [resource]})).into_response()
        })
        .await
    }

    /// A server that answers only which server is master.
    async fn discovery(master: Option<&str>, epoch: u64) -> Self {
        Self::discovery_of(master, epoch, false, None).await
    }

    /// One that could not read the election for so many seconds.
    async fn discovery_of(
        master: Option<&str>,
        epoch: u64,
        is_master: bool,
        unread: Option<u64>,
    ) -> Self {
        let mastership = master.map_or_else(|| json!({}), |it| json!({"master_address": it}));
        Self::new(move || {
            Json(json!({
                "is_master": is_master, "mastership": mastership, "server_id": "s", "node": "n",
                "level": 0, "epoch": epoch, "election_unread_for": unread
            }))
            .into_response()
        })
        .await
    }

    fn requests(&self) -> usize {
        self.requests.load(SeqCst)
    }
}

/// Nothing listens there.
async fn refusing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// Requests a lease ten times, because the first server is random.
async fn get(servers: &[&str]) -> Result<(), String> {
    for _ in 0..10 {
        let line = format!("doorman get db --wants 5 --server {}", servers.join(","));
        let got = run(&line).await.map_err(|failure| failure.to_string())?;
        assert!(rows(&got).starts_with("db\t5\t"), "{got}");
    }
    Ok(())
}

#[tokio::test]
async fn next_server_is_asked_when_one_does_not_answer() {
    let (refuses, standby, master) = (
        refusing().await,
        Stub::standby(None).await,
        Stub::master().await,
    );
    get(&[&refuses, &standby.address, &master.address])
        .await
        .unwrap();
    assert_eq!(master.requests(), 10);
    let failed = get(&[&refuses, &refuses]).await.unwrap_err();
    assert!(failed.contains("no response from"), "{failed}");
    let failed = get(&[&standby.address, &standby.address]).await;
    assert!(failed.unwrap_err().contains("not the master"));
}

#[tokio::test]
async fn first_server_is_random() {
    let servers = [Stub::master().await, Stub::master().await];
    for _ in 0..10 {
        get(&[&servers[0].address, &servers[1].address])
            .await
            .unwrap();
    }
    assert!(servers.iter().all(|it| it.requests() > 10));
}

#[tokio::test]
async fn one_redirect_to_a_named_server_is_followed() {
    let master = Stub::master().await;
    let standby = Stub::standby(Some(master.address.clone())).await;
    get(&[&standby.address, &master.address]).await.unwrap();
    assert_eq!(master.requests(), 10);
    assert!(standby.requests() > 0);

    // Two servers that name each other.
    let other = Arc::new(Mutex::new(String::new()));
    let name_other = Arc::clone(&other);
    let one = Stub::new(move || {
        let location = name_other.lock().unwrap().clone();
        (
            StatusCode::TEMPORARY_REDIRECT,
            [(header::LOCATION, location)],
        )
            .into_response()
    })
    .await;
    let two = Stub::standby(Some(one.address.clone())).await;
    (*other.lock().unwrap()).clone_from(&two.address);
    let failed = get(&[&one.address, &two.address]).await.unwrap_err();
    assert!(failed.contains("no server accepts the request"), "{failed}");
    assert_eq!(one.requests() + two.requests(), 2);
}

#[tokio::test]
async fn no_token_is_sent_to_a_server_that_is_not_named() {
    let elsewhere = Stub::master().await;
    let standby = Stub::standby(Some(elsewhere.address.clone())).await;
    let failed = get(&[&standby.address]).await.unwrap_err();
    let expected = format!(
        "{} is not the master, which is at {}: pass --server {}",
        standby.address, elsewhere.address, elsewhere.address
    );
    assert!(failed.contains(&expected), "{failed}");
    assert_eq!((standby.requests(), elsewhere.requests()), (1, 0));
}

#[tokio::test]
async fn lease_that_may_be_granted_is_not_requested_elsewhere() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cuts = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.readable().await.ok();
        }
    });
    let master = Stub::master().await;
    let mut failures = 0;
    for _ in 0..20 {
        failures += usize::from(get(&[&cuts, &master.address]).await.is_err());
    }
    assert!(failures > 0);
    // Reading is repeated.
    let knows = Stub::discovery(Some("http://m"), 7).await;
    for _ in 0..10 {
        let line = format!("doorman master --server {cuts},{}", knows.address);
        assert!(rows(&run(&line).await.unwrap()).starts_with("http://m\t"));
    }
}

#[tokio::test]
async fn master_is_that_of_the_first_server_that_knows_it() {
    let (refuses, knows) = (refusing().await, Stub::discovery(Some("http://m"), 7).await);
    let knows_none = Stub::discovery(None, 7).await;
    let servers = format!("{refuses},{},{}", knows_none.address, knows.address);
    let printed = run(&format!("doorman master --server {servers}")).await;
    assert_eq!(rows(&printed.unwrap()), "http://m\tn\t7\t0\ts\n");
    let printed = run(&format!("doorman master --json --server {servers}")).await;
    let printed: Value = serde_json::from_str(&printed.unwrap()).unwrap();
    assert_eq!(printed["mastership"]["master_address"], "http://m");
}

#[tokio::test]
async fn node_without_master_is_a_failure_of_each_server() {
    let (refuses, knows_none) = (refusing().await, Stub::discovery(None, 7).await);
    for (servers, exit_code) in [
        (knows_none.address.clone(), 1),
        (format!("{},{refuses}", knows_none.address), 1),
        (refuses.clone(), 3),
        (format!("{refuses},{refuses}"), 3),
    ] {
        for flags in ["", " --json"] {
            let line = format!("doorman master --server {servers}{flags}");
            let failed = run(&line).await.unwrap_err();
            assert_eq!(failed.exit_code(), exit_code, "{failed}");
            for server in servers.split(',') {
                assert!(failed.to_string().contains(server), "{failed}");
            }
        }
    }
}

#[tokio::test]
async fn remembered_master_is_a_failure_unless_another_server_knows_it() {
    let remembers = Stub::discovery_of(Some("http://m"), 7, false, Some(12)).await;
    let is_master = Stub::discovery_of(Some("http://m"), 7, true, Some(4)).await;
    let knows = Stub::discovery(Some("http://m2"), 6).await;
    let knows_none = Stub::discovery_of(None, 7, false, Some(12)).await;
    for flags in ["", " --json"] {
        let run = async |servers: &[&Stub]| {
            let servers: Vec<_> = servers.iter().map(|it| it.address.as_str()).collect();
            run(&format!(
                "doorman master{flags} --server {}",
                servers.join(",")
            ))
            .await
        };
        let failed = run(&[&knows_none, &remembers]).await.unwrap_err();
        assert_eq!(failed.exit_code(), 1);
        assert!(failed.output().contains("http://m"), "{}", failed.output());
        let expected = "doorman: the master may be another one; http://m was the last known: s \
                        could not read the election for 12 s";
        assert_eq!(failed.to_string(), expected);
        let text = run(&[&remembers, &knows]).await.unwrap();
        assert!(text.contains("http://m2"), "{text}");
        assert!(run(&[&remembers, &is_master]).await.is_ok());
        let failed = run(&[&knows_none, &knows_none]).await.unwrap_err();
        assert!(failed.to_string().contains("for 12 s"), "{failed}");
    }
    // Without an election there is no epoch.
    let alone = Stub::discovery(Some("http://m"), 0).await;
    let text = run(&format!("doorman master --server {}", alone.address)).await;
    assert_eq!(rows(&text.unwrap()), "http://m\tn\t-\t0\ts\n");
}
