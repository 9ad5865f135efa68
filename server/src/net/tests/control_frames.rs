//! HTTP/2 peers that send frames without pause.

use super::*;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const PRIORITY: u8 = 0x2;
const RST_STREAM: u8 = 0x3;
const SETTINGS: u8 = 0x4;
const PING: u8 = 0x6;
const GOAWAY: u8 = 0x7;
const WINDOW_UPDATE: u8 = 0x8;
const UNKNOWN: u8 = 0xbe;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;

/// `POST http://a/PATH` as HPACK, without compression of the path.
fn post(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x41, 1, b'a', 0x04, path.len() as u8];
    block.extend_from_slice(path.as_bytes());
    block
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let header = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&header, payload].concat()
}

/// A frame of the server: type, stream and payload.
type Received = (u8, u32, Vec<u8>);

/// A peer that has sent its preface and SETTINGS.
async fn connect_http2(transport: Transport) -> Peer {
    let mut peer = connect(transport, Slow::default().router()).await;
    peer.send(PREFACE).await;
    peer.send(&frame(SETTINGS, 0, 0, &[])).await;
    peer
}

impl Peer {
    async fn receive(&mut self) -> Option<Received> {
        let mut header = [0; 9];
        self.stream.read_exact(&mut header).await.ok()?;
        let [_, l1, l2, kind, _, stream @ ..] = header;
        let mut payload = vec![0; usize::from(u16::from_be_bytes([l1, l2]))];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some((kind, u32::from_be_bytes(stream), payload))
    }

    /// Reads until a frame of this type.
    async fn receive_kind(&mut self, kind: u8) -> Received {
        loop {
            let frame = self.receive().await.expect("the connection is open");
            if frame.0 == kind {
                return frame;
            }
        }
    }

    /// Whether the server answers a PING. Reads everything before.
    async fn is_open(&mut self) -> bool {
        if self
            .stream
            .write_all(&frame(PING, 0, 0, b"is open?"))
            .await
            .is_err()
        {
            return false;
        }
        while let Some((kind, _, payload)) = self.receive().await {
            if (kind, &payload[..]) == (PING, b"is open?") {
                return true;
            }
        }
        false
    }

    /// Reads until the end. Returns the payload of the only GOAWAY, if there is one.
    async fn goaway(&mut self) -> Option<Vec<u8>> {
        let mut goaway = None;
        while let Some((kind, _, payload)) = self.receive().await {
            if kind == GOAWAY {
                assert_eq!(goaway.replace(payload), None);
            }
        }
        goaway
    }

