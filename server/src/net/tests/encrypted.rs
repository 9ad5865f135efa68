//! What only connections with TLS do: handshakes, and what goes wrong with them.

use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, pki_types::ServerName, version::TLS12};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;
use crate::net::tls::{
    Outcomes, Tls,
    testing::{self, Authority, NAME},
};

/// A connection of which nobody has shaken hands yet.
struct Strange {
    stream: tokio::io::DuplexStream,
    server: JoinHandle<Ended>,
    activity: Arc<Activity>,
    drain: watch::Sender<bool>,
}

fn strange(tls: &Arc<Tls>) -> Strange {
    let (stream, far_end) = duplex(64 * 1024);
    let (drain, draining) = watch::channel(false);
    let activity = Arc::new(Activity::new());
    let serving = Arc::new(Serving::new(Slow::default().router(), Rest::default()));
    let open = Box::pin(handshake::encrypted(Arc::clone(tls), far_end));
    let active = Arc::clone(&activity);
    Strange {
        stream,
        server: tokio::spawn(connection::serve(serving, open, active, draining)),
        activity,
        drain,
    }
}

async fn shake<S: Stream>(
    stream: S,
    config: ClientConfig,
    name: &str,
) -> std::io::Result<TlsStream<S>> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

fn outcomes(tls: &Tls, [completed, failed, abandoned]: [u64; 3]) {
    let expected = Outcomes {
        completed,
        failed,
        abandoned,
    };
    assert_eq!(tls.handshakes().outcomes(), expected);
}

