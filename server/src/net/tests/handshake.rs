//! TLS handshakes.

use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, pki_types::ServerName, version::TLS12};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;
use crate::net::tls::{
    Tls,
    testing::{self, Authority, NAME},
};

/// A connection before its handshake.
struct Unopened {
    stream: tokio::io::DuplexStream,
    server: JoinHandle<Closed>,
    activity: Arc<Activity>,
    drain: watch::Sender<bool>,
}

fn unopened(tls: &Arc<Tls>) -> Unopened {
    let (stream, far_end) = duplex(64 * 1024);
    let (drain, draining) = watch::channel(false);
    let activity = Arc::new(Activity::new(None));
    let server = Arc::new(HttpServer::new(
        Slow::default().router(),
        Parking::default(),
    ));
    let open = Box::pin(tls::accept(Arc::clone(tls), far_end));
    let active = Arc::clone(&activity);
    Unopened {
        stream,
        server: tokio::spawn(connection::serve(server, open, active, draining)),
        activity,
        drain,
    }
}

async fn client_handshake<S: Stream>(
    stream: S,
    config: ClientConfig,
    name: &str,
) -> std::io::Result<TlsStream<S>> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

fn outcomes(tls: &Tls, expected: [u64; 3]) {
    let counts = ["completed", "failed", "abandoned"].map(|outcome| tls.handshakes.get(outcome));
    assert_eq!(counts, expected);
}

