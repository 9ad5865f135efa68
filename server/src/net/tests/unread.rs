//! Bodies that come before anybody reads them.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;

use super::*;

const KIB: usize = 1024;
const PIECE: usize = 16 * KIB;

#[tokio::test(start_paused = true)]
async fn over_http2_no_more_comes_of_a_body_that_nobody_reads_than_is_kept_for_each_connection() {
    for wire in WIRES {
        let waits = async |request: axum::extract::Request| {
            std::future::pending::<()>().await;
            drop(request);
        };
        let router = Router::new().route("/waits", post(waits));
        let peer = connect(wire, router).await;
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(peer.stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        let sent = Arc::new(AtomicUsize::new(0));
        // More than one request, so that no window of a stream is the limit.
        for _ in 0..4 {
            let counted = Arc::clone(&sent);
            let pieces = stream::repeat_with(move || {
                counted.fetch_add(PIECE, Relaxed);
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b' '; PIECE])))
            });
            let body = Body::new(StreamBody::new(pieces));
            let request = Request::post("http://a/waits").body(body).unwrap();
            tokio::spawn(sender.send_request(request));
        }
        sleep(Duration::from_secs(1)).await;
        // The peer keeps a piece of each that it has not sent yet.
        let sent = sent.load(Relaxed);
        let kept = 256 * KIB..=256 * KIB + 8 * PIECE;
        assert!(kept.contains(&sent), "{sent}");
    }
}
