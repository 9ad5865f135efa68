//! HTTP/2 connections that send frames without pause. When the server closes one, the next opens.

use std::{iter, net::SocketAddr, thread, time::Duration};

use tokio::{
    io::{AsyncWriteExt, copy, sink},
    net::TcpSocket,
    task::JoinSet,
    time::sleep,
};

use super::{
    Victim,
    measure::{self, Attack},
};
use crate::support::exclusive_load;

/// The most processor time that a flood may take, after [`SETTLED`].
const CORE_SHARE: f64 = 0.05;
const SETTLED: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(2);

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
    };
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
        flood("PING", &[], frame(PING, 0, 0, &[0; 8])),
        flood(
            "WINDOW_UPDATE",
            &open,
            frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        ),
        flood("PRIORITY", &[], frame(PRIORITY, 0, 7, &[0, 0, 0, 0, 1])),
        flood("tiny DATA", &open, frame(DATA, 0, 1, b" ")),
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
        // Unread responses would slow the flood down.
        let reader = tokio::spawn(async move { copy(&mut reader, &mut sink()).await });
        let chunks = iter::once(&self.begin).chain(iter::repeat(&self.repeated));
        for chunk in chunks {
            if writer.write_all(chunk).await.is_err() {
                break;
            }
        }
        reader.abort();
    }

    /// Sends without pause, on a new connection whenever the server closes one.
    async fn send_again(self, at: SocketAddr) {
        loop {
            self.send(at).await;
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Runs a task for each until the attack is over.
fn run<F>(
    connections: impl Iterator<Item = (SocketAddr, Flood)>,
    send: impl Fn(SocketAddr, Flood) -> F,
    settle: Duration,
    attack: &Attack,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for (at, flood) in connections {
            tasks.spawn(send(at, flood));
        }
        sleep(settle).await;
        attack.wait_for_start();
        while !attack.is_over() {
            sleep(Duration::from_millis(10)).await;
        }
    });
}

/// Although each connection that the server closes is replaced.
#[tokio::test]
async fn floods_of_control_frames_take_little_processor_time() {
    let _exclusive = exclusive_load().await;
    let floods = floods();
    let victims: Vec<_> = floods.iter().map(|_| Victim::start()).collect();
    let addresses = victims.iter().map(|it| it.at);
    let floods: Vec<_> = addresses.zip(floods).collect();
    let cpu_times = || victims.iter().map(|it| it.server.cpu_time());
    for connections in CONNECTIONS {
        let taken = measure::during(
            |attack| {
                let all = floods.iter().cloned();
                let all = all.flat_map(|it| iter::repeat_n(it, connections));
                run(all, |at, flood| flood.send_again(at), SETTLED, attack);
            },
            |_| {
                let before: Vec<_> = cpu_times().collect();
                thread::sleep(MEASURED);
                let taken = cpu_times().zip(before);
                taken
                    .map(|(after, before)| after - before)
                    .collect::<Vec<_>>()
            },
        );
        for ((_, flood), taken) in floods.iter().zip(taken) {
            let name = flood.name;
            let share = taken.as_secs_f64() / MEASURED.as_secs_f64();
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
    let kinds: Vec<_> = floods().into_iter().map(|it| (victim.at, it)).collect();
    for connections in CONNECTIONS {
        let name = format!("floods of frames over {connections} connections");
        measure::compare(&name, &victim, measure::TARGET, |attack| {
            let all = kinds.iter().cycle().take(connections).cloned();
            let send = |at, flood: Flood| async move { flood.send(at).await };
            run(all, send, Duration::from_millis(500), attack);
        });
    }
}
