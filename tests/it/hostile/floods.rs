//! HTTP/2 connections that send frames without pause. When the server closes one, the next opens.

use std::{future::pending, iter, net::SocketAddr, thread, time::Duration};

use futures_util::future::join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy, sink},
    net::{TcpListener, TcpSocket},
    time::sleep,
};

use super::{
    Victim,
    measure::{self, Attack},
};
use crate::support::{exclusive_load, now};

/// The most processor time that a flood may take, after [`SETTLED`].
const CORE_SHARE: f64 = 0.05;

/// A connection is replaced a second after the last one at the earliest, so at most two open while
/// [`MEASURED`] lasts.
const SETTLED: Duration = Duration::from_millis(1_500);
const MEASURED: Duration = Duration::from_secs(2);

/// How long the server holds a connection that it has closed.
const LINGER: Duration = Duration::from_secs(1);

/// The first connections of several begin one after another, this far apart.
const STAGGER: Duration = Duration::from_millis(5);

/// Floods over one connection and over several.
const CONNECTIONS: [usize; 2] = [1, 20];

/// Types and flags of frames (RFC 9113, 6).
const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const PRIORITY: u8 = 0x2;
const RST_STREAM: u8 = 0x3;
const SETTINGS: u8 = 0x4;
const PING: u8 = 0x6;
const WINDOW_UPDATE: u8 = 0x8;
const CONTINUATION: u8 = 0x9;
const UNKNOWN: u8 = 0xbe;
const END_HEADERS: u8 = 0x4;

/// Bytes that begin a connection, and bytes to repeat.
#[derive(Debug, Clone)]
struct Flood {
    name: &'static str,
    begin: Vec<u8>,
    repeated: Vec<u8>,
    /// Over how many connections its processor time is bounded. Requests take time of their own,
    /// and have limits of their own.
    connections: usize,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .expect("it is short")
        .to_be_bytes();
    let header = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&header, payload].concat()
}

/// The head of a lease request whose body follows.
fn request(flags: u8, stream: u32) -> Vec<u8> {
    // HPACK: POST, http, and literals for authority, path and content-type.
    let mut block = b"\x83\x86\x41\x09localhost\x04\x0c/v1/capacity".to_vec();
    block.extend_from_slice(b"\x0f\x10\x10application/json");
    frame(HEADERS, flags, stream, &block)
}

fn floods() -> Vec<Flood> {
    let preface = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &[]),
    ];
    let preface = preface.concat();
    let flood = |name, begin: &[u8], repeated: Vec<u8>| Flood {
        name,
        begin: [&preface, begin].concat(),
        repeated: repeated.repeat((64 * 1024_usize).div_ceil(repeated.len())),
        connections: CONNECTIONS[1],
    };
    // Changes the window of requests whose bodies the server awaits.
    let waiting = (0..40).flat_map(|n| request(END_HEADERS, 2 * n + 1));
    let window = |size: u8| frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, size]);
    let open = request(END_HEADERS, 1);
    let canceled = (0..5_000).flat_map(|n| {
        let stream = 2 * n + 1;
        [
            request(END_HEADERS, stream),
            frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]),
        ]
    });
    let canceled = canceled.collect::<Vec<_>>().concat();
    vec![
        flood("SETTINGS", &[], frame(SETTINGS, 0, 0, &[])),
        Flood {
            connections: 1,
            ..flood(
                "SETTINGS beside requests",
                &waiting.collect::<Vec<_>>(),
                [window(0), window(1)].concat(),
            )
        },
        flood("PING", &[], frame(PING, 0, 0, &[0; 8])),
        flood(
            "WINDOW_UPDATE",
            &open,
            frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        ),
        flood("PRIORITY", &[], frame(PRIORITY, 0, 7, &[0, 0, 0, 0, 1])),
        flood("tiny DATA", &open, frame(DATA, 0, 1, b" ")),
        flood("32 bytes of DATA", &open, frame(DATA, 0, 1, &[b' '; 32])),
        flood("empty DATA", &open, frame(DATA, 0, 1, &[])),
        flood(
            "CONTINUATION",
            &request(0, 1),
            frame(CONTINUATION, 0, 1, &[]),
        ),
        flood("unknown frames", &[], frame(UNKNOWN, 0, 0, &[])),
        flood("canceled requests", &[], canceled),
    ]
}

