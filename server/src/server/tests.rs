use std::{path::Path, time::Duration};

use axum::{body::Body, http::Request};
use doorman_config::Document;
use http_body_util::BodyExt;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    time::{sleep, timeout},
};
use tower::ServiceExt;

use super::*;
use crate::{
    auth::AuthSettings, durability::EmptyDirectory, etcd::testing::client_without_space, net::tls,
    upstream::ParentSettings, util::clock, util::testing::Log,
};

fn settings(home: &Path) -> Settings {
    Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        data_dir: home.join("data"),
        ..Settings::default()
    }
}

async fn send(router: &Router, request: Request<Body>) -> Value {
    let response = router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

async fn get(router: &Router, path: &str) -> Value {
    send(router, Request::get(path).body(Body::empty()).unwrap()).await
}

/// The reason in the response to a new client.
async fn reason(server: &Server) -> String {
    let request = Request::post("/v1/capacity").header("content-type", "application/json");
    let body = r#"{"client_id":"c","resources":[{"resource_id":"db","wants":5}]}"#;
    let answer = send(&server.router(), request.body(body.into()).unwrap()).await;
    answer["resources"][0]["reason"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// The metric of empty data directories that were treated as a first start.
async fn first_starts(server: &Server) -> u32 {
    let request = Request::get("/metrics").body(Body::empty()).unwrap();
    let response = server.router().oneshot(request).await.unwrap();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(text.into()).unwrap();
    let series = "doorman_safety_exceptions_total{exception=\"first_start\"} ";
    let count = text.lines().find_map(|line| line.strip_prefix(series));
    count.unwrap().parse().unwrap()
}

#[tokio::test]
async fn unauthenticated_server_listens_on_loopback_only() {
    let home = TempDir::new().unwrap();
    for (listen, is_loopback) in [
        ("0.0.0.0:0", false),
        ("[::]:0", false),
        ("[::ffff:0.0.0.0]:0", false),
        ("127.0.0.2:0", true),
        ("[::1]:0", true),
    ] {
        let listen = listen.parse().unwrap();
        let bound = Server::bind(Settings {
            listen,
            ..settings(home.path())
        })
        .await;
        let rejected = matches!(bound, Err(StartError::NeedsAuthentication(_)));
        assert_eq!(rejected, !is_loopback, "{listen}: {bound:?}");
    }
    let open = Settings {
        listen: ([0, 0, 0, 0], 0).into(),
        exposure: Exposure::Anybody,
        ..settings(home.path())
    };
    assert!(Server::bind(open).await.is_ok());
}

#[tokio::test]
async fn port_in_use_fails_the_start_without_a_new_epoch() {
    let home = TempDir::new().unwrap();
    let first = Server::bind(settings(home.path())).await.unwrap();
    let listen = first.local_addr();
    let second = Server::bind(Settings {
        listen,
        ..settings(home.path())
    })
    .await;
    assert!(
        matches!(second, Err(StartError::Listen { .. })),
        "{second:?}"
    );
    let epoch = first.epoch().unwrap().get();
    drop(first);
    let third = Server::bind(settings(home.path())).await.unwrap();
    assert!(third.epoch().unwrap().get() <= (epoch + 1).max(clock::unix_seconds()));
}

#[tokio::test]
async fn data_directory_is_locked_by_one_server() {
    let home = TempDir::new().unwrap();
    let first = Server::bind(settings(home.path())).await.unwrap();
    let error = Server::bind(settings(home.path())).await.unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    drop(first);
    assert!(Server::bind(settings(home.path())).await.is_ok());
}

#[tokio::test]
async fn crash_makes_the_next_start_learn() {
    let home = TempDir::new().unwrap();
    let fresh = Server::bind(settings(home.path())).await.unwrap();
    assert_eq!(reason(&fresh).await, "granted");
    let (node, epoch) = (fresh.node().clone(), fresh.epoch());
    drop(fresh);
    let used = Server::bind(settings(home.path())).await.unwrap();
    assert_eq!(reason(&used).await, "pending");
    assert_eq!(*used.node(), node);
    assert!(used.epoch() > epoch);
}

#[tokio::test]
async fn disabled_learning_mode_grants_immediately_after_a_crash() {
    let home = TempDir::new().unwrap();
    let document = "resources: [{identifier_glob: '*', capacity: 10, \
        algorithm: {kind: FAIR_SHARE, learning_mode_duration: 0}}]";
    let start = async || {
        let settings = Settings {
            document: Arc::new(Document::parse(document).unwrap()),
            ..settings(home.path())
        };
        Server::bind(settings).await.unwrap()
    };
    let first = start().await;
    assert_eq!(reason(&first).await, "granted");
    drop(first);
    let second = start().await;
    assert_eq!(reason(&second).await, "granted");
    let view = get(&second.router(), "/v1/resources/db").await;
    assert_eq!(view["in_learning_mode"], false, "{view}");
}

#[tokio::test]
async fn crash_without_grants_leaves_nothing_to_learn() {
    let home = TempDir::new().unwrap();
    for _ in 0..2 {
        drop(Server::bind(settings(home.path())).await.unwrap());
    }
    let used = Server::bind(settings(home.path())).await.unwrap();
    assert_eq!(reason(&used).await, "granted");
}

#[tokio::test]
async fn clean_stop_hands_the_ledger_to_the_next_start_only() {
    let home = TempDir::new().unwrap();
    let server = Server::bind(settings(home.path())).await.unwrap();
    assert_eq!(reason(&server).await, "granted");
    assert_eq!(
        server.run(async {}).await,
        Stopped {
            cut_off: 0,
            failed: None
        }
    );

    let next = Server::bind(settings(home.path())).await.unwrap();
    let view = get(&next.router(), "/v1/resources/db").await;
    assert_eq!(
        (&view["sum_has"], &view["in_learning_mode"]),
        (&5.0.into(), &false.into()),
        "{view}"
    );
    drop(next);
    // The second server crashed, so the ledger of the first is stale.
    let third = Server::bind(settings(home.path())).await.unwrap();
    let status = get(&third.router(), "/v1/status").await;
    assert_eq!(status["leases"], 0, "{status}");
    assert_eq!(reason(&third).await, "pending");
}

#[tokio::test]
async fn corrupted_ledger_file_makes_the_server_learn() {
    let home = TempDir::new().unwrap();
    let server = Server::bind(settings(home.path())).await.unwrap();
    assert_eq!(reason(&server).await, "granted");
    assert_eq!(
        server.run(async {}).await,
        Stopped {
            cut_off: 0,
            failed: None
        }
    );
    let file = home.path().join("data/ledger.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"c\"", "\"d\"")).unwrap();
    let next = Server::bind(settings(home.path())).await.unwrap();
    assert_eq!(reason(&next).await, "pending");
}

#[tokio::test]
async fn empty_data_directory_makes_the_server_learn_unless_declared_or_loopback() {
    let exposed = |home: &TempDir, empty_directory| Settings {
        listen: ([0, 0, 0, 0], 0).into(),
        exposure: Exposure::Anybody,
        empty_directory,
        ..settings(home.path())
    };
    for (empty_directory, expected) in [
        (EmptyDirectory::MayBeLost, "pending"),
        (EmptyDirectory::FirstStart, "granted"),
    ] {
        let home = TempDir::new().unwrap();
        let server = Server::bind(exposed(&home, empty_directory)).await.unwrap();
        assert_eq!(reason(&server).await, expected);
        assert_eq!(
            first_starts(&server).await,
            u32::from(expected == "granted")
        );
        drop(server);
        // The second start finds a used directory, whatever the operator declares.
        let server = Server::bind(exposed(&home, EmptyDirectory::FirstStart))
            .await
            .unwrap();
        assert_eq!(reason(&server).await, "pending");
        assert_eq!(first_starts(&server).await, 0);
    }
    // Nobody declared it on loopback, so it is counted.
    let home = TempDir::new().unwrap();
    let server = Server::bind(settings(home.path())).await.unwrap();
    assert_eq!(first_starts(&server).await, 1);
}

#[tokio::test]
async fn advertised_url_is_reachable() {
    let home = TempDir::new().unwrap();
    let server = Server::bind(settings(home.path())).await.unwrap();
    let discovery = get(&server.router(), "/v1/discovery").await;
    let address = format!("http://{}", server.local_addr());
    assert_eq!(discovery["mastership"]["master_address"], address);
    drop(server);

    let everywhere = Settings {
        listen: ([0, 0, 0, 0], 0).into(),
        exposure: Exposure::Anybody,
        ..settings(home.path())
    };
    let server = Server::bind(everywhere).await.unwrap();
    let discovery = get(&server.router(), "/v1/discovery").await;
    let named = discovery["mastership"]["master_address"].as_str().unwrap();
    assert!(!named.contains("0.0.0.0"), "{named}");
    drop(server);

    let advertised = Settings {
        advertise: Some("https://doorman.example".parse().unwrap()),
        server_id: Some(ServerId::new("s").unwrap()),
        node: Some(NodeId::new("n").unwrap()),
        ..settings(home.path())
    };
    let discovery = get(
        &Server::bind(advertised).await.unwrap().router(),
        "/v1/discovery",
    )
    .await;
    assert_eq!(
        discovery["mastership"]["master_address"],
        "https://doorman.example"
    );
    assert_eq!(
        (&discovery["server_id"], &discovery["node"]),
        (&"s".into(), &"n".into())
    );
}

#[tokio::test(start_paused = true)]
async fn expired_lease_is_swept_without_requests() {
    let home = TempDir::new().unwrap();
    let server = Server::bind(settings(home.path())).await.unwrap();
    assert_eq!(reason(&server).await, "granted");
    let router = server.router();
    let (stop, stopping) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async { drop(stopping.await) }));

    let status = get(&router, "/v1/status").await;
    assert_eq!(
        (&status["resources"], &status["leases"]),
        (&1.into(), &1.into())
    );
    // A booking of a lease of a minute, and the sweeper's longest sleep.
    sleep(Duration::from_secs(65)).await;
    let status = get(&router, "/v1/status").await;
    assert_eq!(
        (&status["resources"], &status["leases"]),
        (&0.into(), &0.into())
    );

    drop(stop);
    assert_eq!(
        running.await.unwrap(),
        Stopped {
            cut_off: 0,
            failed: None
        }
    );
}

