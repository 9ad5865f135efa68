//! Peers that would keep a server from its end.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    thread,
    time::Duration,
};

use crate::support::{Authority, ControlPlane, DOCUMENT, TIMEOUT, now};

/// Thirty times as many show the same.
const IDLE: usize = 300;

const ASKS: &str = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n";

fn connect(server: &ControlPlane) -> TcpStream {
    let address = server.address().trim_start_matches("http://");
    let stream = TcpStream::connect(address).expect("it listens");
    let patience = Some(TIMEOUT);
    stream.set_read_timeout(patience).expect("not zero");
    stream.set_write_timeout(patience).expect("not zero");
    stream
}

#[test]
fn nobody_keeps_a_control_plane_from_its_end_for_ten_seconds_nor_the_others_from_their_answers() {
    let server = ControlPlane::start(DOCUMENT);

    let idle: Vec<_> = (0..IDLE).map(|_| connect(&server)).collect();
    // Asks for more than the buffers on the way hold, and reads nothing of it.
    let mut never_reads = connect(&server);
    never_reads.set_nonblocking(true).expect("a socket");
    while never_reads
        .write_all(&ASKS.repeat(100).into_bytes())
        .is_ok()
    {}
    // HTTP/2 that says nothing after its preface and its settings.
    let mut mute = connect(&server);
    mute.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .expect("it reads");
    let head = "POST /v1/capacity HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n";
    let begins = |length: usize| {
        let mut stream = connect(&server);
        let head = format!("{head}content-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut goes_on = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
        stream.read_exact(&mut goes_on).expect("it answers");
        stream
    };
    // A body that never ends, a byte at a time.
    let mut endless = begins(100_000);
    let body = r#"{"client_id": "c", "resources": [{"resource_id": "api", "wants": 7}]}"#;
    let mut slow = begins(body.len());

    let told = now();
    server.request_stop();
    let drips = thread::spawn(move || {
        while endless.write_all(b" ").is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
    });
    let (first, rest) = body.split_at(10);
    slow.write_all(first.as_bytes()).expect("it reads");
    thread::sleep(Duration::from_secs(3));
    slow.write_all(rest.as_bytes()).expect("it reads");
    let mut answer = String::new();
    slow.read_to_string(&mut answer).expect("it answers");
    assert!(answer.ends_with("}]}"), "{answer}");
    assert_eq!(server.wait().code(), Some(0));
    let took = now() - told;
    assert!(took < Duration::from_secs(10), "{took:?}");
    drips.join().expect("it was cut off");
    drop((idle, never_reads, mute));
}

#[test]
fn a_file_system_that_does_not_answer_keeps_no_control_plane_from_its_end() {
    let server = ControlPlane::start_encrypted(DOCUMENT, &Authority::new());
    // Reading blocks until somebody writes.
    let [pipe, certificate] = ["pipe", "tls.crt"].map(|it| server.home().join(it));
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("it runs").success());
    fs::rename(pipe, &certificate).expect("on one disk");
    // Blocks until the server reads.
    let never_writes = fs::File::options().write(true).open(certificate);

    let told = now();
    assert_eq!(server.terminate().code(), Some(0));
    let took = now() - told;
    assert!(took < Duration::from_secs(10), "{took:?}");
    drop(never_writes.expect("it is there"));
}
