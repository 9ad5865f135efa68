//! How requests travel in production: over reqwest.

mod certificates;
mod connections;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use tower_service::Service;

pub(crate) use self::certificates::{Certificates, Pem};
use self::connections::Connections;
use super::TransportError;

/// No answer is longer than this: a thousand leases are a third of a megabyte.
const LONGEST_ANSWER: usize = 16 * 1024 * 1024;
/// Carries requests to the control plane over HTTP: pooled connections, TLS with rustls, no redirects (the lease client follows a
/// master's name itself, and only to configured servers), no proxies from the environment, no retries (every transmission has its own
/// number).
#[derive(Clone)]
pub struct HttpTransport {
    connections: Arc<Connections>,
}

impl HttpTransport {
    /// `encrypted`: whether any server is asked by TLS.
    pub(crate) fn new(certificates: Certificates, encrypted: bool) -> Result<Self, TransportError> {
        Ok(Self {
            connections: Arc::new(Connections::new(certificates, encrypted)?),
        })
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport").finish_non_exhaustive()
    }
}

impl Service<Request<Bytes>> for HttpTransport {
    type Response = Response<Bytes>;
    type Error = TransportError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, TransportError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let connections = Arc::clone(&self.connections);
        Box::pin(async move {
            let client = connections.client().await;
            // Where it went is known to whoever sent it, and need not stand twice in a log.
            let sent = client.execute(request.try_into()?).await;
            let mut answer = sent.map_err(reqwest::Error::without_url)?;
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = answer.status();
            *response.headers_mut() = std::mem::take(answer.headers_mut());
            let mut body = BytesMut::new();
            while let Some(chunk) = answer.chunk().await? {
                if body.len().saturating_add(chunk.len()) > LONGEST_ANSWER {
                    return Err("the answer is too long".into());
                }
                body.extend_from_slice(&chunk);
            }
            *response.body_mut() = body.freeze();
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// Answers one request on a real socket; what it was.
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
    async fn carries_a_request_and_its_answer() {
        let (request, response) =
            exchange("HTTP/1.1 200 OK\r\ncontent-length: 3\r\nx-a: b\r\n\r\nabc").await;
        assert!(request.starts_with("POST /v1/capacity HTTP/1.1\r\n"));
        let response = response.unwrap();
        assert_eq!(response.headers()["x-a"], "b");
        assert_eq!(response.body(), "abc");
    }

    #[tokio::test]
    async fn follows_no_redirect() {
        let (_, response) = exchange(
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        )
        .await;
        assert_eq!(response.unwrap().status(), 307);
    }

    #[tokio::test]
    async fn reads_no_endless_answer() {
        let long = "x".repeat(LONGEST_ANSWER + 1);
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{long}",
            long.len()
        );
        let (_, response) = exchange(&answer).await;
        assert!(response.is_err());
    }
}
