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

/// Frames that cost the server time and ask for nothing, on a connection whose stream 1 is open.
fn floods() -> Vec<(&'static str, Vec<u8>)> {
    // A byte between the length of the padding and the padding.
    let padded = [&[254, b'x'][..], &[0; 254]].concat();
    vec![
        ("SETTINGS", frame(SETTINGS, 0, 0, &[])),
        ("PING", frame(PING, 0, 0, &[0; 8])),
        ("PING with ACK", frame(PING, 1, 0, &[0; 8])),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("PRIORITY", frame(PRIORITY, 0, 7, &[0, 0, 0, 0, 1])),
        ("tiny DATA", frame(DATA, 0, 1, b"x")),
        ("padded DATA", frame(DATA, PADDED, 1, &padded)),
        ("unknown", frame(UNKNOWN, 0, 0, &[])),
    ]
}

#[tokio::test(start_paused = true)]
async fn flood_of_control_frames_ends_in_goaway() {
    for transport in TRANSPORTS {
        for (name, flood) in floods() {
            let mut peer = connect_http2(transport).await;
            peer.send(&frame(HEADERS, END_HEADERS, 1, &post("/echo")))
                .await;
            peer.flood(&flood.repeat(590)).await;
            assert!(peer.is_open().await, "{name} {transport:?}");
            let start = clock::now();
            // Responses to PING and SETTINGS allow some more.
            peer.flood(&flood.repeat(400)).await;
            let goaway = peer.goaway().await;
            // The last stream, and ENHANCE_YOUR_CALM.
            let expected = vec![0, 0, 0, 1, 0, 0, 0, 0xb];
            assert_eq!(goaway, Some(expected), "{name} {transport:?}");
            assert_eq!(peer.server.await.unwrap(), Closed::Flooded);
            assert_eq!(clock::now().since(start).as_secs(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn steady_control_frames_are_limited() {
    for (frames, stays_open) in [(98, true), (170, false)] {
        let mut peer = connect_http2(Transport::Plain).await;
        peer.send(&frame(HEADERS, END_HEADERS, 1, &post("/echo")))
            .await;
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
async fn requests_and_their_data_allow_control_frames() {
    let mut peer = connect_http2(Transport::Plain).await;
    for request in 0..5_000 {
        let stream = 2 * request + 1;
        let update = |stream| frame(WINDOW_UPDATE, 0, stream, &[0, 0, 0, 100]);
        let whole = [
            frame(HEADERS, END_HEADERS, stream, &post("/echo")),
            frame(DATA, 0, stream, &[b'x'; 100]),
            update(stream),
            update(0),
            frame(DATA, END_STREAM, stream, &[]),
        ];
        peer.send(&whole.concat()).await;
        peer.receive_kind(HEADERS).await;
    }
    assert!(peer.is_open().await);
}

#[tokio::test(start_paused = true)]
async fn canceled_requests_allow_no_control_frames() {
    let mut peer = connect_http2(Transport::Plain).await;
    for request in 0..700 {
        let stream = 2 * request + 1;
        let post = frame(HEADERS, END_HEADERS, stream, &post("/slow"));
        let reset = frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
        peer.flood(&[post, reset].concat()).await;
        if request == 550 {
            assert!(peer.is_open().await);
        }
    }
    assert!(!peer.is_open().await);
}

/// A peer that updates both windows for every kilobyte.
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
        while received < 1 << 20 {
            let (_, _, payload) = peer.receive_kind(DATA).await;
            received += payload.len();
            for _ in 0..payload.len() / 1024 {
                for stream in [0, stream] {
                    peer.send(&frame(WINDOW_UPDATE, 0, stream, &[0, 0, 4, 0]))
                        .await;
                }
            }
        }
    }
    assert!(peer.is_open().await);
}

#[tokio::test(start_paused = true)]
async fn flood_during_a_drain_gets_no_second_goaway() {
    let mut peer = connect_http2(Transport::Plain).await;
    peer.send(&frame(HEADERS, END_HEADERS, 1, &post("/echo")))
        .await;
    assert!(peer.is_open().await);
    peer.drain.send_replace(true);
    let (_, _, goaway) = peer.receive_kind(GOAWAY).await;
    assert_eq!(goaway[4..], [0; 4], "NO_ERROR");
    peer.flood(&frame(PRIORITY, 0, 7, &[0, 0, 0, 0, 1]).repeat(700))
        .await;
    assert_eq!(peer.goaway().await, None);
    assert_eq!(peer.server.await.unwrap(), Closed::Flooded);
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
    assert_eq!(peer.server.await.unwrap(), Closed::Flooded);
}
