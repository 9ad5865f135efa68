use std::{fs, path::PathBuf};

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::sleep,
};

use super::*;
use crate::lease::ControlPlaneClient;

/// Answers one request on a real socket and returns the request.
async fn answer_once(listener: TcpListener, answer: String) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"{}") {
        let mut chunk = [0; 1024];
        let length = stream.read(&mut chunk).await.unwrap();
        assert!(length > 0, "{request:?}");
        request.extend_from_slice(&chunk[..length]);
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    String::from_utf8(request).unwrap()
}

async fn exchange(answer: &str) -> (String, Result<Response<Bytes>, TransportError>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/v1/capacity", listener.local_addr().unwrap());
    let server = tokio::spawn(answer_once(listener, answer.to_owned()));
    let mut transport = HttpTransport::new(Certificates::default(), false).unwrap();
    let request = Request::post(uri).body(Bytes::from_static(b"{}")).unwrap();
    let response = transport.call(request).await;
    (server.await.unwrap(), response)
}

#[tokio::test]
async fn request_and_response_are_carried_unchanged() {
    let (request, response) =
        exchange("HTTP/1.1 200 OK\r\ncontent-length: 3\r\nx-a: b\r\n\r\nabc").await;
    assert!(request.starts_with("POST /v1/capacity HTTP/1.1\r\n"));
    let response = response.unwrap();
    assert_eq!(response.headers()["x-a"], "b");
    assert_eq!(response.body(), "abc");
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let (_, response) = exchange(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
    )
    .await;
    assert_eq!(response.unwrap().status(), 307);
}

#[tokio::test]
async fn next_request_uses_another_connection_after_connection_close() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/v1/capacity", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        // The balancer itself closes nothing.
        let mut open = vec![listener.accept().await.unwrap().0];
        for option in ["keep-alive", "close", "keep-alive"] {
            let stream = open.last_mut().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"{}") {
                assert!(stream.read_buf(&mut request).await.unwrap() > 0);
            }
            let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection:";
            let answer = format!("{head} {option}\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
            if option == "close" {
                open.push(listener.accept().await.unwrap().0);
            }
        }
        open
    });
    let mut transport = HttpTransport::new(Certificates::default(), false).unwrap();
    for _ in 0..3 {
        let request = Request::post(&uri).body(Bytes::from_static(b"{}")).unwrap();
        assert_eq!(transport.call(request).await.unwrap().status(), 503);
    }
    assert_eq!(server.await.unwrap().len(), 2);
}

#[tokio::test]
async fn oversized_response_is_an_error() {
    let long = "x".repeat(MAX_BODY + 1);
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{long}",
        long.len()
    );
    let (_, response) = exchange(&answer).await;
    assert!(response.is_err());
}

#[tokio::test]
async fn server_without_tls_at_an_https_address_gets_a_hint() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("https://{}", listener.local_addr().unwrap());
    let plain = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
        let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
    });
    let certificates = Certificates {
        authority: Some(Pem::Text(certificate().into())),
        ..Certificates::default()
    };
    let client = ControlPlaneClient {
        transport: HttpTransport::new(certificates, true).unwrap(),
        servers: [server.parse().unwrap()].into(),
        credentials: None,
    };
    let rules = client.fetch_rules(0, Some("orders"), None, Duration::from_secs(60));
    let reason = rules.await.result.unwrap_err().reason;
    let hint = "; is the server's address http:// and not https://?";
    assert!(reason.ends_with(hint), "{reason}");
    plain.await.unwrap();
}

/// A client that trusts the certificate authority in a file.
struct Watched {
    _home: TempDir,
    file: PathBuf,
    client: Arc<ReloadingClient>,
}

impl Watched {
    fn new() -> Self {
        let home = TempDir::new().unwrap();
        let file = home.path().join("ca.pem");
        fs::write(&file, certificate()).unwrap();
        let certificates = Certificates {
            authority: Some(Pem::Files(vec![file.clone()])),
            ..Certificates::default()
        };
        Self {
            _home: home,
            file,
            client: Arc::new(ReloadingClient::new(certificates, true).unwrap()),
        }
    }

    /// Whether a request sent now uses the file's certificate.
    async fn is_current(&self) -> bool {
        self.client.current().await;
        let texts = self.client.certificates.read().unwrap();
        self.client.state().fingerprint == texts.fingerprint()
    }
}

fn certificate() -> String {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["doorman.test".to_owned()]);
    certificate.unwrap().self_signed(&key).unwrap().pem()
}

#[tokio::test(start_paused = true)]
async fn certificate_files_are_reloaded_at_most_once_a_second() {
    let watched = Watched::new();
    assert!(watched.is_current().await);
    fs::write(&watched.file, certificate()).unwrap();
    assert!(!watched.is_current().await, "read a moment ago");
    sleep(RELOAD_INTERVAL).await;
    assert!(watched.is_current().await);
    fs::write(&watched.file, "no certificate").unwrap();
    sleep(RELOAD_INTERVAL).await;
    assert!(!watched.is_current().await, "the last valid one stays");
    fs::write(&watched.file, certificate()).unwrap();
    sleep(RELOAD_INTERVAL).await;
    assert!(watched.is_current().await);
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn hanging_certificate_file_delays_only_one_request() {
    use futures_util::FutureExt as _;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let watched = Watched::new();
    // Opening a pipe for reading waits for a writer.
    fs::remove_file(&watched.file).unwrap();
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, &watched.file, FileType::Fifo, mode, 0).unwrap();

    let mut first = Box::pin(watched.client.current());
    assert!(first.as_mut().now_or_never().is_none());
    for _ in 0..1_000 {
        let client = watched.client.current().now_or_never();
        assert!(client.is_some(), "one reload is running");
    }
    tokio::time::advance(RELOAD_WAIT).await;
    assert!(first.now_or_never().is_some());
    tokio::time::advance(60 * RELOAD_INTERVAL).await;
    assert!(watched.client.current().now_or_never().is_some());

    // The reload ends, and no request waits for it.
    fs::write(&watched.file, certificate()).unwrap();
    while matches!(watched.client.state().reload, Reload::Running { .. }) {
        tokio::task::yield_now().await;
    }
    fs::remove_file(&watched.file).unwrap();
    fs::write(&watched.file, certificate()).unwrap();
    sleep(RELOAD_INTERVAL).await;
    assert!(watched.is_current().await);
}
