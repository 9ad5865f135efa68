//! Memory that is given back to the system.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
};

use crate::support::{ControlPlane, exclusive_load, until};

const HOLDERS: usize = 100_000;

/// Connections that the requests are sent on.
const CONNECTIONS: usize = 50;

const MIB: usize = 1 << 20;

const DOCUMENT: &str = "
resources:
  - identifier_glob: '*'
    capacity: 1000000
    algorithm: {kind: FAIR_SHARE, lease_length: 300, refresh_interval: 60}
";

/// Sends a request for each of these holders over one connection, and reads the responses.
fn send(at: SocketAddr, path: &str, bodies: impl ExactSizeIterator<Item = String> + Send) {
    let mut stream = TcpStream::connect(at).expect("it listens");
    let mut writer = stream.try_clone().expect("a socket");
    let count = bodies.len();
    thread::scope(|scope| {
        scope.spawn(move || {
            for body in bodies {
                let len = body.len();
                let request = format!(
                    "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: \
                     application/json\r\ncontent-length: {len}\r\n\r\n{body}"
                );
                writer.write_all(request.as_bytes()).expect("it reads");
            }
        });
        let (mut buffer, mut unread) = ([0; 16 * 1024], Vec::new());
        let mut responses = 0;
        while responses < count {
            let len = stream.read(&mut buffer).expect("responses");
            assert!(len > 0, "closed after {responses} responses");
            unread.extend_from_slice(&buffer[..len]);
            let success = b"HTTP/1.1 200";
            responses += unread
                .windows(success.len())
                .filter(|it| it == success)
                .count();
            // A status line may be cut.
            let counted = unread.len().saturating_sub(success.len() - 1);
            unread.drain(..counted);
        }
    });
}

/// Sends a request for each holder, on some connections at a time.
fn send_all(at: SocketAddr, path: &str, body: impl Fn(usize) -> String + Copy + Send) {
    thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            let holders = HOLDERS / CONNECTIONS;
            let holders = connection * holders..(connection + 1) * holders;
            scope.spawn(move || send(at, path, holders.map(body)));
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_falls_back_when_leases_have_ended() {
    let _load = exclusive_load().await;
    let measure = tokio::task::spawn_blocking(|| {
        let server = ControlPlane::start(DOCUMENT);
        let at = server.address().trim_start_matches("http://");
        let at: SocketAddr = at.parse().expect("an address and a port");
        let leases = || server.get("/v1/status")["leases"].clone();
        assert_eq!(leases(), 0);
        let before = server.memory();
        // Each holds a resource that all share, and one of its own.
        send_all(at, "/v1/capacity", |holder| {
            let resources = [("db", String::new()), ("tenant/", holder.to_string())];
            let resources = resources
                .map(|(name, own)| format!(r#"{{"resource_id":"{name}{own}","wants":1}}"#));
            let resources = resources.join(",");
            format!(r#"{{"client_id":"process-{holder}","resources":[{resources}]}}"#)
        });
        assert_eq!(leases(), 2 * HOLDERS);
        let full = server.memory();
        send_all(at, "/v1/capacity/release", |holder| {
            format!(r#"{{"client_id":"process-{holder}"}}"#)
        });
        assert_eq!(leases(), 0);
        let limit = before + (full - before) / 3;
        until("most memory is given back", || server.memory() <= limit);
        println!(
            "resident memory: {} MiB, {} MiB with two leases for each of {HOLDERS} holders, {} MiB after",
            before / MIB,
            full / MIB,
            server.memory() / MIB
        );
    });
    measure.await.expect("no panic");
}
