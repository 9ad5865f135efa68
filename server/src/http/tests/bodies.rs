//! Limits of request bodies. `lease::request` tests their content.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use doorman_openapi::MAX_BODY_BYTES;
use futures_util::{StreamExt, stream};

use super::*;

const CALLS: [(&str, &str); 4] = [
    ("/v1/capacity", r#"{"client_id":"c","resources":[]}"#),
    ("/v1/capacity/release", r#"{"client_id":"c"}"#),
    ("/v1/server-capacity", r#"{"node_id":"n","resources":[]}"#),
    ("/v1/server-capacity/release", r#"{"node_id":"n"}"#),
];

/// A chunked body without a declared length.
fn pieces(pieces: Vec<Bytes>) -> Body {
    Body::from_stream(stream::iter(pieces).map(Ok::<_, std::convert::Infallible>))
}

#[tokio::test]
async fn invalid_bodies_are_problems_on_every_call() {
    let router = router();
    for (path, right) in CALLS {
        assert_eq!(post(&router, path, right).await.status, 200, "{path}");
        let problem = post(&router, path, "{").await.problem(400);
        assert_eq!(problem.kind, "/problems/malformed-request");
        let problem = post(&router, path, "[]").await.problem(422);
        assert_eq!(problem.kind, "/problems/invalid-request");
        assert_eq!(problem.errors[0].pointer, "");
        let problem = post(&router, &format!("{path}?dry_run=1"), right)
            .await
            .problem(400);
        assert!(problem.detail.contains("`dry_run`"), "{}", problem.detail);
    }
}

#[tokio::test]
async fn other_media_types_are_unsupported() {
    let router = router();
    let request = || Request::post("/v1/capacity");
    let body = || Body::from(CALLS[0].1);
    for request in [
        request(),
        request().header("content-type", "text/plain"),
        request().header("content-type", "application/x-www-form-urlencoded"),
        request().header("content-type", "application/vnd.doorman+json"),
        request().header("content-type", "application/json; charset=utf-16"),
        request().header("content-type", &b"application/json\xff"[..]),
        request()
            .header("content-type", "application/json")
            .header("content-encoding", "gzip"),
    ] {
        let problem = send(&router, request.body(body()).unwrap())
            .await
            .problem(415);
        assert_eq!(problem.kind, "/problems/unsupported-media-type");
    }
    let request = request()
        .header("content-type", "application/json; charset=utf-8")
        .header("content-encoding", "identity");
    assert_eq!(
        send(&router, request.body(body()).unwrap()).await.status,
        200
    );
}

#[tokio::test]
async fn bodies_over_four_mebibytes_are_rejected() {
    let router = router();
    let (path, right) = CALLS[0];
    let padded = |len: usize| format!("{right}{}", " ".repeat(len - right.len()));
    assert_eq!(
        post(&router, path, padded(MAX_BODY_BYTES)).await.status,
        200
    );

    let large = padded(MAX_BODY_BYTES + 1);
    let problem = post(&router, path, large.clone()).await.problem(413);
    assert_eq!(problem.kind, "/problems/payload-too-large");

    let in_pieces: Vec<_> = large
        .as_bytes()
        .chunks(10_000)
        .map(Bytes::copy_from_slice)
        .collect();
    post(&router, path, pieces(in_pieces.clone()))
        .await
        .problem(413);
    let (_, but_the_last) = in_pieces.split_last().unwrap();
    assert_eq!(
        post(&router, path, pieces(but_the_last.to_vec()))
            .await
            .status,
        200
    );

    // The declared length is wrong.
    let lying = Request::post(path)
        .header("content-type", "application/json")
        .header("content-length", "10");
    send(&router, lying.body(pieces(in_pieces)).unwrap())
        .await
        .problem(413);
}

#[tokio::test]
async fn oversized_body_with_expect_is_rejected_before_it_is_sent() {
    let request = Request::post("/v1/capacity")
        .header("content-type", "application/json")
        .header("expect", "100-continue")
        .header("content-length", (MAX_BODY_BYTES + 1).to_string());
    let never = Body::from_stream(stream::pending::<Result<Bytes, std::convert::Infallible>>());
    send(&router(), request.body(never).unwrap())
        .await
        .problem(413);
}

#[tokio::test]
async fn huge_declared_length_is_rejected_immediately() {
    let request = Request::post("/v1/capacity")
        .header("content-type", "application/json")
        .header("content-length", (1_u64 << 30).to_string());
    let never = Body::from_stream(stream::pending::<Result<Bytes, std::convert::Infallible>>());
    send(&router(), request.body(never).unwrap())
        .await
        .problem(413);
}

#[tokio::test(start_paused = true)]
async fn endless_body_is_rejected() {
    let piece = Bytes::from(vec![b' '; 1 << 20]);
    let endless = stream::repeat(piece).map(Ok::<_, std::convert::Infallible>);
    post(&router(), "/v1/capacity", Body::from_stream(endless))
        .await
        .problem(413);
}

#[tokio::test]
async fn other_tasks_run_while_a_large_body_is_read() {
    // The next chunk is always ready, as on a fast connection.
    let piece = Bytes::from(vec![b' '; 64 * 1024]);
    let endless = stream::repeat(piece).map(Ok::<_, std::convert::Infallible>);
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    let others = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Relaxed);
            tokio::task::yield_now().await;
        }
    });
    post(&router(), "/v1/capacity", Body::from_stream(endless))
        .await
        .problem(413);
    others.abort();
    // 4 MiB of body, then 16 MiB that are drained.
    let turns = turns.load(Relaxed);
    assert!(turns >= 40, "{turns}");
}