#[tokio::test(start_paused = true)]
async fn what_is_spoken_is_agreed_upon_and_http2_comes_first() {
    let authority = Authority::new();
    let tls = testing::tls(&authority);
    for (offered, agreed) in [
        (&["http/1.1", "h2"][..], Some(&b"h2"[..])),
        (&["http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ] {
        let peer = strange(&tls);
        let stream = shake(peer.stream, authority.client(offered), NAME)
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
            let mut answer = [0; 15];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200 OK");
        }
    }
    // Nothing else is spoken.
    let peer = strange(&tls);
    let other = authority.client(&["spdy/3"]);
    assert!(shake(peer.stream, other, NAME).await.is_err());
    outcomes(&tls, [3, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn tls_1_2_is_the_oldest_version_that_is_spoken() {
    let authority = Authority::new();
    let tls = testing::tls(&authority);
    let oldest = authority.client_of(&[], &[&TLS12], None);
    assert!(shake(strange(&tls).stream, oldest, NAME).await.is_ok());

    // The beginning of a handshake of TLS 1.1, to which the answer is an alert: "protocol version" (RFC 8446, 6.2).
    let mut hello = vec![0x03, 0x02];
    hello.extend([7; 32]);
    // No session, one cipher suite, no compression, and the algorithms of signatures.
    hello.extend([0, 0, 2, 0xc0, 0x13, 1, 0]);
    hello.extend([0, 8, 0, 13, 0, 4, 0, 2, 4, 3]);
    let mut record = vec![0x16, 0x03, 0x01, 0, hello.len() as u8 + 4];
    record.extend([1, 0, 0, hello.len() as u8]);
    record.extend(hello);
    let mut peer = strange(&tls);
    peer.stream.write_all(&record).await.unwrap();
    let mut answer = Vec::new();
    peer.stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer[0], 0x15, "an alert: {answer:?}");
    assert_eq!(answer[5..], [2, 70], "a fatal one: {answer:?}");
    outcomes(&tls, [1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_handshake_is_waited_for_as_long_as_a_head_and_then_the_head_is_due() {
    let authority = Authority::new();
    let tls = testing::tls(&authority);
    // Nothing, and less than a whole handshake, however it drips in.
    for begin in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01"] {
        let mut peer = strange(&tls);
        let start = clock::now();
        let drips = tokio::spawn(async move {
            for byte in begin {
                peer.stream.write_all(&[*byte]).await.unwrap();
                sleep(Duration::from_millis(900)).await;
            }
            // It stays open.
            sleep(Duration::from_secs(60)).await;
            drop(peer.stream);
        });
        assert_eq!(peer.server.await.unwrap(), Ended::Over);
        assert_eq!(clock::now().since(start).as_secs(), 5, "{begin:?}");
        drips.abort();
    }
    outcomes(&tls, [0, 0, 3]);

    // Who needs four seconds for it has five more for the head.
    let peer = strange(&tls);
    sleep(Duration::from_secs(4)).await;
    let mut stream = shake(peer.stream, authority.client(&[]), NAME)
        .await
        .unwrap();
    let start = clock::now();
    stream.write_all(&REQUEST[..5]).await.unwrap();
    // It is told that nothing more comes; without that word this would be an error.
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(clock::now().since(start).as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_handshake_makes_room_and_ends_when_the_server_stops() {
    let tls = testing::tls(&Authority::new());
    for begin in [&b""[..], b"\x16\x03\x01"] {
        let mut peer = strange(&tls);
        peer.stream.write_all(begin).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        peer.activity.give_way();
        assert_eq!(peer.server.await.unwrap(), Ended::GaveWay);

        let mut peer = strange(&tls);
        peer.stream.write_all(begin).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        peer.drain.send_replace(true);
        assert_eq!(peer.server.await.unwrap(), Ended::Over);
    }
    outcomes(&tls, [0, 0, 4]);
}

#[tokio::test(start_paused = true)]
async fn who_expects_another_server_goes_away() {
    let authority = Authority::new();
    let tls = testing::tls(&authority);
    let stranger = Authority::new().client(&[]);
    let error = shake(strange(&tls).stream, stranger, NAME).await;
    assert!(error.unwrap_err().to_string().contains("UnknownIssuer"));
    let named = shake(strange(&tls).stream, authority.client(&[]), "other.test").await;
    assert!(
        named
            .unwrap_err()
            .to_string()
            .contains("not valid for name")
    );
}

#[tokio::test(start_paused = true)]
async fn with_an_authority_for_clients_those_without_its_certificate_stay_out() {
    let authority = Authority::new();
    let clients = Authority::new();
    let home = tempfile::TempDir::new().unwrap();
    authority.issue().write(home.path());
    let file = home.path().join("clients.pem");
    std::fs::write(&file, clients.pem()).unwrap();
    let tls = Arc::new(
        Tls::load(crate::net::tls::TlsSettings {
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
            let mut answer = [0; 15];
            let answered = async {
                // With TLS 1.3 the client hears of its refusal only now.
                let mut stream = shake(strange(&tls).stream, config, NAME).await?;
                stream.write_all(REQUEST).await?;
                stream.read_exact(&mut answer).await
            };
            assert_eq!(answered.await.is_ok(), may, "{shows:?}");
        }
    }
    outcomes(&tls, [2, 6, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_tls_is_told_what_is_wrong() {
    let tls = testing::tls(&Authority::new());
    let mut peer = strange(&tls);
    peer.stream.write_all(REQUEST).await.unwrap();
    let mut answer = String::new();
    peer.stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("https://"), "{answer}");
    // Who does not close in turn is not waited for longer than for a handshake.
    let start = clock::now();
    assert_eq!(peer.server.await.unwrap(), Ended::Over);
    assert_eq!(clock::now().since(start).as_secs(), 5);
    outcomes(&tls, [0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn nonsense_is_closed_at_once() {
    let tls = testing::tls(&Authority::new());
    for nonsense in [
        &[0; 100][..],
        &[0xff; 100],
        &[0x16; 100],
        b"\x16\x03\x01\x7f\xffaaaa",
    ] {
        let mut peer = strange(&tls);
        let start = clock::now();
        peer.stream.write_all(nonsense).await.unwrap();
        assert_eq!(peer.server.await.unwrap(), Ended::Over);
        assert_eq!(clock::now().since(start).as_secs(), 0, "{nonsense:?}");
    }
    outcomes(&tls, [0, 4, 0]);
}

#[tokio::test]
async fn a_thousand_that_never_finish_their_handshakes_keep_nobody_out_and_are_cleared() {
    let authority = Authority::new();
    let tls = testing::tls(&authority);
    let listener = listener(1200).encrypting(Some(Arc::clone(&tls)));
    let address = listener.address();
    let counted = ConnectionMetrics::default();
    let served = listener.serve(
        Slow::default().router(),
        counted.clone(),
        std::future::pending(),
        || {},
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
    let mut stream = shake(stream, authority.client(&[]), NAME).await.unwrap();
    stream.write_all(REQUEST).await.unwrap();
    let mut answer = [0; 15];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    for mut stream in half_open {
        let mut bytes = [0; 64];
        let closed = timeout(Duration::from_secs(30), stream.read(&mut bytes));
        assert!(matches!(closed.await.unwrap(), Ok(0) | Err(_)));
    }
    outcomes(&tls, [1, 0, 1000]);
    assert_eq!(counted.evicted(), 0);
    server.abort();
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_as_taken_when_the_system_has_it_and_not_before() {
    let authority = Authority::new();
    let (near, far) = duplex(1024);
    let tls = testing::tls(&authority);
    let server = tokio::spawn(handshake::encrypted(tls, far));
    let mut client = shake(near, authority.client(&[]), NAME).await.unwrap();
    let mut stream = server.await.unwrap().unwrap().stream;
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
async fn connections_that_stand_go_on_when_the_certificate_is_replaced() {
    let (before, after) = (Authority::new(), Authority::new());
    let home = tempfile::TempDir::new().unwrap();
    before.issue().write(home.path());
    let tls = Arc::new(Tls::load(testing::settings(home.path())).unwrap());
    let first = strange(&tls);
    let mut standing = shake(first.stream, before.client(&[]), NAME).await.unwrap();
    let ask = async |stream: &mut TlsStream<_>| {
        stream.write_all(REQUEST).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"quick") {
            assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "closed");
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
    let old = shake(strange(&tls).stream, before.client(&[]), NAME).await;
    assert!(old.is_err());
    let second = strange(&tls);
    let mut new = shake(second.stream, after.client(&[]), NAME).await.unwrap();
    ask(&mut new).await;
    ask(&mut standing).await;
    following.abort();
    // The server has not stopped meanwhile.
    drop([first.drain, second.drain]);
}
