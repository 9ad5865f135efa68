//! The layer on a gRPC service: tonic client and server over a real connection.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf as _, BufMut as _, Bytes};
use http::uri::PathAndQuery;
use tonic::{
    Code, Request, Response, Status,
    body::Body,
    client,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    server::{self, NamedService},
    transport::{Channel, Server, server::TcpIncoming},
};
use tower::Service;
use tower_doorman::{Doorman, Fallback, Limit, LimitLayer};

/// Messages are plain bytes.
#[derive(Clone, Copy, Default)]
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(message);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// Returns each message.
#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async { Ok(server::Grpc::new(BytesCodec).unary(Self, request).await) })
    }
}

impl server::UnaryService<Bytes> for Echo {
    type Response = Bytes;
    type Future = Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        ready(Ok(Response::new(request.into_inner())))
    }
}

/// Starts the service behind a layer, and connects to it.
async fn serve(layer: LimitLayer) -> Channel {
    let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let address = incoming.local_addr().expect("it listens");
    let server = Server::builder().layer(layer).add_service(Echo);
    tokio::spawn(server.serve_with_incoming(incoming));
    let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect().await.expect("it listens")
}

async fn call(channel: &Channel) -> Result<Bytes, Status> {
    let mut client = client::Grpc::new(channel.clone());
    client.ready().await.expect("it is connected");
    let path = PathAndQuery::from_static("/test.Echo/Echo");
    let message = Request::new(Bytes::from_static(b"hello"));
    let response = client.unary(message, path, BytesCodec).await?;
    Ok(response.into_inner())
}

/// Milliseconds until a retry, from the status.
fn pushback(status: &Status) -> u32 {
    let value = status.metadata().get("grpc-retry-pushback-ms");
    let value = value.expect("the metadata").to_str().expect("a number");
    value.parse().expect("a number")
}

#[tokio::test]
async fn call_over_the_limit_gets_resource_exhausted_and_pushback() {
    // One call in a hundred seconds, so that the second fails on any machine.
    let doorman = Doorman::fixed([("api", 0.01)]);
    let channel = serve(doorman.layer([Limit::rate("api")]).expect("valid limits")).await;
    assert_eq!(call(&channel).await.expect("the first"), "hello");
    let rejected = call(&channel).await.expect_err("the second");
    assert_eq!(rejected.code(), Code::ResourceExhausted, "{rejected:?}");
    assert!(rejected.message().contains("api"), "{rejected:?}");
    let wait = pushback(&rejected);
    assert!((1..=100_000).contains(&wait), "{wait}");
}

#[tokio::test]
async fn call_without_lease_gets_unavailable() {
    // Nothing listens there.
    let doorman = Doorman::builder("http://127.0.0.1:1")
        .spawn()
        .expect("a handle");
    let limit = Limit::rate("api").fallback(Fallback::Pessimistic);
    let channel = serve(doorman.layer([limit]).expect("valid limits")).await;
    let rejected = call(&channel).await.expect_err("there is no lease");
    assert_eq!(rejected.code(), Code::Unavailable, "{rejected:?}");
    assert!(pushback(&rejected) > 0, "0 would mean immediately");
}