#[tokio::test(start_paused = true)]
async fn slow_body_times_out() {
    let start = clock::now();
    let slowly = stream::unfold((), async |()| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(" ")), ()))
    });
    let problem = post(&router(), "/v1/capacity", Body::from_stream(slowly))
        .await
        .problem(408);
    assert_eq!(problem.kind, "/problems/request-timeout");
    assert_eq!(clock::now().since(start).as_secs(), 10);
}

#[tokio::test]
async fn incomplete_body_is_malformed() {
    let broken = stream::iter([
        Ok(Bytes::from(r#"{"client_id":"#)),
        Err(std::io::Error::other("reset")),
    ]);
    let problem = post(&router(), "/v1/capacity", Body::from_stream(broken))
        .await
        .problem(400);
    assert!(problem.detail.contains("incomplete"), "{}", problem.detail);
}

#[tokio::test]
async fn partial_bodies_share_32_mebibytes() {
    let router = router();
    let (path, right) = CALLS[0];
    let in_pieces = || pieces(vec![Bytes::from(right), Bytes::from(" ")]);

    // Each lacks its last byte.
    let (came, mut coming) = tokio::sync::mpsc::unbounded_channel();
    let pending: Vec<_> = (0..32 * 1024 * 1024 / MAX_BODY_BYTES)
        .map(|_| {
            let (router, came) = (router.clone(), came.clone());
            let piece = Bytes::from(vec![b' '; MAX_BODY_BYTES - 1]);
            let waits = stream::once(async move {
                came.send(()).unwrap();
                std::future::pending().await
            });
            let piece = stream::iter([Ok::<_, std::convert::Infallible>(piece)]);
            let body = Body::from_stream(piece.chain(waits));
            tokio::spawn(async move { post(&router, path, body).await })
        })
        .collect();
    for _ in &pending {
        coming.recv().await.unwrap();
    }

    let rejected = post(&router, path, in_pieces()).await;
    let problem = rejected.problem(503);
    assert_eq!(problem.kind, "/problems/unavailable");
    assert!(problem.detail.contains("33554432"), "{}", problem.detail);
    assert_eq!(rejected.header("retry-after"), "1");
    // A body in one piece needs no buffer.
    assert_eq!(post(&router, path, right).await.status, 200);

    // An aborted request frees its buffer.
    for request in pending {
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
    }
    assert_eq!(post(&router, path, in_pieces()).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn chunk_is_dropped_before_waiting_for_the_next() {
    // A chunk is part of a buffer that may be much larger.
    struct Piece(tokio::sync::mpsc::UnboundedSender<()>);
    impl AsRef<[u8]> for Piece {
        fn as_ref(&self) -> &[u8] {
            b" "
        }
    }
    impl Drop for Piece {
        fn drop(&mut self) {
            let _unheard = self.0.send(());
        }
    }
    let (gone, mut pieces) = tokio::sync::mpsc::unbounded_channel();
    let body = stream::unfold(gone, async |gone| {
        let piece = Bytes::from_owner(Piece(gone.clone()));
        Some((Ok::<_, std::convert::Infallible>(piece), gone))
    });
    let pending = body.take(2).chain(stream::pending());
    let router = router();
    let request = post(&router, "/v1/capacity", Body::from_stream(pending));
    let both = async {
        pieces.recv().await.unwrap();
        pieces.recv().await.unwrap();
    };
    tokio::select! {
        reply = request => panic!("{reply:?}"),
        () = both => {}
    }
}