impl Flood {
    /// Sends without pause until the server closes the connection.
    async fn send(&self, at: SocketAddr) {
        let socket = TcpSocket::new_v4().expect("a socket");
        // The system must not copy much that the server never reads.
        socket.set_send_buffer_size(64 * 1024).expect("a socket");
        let Ok(stream) = socket.connect(at).await else {
            return;
        };
        let (mut reader, mut writer) = stream.into_split();
        let write = async {
            for chunk in iter::once(&self.begin).chain(iter::repeat(&self.repeated)) {
                if writer.write_all(chunk).await.is_err() {
                    break;
                }
            }
        };
        // Unread responses would slow the flood down.
        let read = async {
            if copy(&mut reader, &mut sink()).await.is_ok() {
                pending::<()>().await;
            }
        };
        tokio::select! {
            () = write => {}
            () = read => {}
        }
    }

    /// Sends without pause, on a new connection whenever one has ended. Counts them.
    async fn send_again(&self, at: SocketAddr, attack: &Attack) {
        loop {
            self.send(at).await;
            attack.count_request();
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// A server that reads little of each connection, and closes it as late as the server under test.
async fn start_ignoring_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let at = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                drop(stream.read(&mut [0; 4096]).await);
                sleep(LINGER).await;
            });
        }
    });
    at
}

/// Runs floods until the attack is over; those without an address against a server that ignores
/// them.
fn run(floods: &[(Option<SocketAddr>, &Flood)], settle: Duration, attack: &Attack) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let ignoring = start_ignoring_server().await;
        let floods = (0..).zip(floods).map(|(n, (at, flood))| async move {
            sleep(STAGGER * n).await;
            flood.send_again(at.unwrap_or(ignoring), attack).await;
        });
        let floods = join_all(floods);
        let over = async {
            sleep(settle).await;
            attack.wait_for_start();
            while !attack.is_over() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            _ = floods => {}
            () = over => {}
        }
    });
}

/// Although each connection that the server closes is replaced.
#[tokio::test]
async fn floods_of_control_frames_take_little_processor_time() {
    let _exclusive = exclusive_load().await;
    let floods = floods();
    let victims: Vec<_> = floods.iter().map(|_| Victim::start()).collect();
    let addresses = victims.iter().map(|it| Some(it.at));
    let floods: Vec<_> = addresses.zip(&floods).collect();
    let cpu_times = || victims.iter().map(|it| it.server.cpu_time());
    for connections in CONNECTIONS {
        let all = floods.iter().flat_map(|it| {
            let connections = connections.min(it.1.connections);
            iter::repeat_n(*it, connections)
        });
        let all: Vec<_> = all.collect();
        let shares = measure::during(
            |attack| run(&all, SETTLED, attack),
            |attack| {
                let (began, before) = (now(), cpu_times().collect::<Vec<_>>());
                thread::sleep(MEASURED);
                let lasted = (now() - began).as_secs_f64();
                let taken = cpu_times().zip(before);
                // The server has closed each connection at least once.
                assert!(attack.requests() >= all.len(), "{}", attack.requests());
                taken
                    .map(|(after, before)| (after - before).as_secs_f64() / lasted)
                    .collect::<Vec<_>>()
            },
        );
        for ((_, flood), share) in floods.iter().zip(shares) {
            let name = flood.name;
            let connections = connections.min(flood.connections);
            measure::print(&format!(
                "{name} over {connections} connections: {:.1} % of a core\n",
                share * 100.0
            ));
            assert!(share <= CORE_SHARE, "{name}: {share}");
        }
    }
    for victim in victims {
        victim.assert_memory_bounded();
    }
}

#[tokio::test]
async fn floods_of_control_frames_delay_no_healthy_requests() {
    let _exclusive = exclusive_load().await;
    let victim = Victim::start();
    let kinds = floods();
    for connections in CONNECTIONS {
        let name = format!("floods of frames over {connections} connections");
        let attack_on = |at: Option<SocketAddr>| {
            let all = kinds.iter().cycle().take(connections);
            let all: Vec<_> = all.map(|it| (at, it)).collect();
            move |attack: &Attack| run(&all, LINGER, attack)
        };
        let quiet = attack_on(None);
        let attack = attack_on(Some(victim.at));
        let sent = measure::compare_with(&name, &victim, measure::TARGET, quiet, attack);
        assert!(sent > 0, "no connection was replaced");
    }
}