    /// Sends frames while the server takes them. h2 closes a connection with too much unread DATA,
    /// so the handler gets time to read it.
    async fn flood(&mut self, frames: &[u8]) {
        for chunk in frames.chunks(4096) {
            if self.stream.write_all(chunk).await.is_err() {
                return;
            }
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Frames that cost the server time and ask for nothing, on a new connection whose stream 1 is
/// open. It may send at least this many of them at once, and not half as many again.
fn floods() -> Vec<(&'static str, usize, Vec<u8>)> {
    // A byte between the length of the padding and the padding.
    let padded = [&[254, b'x'][..], &[0; 254]].concat();
    vec![
        ("SETTINGS", 5, frame(SETTINGS, 0, 0, &[])),
        ("PING", 80, frame(PING, 0, 0, &[0; 8])),
        ("PING with ACK", 80, frame(PING, 1, 0, &[0; 8])),
        (
            "WINDOW_UPDATE",
            80,
            frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        ),
        ("PRIORITY", 80, frame(PRIORITY, 0, 7, &[0, 0, 0, 0, 1])),
        ("RST_STREAM", 80, frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])),
        ("tiny DATA", 80, frame(DATA, 0, 1, b"x")),
        ("short DATA", 160, frame(DATA, 0, 1, &[b'x'; 144])),
        ("padded DATA", 80, frame(DATA, PADDED, 1, &padded)),
        ("unknown", 80, frame(UNKNOWN, 0, 0, &[])),
    ]
}

#[tokio::test(start_paused = true)]
async fn flood_of_control_frames_ends_in_goaway() {
    for transport in TRANSPORTS {
        for (name, frames, flood) in floods() {
            let mut peer = connect_http2(transport).await;
            peer.send(&frame(HEADERS, END_HEADERS, 1, &post("/echo")))
                .await;
            peer.flood(&flood.repeat(frames)).await;
            assert!(peer.is_open().await, "{name} {transport:?}");
            let start = clock::now();
            peer.flood(&flood.repeat(frames.div_ceil(2))).await;
            let goaway = peer.goaway().await;
            // The last stream, and ENHANCE_YOUR_CALM.
            let expected = vec![0, 0, 0, 1, 0, 0, 0, 0xb];
            assert_eq!(goaway, Some(expected), "{name} {transport:?}");
            let closed = Closed::Flooded { evicted: false };
            assert_eq!(peer.server.await.unwrap(), closed);
            assert_eq!(clock::now().since(start).as_secs(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn steady_control_frames_are_limited() {
    for (frames, stays_open) in [(490, true), (520, false)] {
        let mut peer = connect_http2(Transport::Plain).await;
        peer.send(&frame(HEADERS, END_HEADERS, 1, &post("/echo")))
            .await;
        assert!(peer.is_open().await);
        let ping = frame(PING, 0, 0, &[0; 8]).repeat(frames);
        for _ in 0..60 {
            advance(Duration::from_secs(1)).await;
            peer.flood(&ping).await;
            if !peer.is_open().await {
                break;
            }
        }
        assert_eq!(peer.is_open().await, stays_open, "{frames}");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_connection_may_send_one_burst() {
    let mut peer = connect_http2(Transport::Plain).await;
    peer.send(&frame(HEADERS, END_HEADERS, 1, &post("/echo")))
        .await;
    assert!(peer.is_open().await);
    advance(Duration::from_secs(60)).await;
    let ping = frame(PING, 0, 0, &[0; 8]);
    peer.flood(&ping.repeat(990)).await;
    assert!(peer.is_open().await);
    peer.flood(&ping.repeat(30)).await;
    assert!(!peer.is_open().await);
}

#[tokio::test(start_paused = true)]
async fn requests_allow_an_empty_end_and_a_control_frame() {
    let mut peer = connect_http2(Transport::Plain).await;
    for request in 0..5_000 {
        let stream = 2 * request + 1;
        let whole = [
            frame(HEADERS, END_HEADERS, stream, &post("/echo")),
            frame(DATA, 0, stream, &[b'x'; 256]),
            frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0]),
            frame(DATA, END_STREAM, stream, &[]),
        ];
        peer.send(&whole.concat()).await;
        peer.receive_kind(HEADERS).await;
    }
    assert!(peer.is_open().await);
}

/// As of a proxy whose requests time out while the server stalls.
#[tokio::test(start_paused = true)]
async fn all_requests_in_progress_may_be_canceled_repeatedly() {
    let mut peer = connect_http2(Transport::Plain).await;
    for round in 0..20 {
        let streams = (0..256).map(|n| 2 * (256 * round + n) + 1);
        for stream in streams.clone() {
            let end = frame(DATA, END_STREAM, stream, b"{}");
            let head = frame(HEADERS, END_HEADERS, stream, &post("/slow"));
            peer.send(&[head, end].concat()).await;
        }
        sleep(Duration::from_millis(100)).await;
        for stream in streams {
            peer.send(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]))
                .await;
        }
        assert!(peer.is_open().await, "{round}");
    }
}

/// A peer that updates both windows for every 4 KiB.
#[tokio::test(start_paused = true)]
async fn large_response_allows_window_updates() {
    let mut peer = connect_http2(Transport::Plain).await;
    let get = [
        0x82, 0x86, 0x41, 1, b'a', 0x04, 6, b'/', b'l', b'a', b'r', b'g', b'e',
    ];
    for request in 0..4 {
        let stream = 2 * request + 1;
        let flags = END_HEADERS | END_STREAM;
        peer.send(&frame(HEADERS, flags, stream, &get)).await;
        let mut received = 0;
        let mut updated = 0;
        while received < 1 << 20 {
            let (_, _, payload) = peer.receive_kind(DATA).await;
            received += payload.len();
            while updated + 4096 <= received {
                updated += 4096;
                for stream in [0, stream] {
                    peer.send(&frame(WINDOW_UPDATE, 0, stream, &[0, 0, 16, 0]))
                        .await;
                }
            }
        }
    }
    assert!(peer.is_open().await);
}

#[tokio::test(start_paused = true)]
async fn flood_during_a_drain_gets_no_second_goaway() {
    let priority = frame(PRIORITY, 0, 7, &[0, 0, 0, 0, 1]).repeat(150);
    // Requests after a GOAWAY are ignored.
    let requests = (1..150).map(|n| frame(HEADERS, END_HEADERS, 2 * n + 1, &post("/echo")));
    for flood in [priority, requests.flatten().collect()] {
        let mut peer = connect_http2(Transport::Plain).await;
        peer.send(&frame(HEADERS, END_HEADERS, 1, &post("/echo")))
            .await;
        assert!(peer.is_open().await);
        peer.drain.send_replace(true);
        let (_, _, goaway) = peer.receive_kind(GOAWAY).await;
        assert_eq!(goaway[4..], [0; 4], "NO_ERROR");
        peer.flood(&flood).await;
        assert_eq!(peer.goaway().await, None);
        let closed = Closed::Flooded { evicted: false };
        assert_eq!(peer.server.await.unwrap(), closed);
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_end_by_the_server_holds_the_connection() {
    let mut peer = connect_http2(Transport::Plain).await;
    let start = clock::now();
    peer.send(&frame(DATA, 0, 0, b"invalid")).await;
    assert!(peer.goaway().await.is_some());
    assert_eq!(peer.server.await.unwrap(), Closed::Done);
    assert_eq!(clock::now().since(start).as_secs(), 1);

    let mut peer = connect_http2(Transport::Plain).await;
    peer.send(&frame(HEADERS, END_HEADERS, 1, &post("/slow")))
        .await;
    assert!(peer.is_open().await);
    let start = clock::now();
    drop(peer.stream);
    assert_eq!(peer.server.await.unwrap(), Closed::Done);
    assert_eq!(clock::now(), start);
}

#[tokio::test]
async fn closed_floods_are_evicted_first() {
    for transport in TRANSPORTS {
        let served = eviction::serve(transport, 4, Slow::default().router()).await;
        let mut idle = Vec::new();
        for _ in 0..2 {
            let mut stream = transport.dial(served.address).await;
            stream.write_all(REQUEST).await.unwrap();
            eviction::read_response(&mut stream, "quick").await;
            idle.push(stream);
        }
        let mut flood = transport.dial(served.address).await;
        let ping = frame(PING, 0, 0, &[0; 8]).repeat(120);
        let settings = frame(SETTINGS, 0, 0, &[]);
        flood
            .write_all(&[PREFACE, &settings, &ping].concat())
            .await
            .unwrap();
        // Until the end of the server's frames.
        while matches!(flood.read(&mut [0; 1024]).await, Ok(1..)) {}
        let mut newcomer = transport.dial(served.address).await;
        newcomer.write_all(REQUEST).await.unwrap();
        eviction::read_response(&mut newcomer, "quick").await;
        for stream in &mut idle {
            stream.write_all(REQUEST).await.unwrap();
            eviction::read_response(stream, "quick").await;
        }
        assert_eq!(served.metrics.evicted(), 1);
    }
}

/// A peer that does not read: a frame of the server is partly written.
#[tokio::test(start_paused = true)]
async fn flood_within_an_unread_response_gets_no_goaway() {
    let mut peer = connect_http2(Transport::Plain).await;
    peer.send(&frame(WINDOW_UPDATE, 0, 0, &[0, 0xff, 0, 0]))
        .await;
    let window = [0, 4, 0, 0xff, 0, 0];
    peer.send(&frame(SETTINGS, 0, 0, &window)).await;
    let get = [
        0x82, 0x86, 0x41, 1, b'a', 0x04, 6, b'/', b'l', b'a', b'r', b'g', b'e',
    ];
    peer.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &get))
        .await;
    sleep(Duration::from_secs(1)).await;
    peer.flood(&frame(PRIORITY, 0, 7, &[0, 0, 0, 0, 1]).repeat(4_000))
        .await;
    assert_eq!(peer.goaway().await, None);
    let closed = Closed::Flooded { evicted: false };
    assert_eq!(peer.server.await.unwrap(), closed);
}