#[tokio::test(start_paused = true)]
async fn alpn_selects_http2_first() {
    let authority = Authority::new();
    let tls = testing::tls(&authority);
    for (offered, agreed) in [
        (&["http/1.1", "h2"][..], Some(&b"h2"[..])),
        (&["http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ] {
        let peer = unopened(&tls);
        let stream = client_handshake(peer.stream, authority.client(offered), NAME)
            .await
            .unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), agreed);
        if agreed == Some(b"h2") {
            let io = TokioIo::new(stream);
            let (mut sender, connection) =
                http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            let request = Request::get("https://a/quick").body(Body::empty()).unwrap();
            assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
        } else {
            let mut stream = stream;
            stream.write_all(REQUEST).await.unwrap();
            let mut response = [0; 15];
            stream.read_exact(&mut response).await.unwrap();
            assert_eq!(&response, b"HTTP/1.1 200 OK");
        }
    }
    // Another protocol is rejected.
    let peer = unopened(&tls);
    let other = authority.client(&["spdy/3"]);
    assert!(client_handshake(peer.stream, other, NAME).await.is_err());
    outcomes(&tls, [3, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn tls_1_1_is_rejected() {
    let authority = Authority::new();
    let tls = testing::tls(&authority);
    let oldest = authority.client_of(&[], &[&TLS12], None);
    assert!(
        client_handshake(unopened(&tls).stream, oldest, NAME)
            .await
            .is_ok()
    );

    // The ClientHello of TLS 1.1 is answered with the alert "protocol version" (RFC 8446, 6.2).
    let mut hello = vec![0x03, 0x02];
    hello.extend([7; 32]);
    // No session, one cipher suite, no compression, and signature algorithms.
    hello.extend([0, 0, 2, 0xc0, 0x13, 1, 0]);
    hello.extend([0, 8, 0, 13, 0, 4, 0, 2, 4, 3]);
    let mut record = vec![0x16, 0x03, 0x01, 0, hello.len() as u8 + 4];
    record.extend([1, 0, 0, hello.len() as u8]);
    record.extend(hello);
    let mut peer = unopened(&tls);
    peer.stream.write_all(&record).await.unwrap();
    let mut response = Vec::new();
    peer.stream.read_to_end(&mut response).await.unwrap();
    assert_eq!(response[0], 0x15, "alert: {response:?}");
    assert_eq!(response[5..], [2, 70], "fatal: {response:?}");
    outcomes(&tls, [1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn handshake_and_first_head_have_one_timeout_each() {
    let authority = Authority::new();
    let tls = testing::tls(&authority);
    // No byte, and incomplete handshakes.
    for begin in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01"] {
        let mut peer = unopened(&tls);
        let start = clock::now();
        let drips = tokio::spawn(async move {
            for byte in begin {
                peer.stream.write_all(&[*byte]).await.unwrap();
                sleep(Duration::from_millis(900)).await;
            }
            // The connection stays open.
            sleep(Duration::from_secs(60)).await;
            drop(peer.stream);
        });
        assert_eq!(peer.server.await.unwrap(), Closed::Done);
        assert_eq!(clock::now().since(start).as_secs(), 5, "{begin:?}");
        drips.abort();
    }
    outcomes(&tls, [0, 0, 3]);

    // After four seconds for the handshake there are five more for the head.
    let peer = unopened(&tls);
    sleep(Duration::from_secs(4)).await;
    let mut stream = client_handshake(peer.stream, authority.client(&[]), NAME)
        .await
        .unwrap();
    let start = clock::now();
    stream.write_all(&REQUEST[..5]).await.unwrap();
    // Without a close_notify this would be an error.
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(clock::now().since(start).as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn handshakes_are_evicted_and_end_at_shutdown() {
    let tls = testing::tls(&Authority::new());
    for begin in [&b""[..], b"\x16\x03\x01"] {
        let mut peer = unopened(&tls);
        peer.stream.write_all(begin).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        peer.activity.evict();
        assert_eq!(peer.server.await.unwrap(), Closed::Evicted);

        let mut peer = unopened(&tls);
        peer.stream.write_all(begin).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        peer.drain.send_replace(true);
        assert_eq!(peer.server.await.unwrap(), Closed::Done);
    }
    outcomes(&tls, [0, 0, 4]);
}

#[tokio::test(start_paused = true)]
async fn client_rejects_wrong_issuer_and_name() {
    let authority = Authority::new();
    let tls = testing::tls(&authority);
    let stranger = Authority::new().client(&[]);
    let error = client_handshake(unopened(&tls).stream, stranger, NAME).await;
    assert!(error.unwrap_err().to_string().contains("UnknownIssuer"));
    let named = client_handshake(unopened(&tls).stream, authority.client(&[]), "other.test").await;
    assert!(
        named
            .unwrap_err()
            .to_string()
            .contains("not valid for name")
    );
}

#[tokio::test(start_paused = true)]
async fn client_authority_rejects_other_clients() {
    let authority = Authority::new();
    let clients = Authority::new();
    let home = tempfile::TempDir::new().unwrap();
    authority.issue().write(home.path());
    let file = home.path().join("clients.pem");
    std::fs::write(&file, clients.pem()).unwrap();
    let tls = Arc::new(
        Tls::load(tls::TlsSettings {
            client_authority: Some(file),
            ..testing::settings(home.path())
        })
        .unwrap(),
    );
    let known = clients.issue();
    let foreign = authority.issue();
    let expired = clients.issue_for((2000, 2001));
    for versions in [rustls::ALL_VERSIONS, &[&TLS12]] {
        for (shows, may) in [
            (Some(&known), true),
            (Some(&foreign), false),
            (Some(&expired), false),
            (None, false),
        ] {
            let config = authority.client_of(&[], versions, shows);
            let mut response = [0; 15];
            let answered = async {
                // With TLS 1.3 the client learns of its rejection only now.
                let mut stream = client_handshake(unopened(&tls).stream, config, NAME).await?;
                stream.write_all(REQUEST).await?;
                stream.read_exact(&mut response).await
            };
            assert_eq!(answered.await.is_ok(), may, "{shows:?}");
        }
    }
    outcomes(&tls, [2, 6, 0]);
}

#[tokio::test(start_paused = true)]
async fn plain_http_request_gets_400() {
    let tls = testing::tls(&Authority::new());
    let mut peer = unopened(&tls);
    peer.stream.write_all(REQUEST).await.unwrap();
    let mut response = String::new();
    peer.stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    assert!(response.contains("https://"), "{response}");
    // A client that does not close in turn is closed after the handshake timeout.
    let start = clock::now();
    assert_eq!(peer.server.await.unwrap(), Closed::Done);
    assert_eq!(clock::now().since(start).as_secs(), 5);
    outcomes(&tls, [0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn malformed_handshake_is_closed_immediately() {
    let tls = testing::tls(&Authority::new());
    for malformed in [
        &[0; 100][..],
        &[0xff; 100],
        &[0x16; 100],
        b"\x16\x03\x01\x7f\xffaaaa",
    ] {
        let mut peer = unopened(&tls);
        let start = clock::now();
        peer.stream.write_all(malformed).await.unwrap();
        assert_eq!(peer.server.await.unwrap(), Closed::Done);
        assert_eq!(clock::now().since(start).as_secs(), 0, "{malformed:?}");
    }
    outcomes(&tls, [0, 4, 0]);
}

#[tokio::test]
async fn unfinished_handshakes_block_nobody_and_time_out() {
    let authority = Authority::new();
    let tls = testing::tls(&authority);
    let listener = listener(1200).with_tls(Some(Arc::clone(&tls)));
    let address = listener.address();
    let metrics = ConnectionMetrics::default();
    let served = listener.serve(
        Slow::default().router(),
        metrics.clone(),
        std::future::pending(),
        || {},
        |_| 0,
    );
    let server = tokio::spawn(served);
    let mut half_open = Vec::new();
    for n in 0..1000 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if n % 2 == 0 {
            stream.write_all(b"\x16\x03\x01\x02\x00\x01").await.unwrap();
        }
        half_open.push(stream);
    }
    let stream = TcpStream::connect(address).await.unwrap();
    let mut stream = client_handshake(stream, authority.client(&[]), NAME)
        .await
        .unwrap();
    stream.write_all(REQUEST).await.unwrap();
    let mut response = [0; 15];
    stream.read_exact(&mut response).await.unwrap();
    assert_eq!(&response, b"HTTP/1.1 200 OK");
    for mut stream in half_open {
        let mut bytes = [0; 64];
        let closed = timeout(Duration::from_secs(30), stream.read(&mut bytes));
        assert!(matches!(closed.await.unwrap(), Ok(0) | Err(_)));
    }
    outcomes(&tls, [1, 0, 1000]);
    assert_eq!(metrics.evicted(), 0);
    server.abort();
}

#[tokio::test(start_paused = true)]
async fn write_completes_when_the_system_has_the_bytes() {
    let authority = Authority::new();
    let (near, far) = duplex(1024);
    let tls = testing::tls(&authority);
    let server = tokio::spawn(tls::accept(tls, far));
    let mut client = client_handshake(near, authority.client(&[]), NAME)
        .await
        .unwrap();
    let stream = server.await.unwrap().unwrap().stream;
    let mut stream = TrackedStream::new(stream, Arc::new(Activity::new(None)));
    let writing = tokio::spawn(async move {
        stream.write_all(&[7; 10_000]).await.unwrap();
        stream
    });
    sleep(Duration::from_secs(1)).await;
    assert!(!writing.is_finished());
    let mut taken = vec![0; 10_000];
    client.read_exact(&mut taken).await.unwrap();
    assert!(taken.iter().all(|byte| *byte == 7));
    drop(writing.await.unwrap());
    assert_eq!(client.read(&mut taken).await.unwrap(), 0);
}

#[tokio::test]
async fn open_connections_survive_certificate_reload() {
    let (before, after) = (Authority::new(), Authority::new());
    let home = tempfile::TempDir::new().unwrap();
    before.issue().write(home.path());
    let tls = Arc::new(Tls::load(testing::settings(home.path())).unwrap());
    let first = unopened(&tls);
    let mut standing = client_handshake(first.stream, before.client(&[]), NAME)
        .await
        .unwrap();
    let ask = async |stream: &mut TlsStream<_>| {
        stream.write_all(REQUEST).await.unwrap();
        let mut response = Vec::new();
        while !response.ends_with(b"quick") {
            assert!(stream.read_buf(&mut response).await.unwrap() > 0, "closed");
        }
    };
    ask(&mut standing).await;
    let following = tokio::spawn(Arc::clone(&tls).follow());
    after.issue_for((2000, 3000)).write(home.path());
    let ends = tls.not_after();
    while tls.not_after() == ends {
        ask(&mut standing).await;
        sleep(Duration::from_millis(10)).await;
    }
    ask(&mut standing).await;
    let old = client_handshake(unopened(&tls).stream, before.client(&[]), NAME).await;
    assert!(old.is_err());
    let second = unopened(&tls);
    let mut new = client_handshake(second.stream, after.client(&[]), NAME)
        .await
        .unwrap();
    ask(&mut new).await;
    ask(&mut standing).await;
    following.abort();
    // Keeps the server from shutting down.
    drop([first.drain, second.drain]);
}