#[tokio::test]
async fn tls_server_advertises_https_only() {
    let home = TempDir::new().unwrap();
    tls::testing::Authority::new().issue().write(home.path());
    let encrypted = || Settings {
        tls: Some(tls::testing::settings(home.path())),
        ..settings(home.path())
    };
    let server = Server::bind(encrypted()).await.unwrap();
    let address = format!("https://{}", server.local_addr());
    assert_eq!((server.scheme(), server.advertised()), ("https", &*address));
    let discovery = get(&server.router(), "/v1/discovery").await;
    assert_eq!(discovery["mastership"]["master_address"], address);
    drop(server);

    for (advertise, is_right) in [("http://a.test", false), ("HTTPS://a.test", true)] {
        let bound = Server::bind(Settings {
            advertise: Some(advertise.parse().unwrap()),
            ..encrypted()
        });
        match bound.await {
            Ok(_) => assert!(is_right, "{advertise}"),
            Err(StartError::AdvertisesPlain(url)) => {
                assert!(!is_right && url.to_string() == advertise);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads one response with a body in JSON.
async fn response(stream: &mut TcpStream) -> (String, Value) {
    let mut text = Vec::new();
    loop {
        let body = timeout(Duration::from_secs(10), stream.read_buf(&mut text)).await;
        assert!(body.unwrap().unwrap() > 0, "closed");
        let text = str::from_utf8(&text).unwrap();
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && let Ok(body) = serde_json::from_str(body)
        {
            return (head.to_owned(), body);
        }
    }
}

#[tokio::test]
async fn polls_are_closed_first_when_connections_run_short() {
    const DISCOVERY: &str = "GET /v1/discovery HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    let home = TempDir::new().unwrap();
    let server = Server::bind(Settings {
        max_connections: NonZeroUsize::new(4).unwrap(),
        ..settings(home.path())
    });
    let server = server.await.unwrap();
    let (address, ledger) = (server.local_addr(), Arc::clone(&server.app.ledger));
    let (stop, stopping) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async { drop(stopping.await) }));
    let open = async |request: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    };

    let mut idle = open(DISCOVERY).await;
    response(&mut idle).await;
    let mut polls = Vec::new();
    for client in ["a", "b"] {
        let poll = format!("GET /v1/hints?client_id={client} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
        polls.push(open(&poll).await);
        while ledger.polls().len() < polls.len() {
            tokio::task::yield_now().await;
        }
    }
    // Each of these takes the last slot, which the oldest poll then leaves.
    let mut others = Vec::new();
    for poll in &mut polls {
        let body = r#"{"client_id":"c","resources":[{"resource_id":"db","wants":5}]}"#;
        let lease = format!(
            "POST /v1/capacity HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = open(&lease).await;
        let (_, leases) = response(&mut stream).await;
        assert_eq!(leases["resources"][0]["reason"], "granted", "{leases}");
        others.push(stream);
        let (head, hints) = response(poll).await;
        assert!(head.contains("connection: close"), "{head}");
        assert_eq!(
            (&hints["refresh"], &hints["leaving"]),
            (&Value::Array(Vec::new()), &false.into())
        );
        assert_eq!(poll.read(&mut [0]).await.unwrap(), 0);
    }
    idle.write_all(DISCOVERY.as_bytes()).await.unwrap();
    response(&mut idle).await;
    drop((stop, idle, others));
    assert_eq!(
        running.await.unwrap(),
        Stopped {
            cut_off: 0,
            failed: None
        }
    );
}

/// A server with every background task.
async fn with_all_tasks(home: &Path) -> Server {
    tls::testing::Authority::new().issue().write(home);
    let secret = home.join("secret");
    std::fs::write(&secret, "01234567890123456789012345678901").unwrap();
    let parent = ParentSettings {
        servers: vec!["http://127.0.0.1:1".parse().unwrap()],
        token_file: None,
        ca_file: None,
    };
    let server = Server::bind(Settings {
        tls: Some(tls::testing::settings(home)),
        auth: Some(AuthSettings {
            secret_files: vec![secret],
            ..AuthSettings::default()
        }),
        parent: Some(parent),
        ..settings(home)
    });
    server.await.unwrap()
}

#[tokio::test]
async fn server_stops_when_a_background_task_ends() {
    const TASKS: [&str; 6] = [
        "certificate",
        "document",
        "election",
        "keys",
        "sweeper",
        "upstream",
    ];
    for (name, panics) in TASKS.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let home = TempDir::new().unwrap();
        let mut server = with_all_tasks(home.path()).await;
        let mut names = server.tasks.names();
        names.sort_unstable();
        assert_eq!(names, TASKS);
        let router = server.router();
        let readiness = async || {
            let request = Request::get("/readyz").body(Body::empty()).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            let (head, body) = response.into_parts();
            let text = body.collect().await.unwrap().to_bytes();
            (
                head.status.as_u16(),
                String::from_utf8_lossy(&text).into_owned(),
            )
        };
        assert_eq!(readiness().await.0, 200);

        let task = async move { assert!(!panics, "on purpose") };
        if name == "election" {
            server.tasks.spawn(name, task);
        } else {
            server.tasks.replace(name, task);
        }
        let running = timeout(Duration::from_secs(10), server.run(std::future::pending()));
        assert_eq!(running.await.unwrap().failed, Some(name));
        let (status, text) = readiness().await;
        assert!(
            status == 503 && text.contains(&format!("`{name}`")),
            "{status} {text}"
        );
    }
}

#[tokio::test]
async fn background_task_that_ends_stops_a_server_that_waits_for_space_in_etcd() {
    let (log, _guard) = Log::capture();
    let home = TempDir::new().unwrap();
    let mut server = Server::bind(settings(home.path())).await.unwrap();
    // As in an election.
    server.earlier = None;
    let parts = Arc::get_mut(&mut server.app).unwrap();
    let info = Arc::get_mut(&mut parts.server).unwrap();
    info.etcd = Some(client_without_space().await);
    let waits = log.clone();
    server.tasks.replace("sweeper", async move {
        while waits.count("the stop waits") == 0 {
            sleep(Duration::from_millis(10)).await;
        }
    });
    // It would wait for 30 s.
    let running = timeout(Duration::from_secs(20), server.run(async {}));
    assert_eq!(running.await.unwrap().failed, Some("sweeper"));
}

#[tokio::test]
async fn no_background_task_ends_by_itself() {
    let home = TempDir::new().unwrap();
    let server = with_all_tasks(home.path()).await;
    let stopped = server.run(sleep(Duration::from_millis(500))).await;
    assert_eq!(stopped.failed, None);
}
