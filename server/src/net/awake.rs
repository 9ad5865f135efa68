//! A connection in the hands of hyper.

use std::{future::poll_fn, pin::Pin, pin::pin, sync::Arc, task::Poll};

use futures_util::FutureExt;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    keeper::{Ended, Keeper, Verdict},
    serving::Serving,
    watched::Watched,
};

/// Serves HTTP/1 until the connection ends, or nobody has used it for a while. In the second case its stream comes back, with nothing
/// under way and nothing lost, unless a body was left unread: then the connection ends.
pub(super) async fn http1<S, D>(
    serving: &Arc<Serving>,
    stream: Watched<S>,
    keeper: &mut Keeper<'_, D>,
) -> Result<Watched<S>, Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    D: Future,
{
    let _awake = serving.wakes();
    let activity = Arc::clone(stream.activity());
    let service = serving.service(Arc::clone(&activity));
    let mut connection = serving
        .http1
        .serve_connection(TokioIo::new(stream), service);
    let mut it = Pin::new(&mut connection);
    let mut leaves = false;
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(served) = it.as_mut().poll(cx) {
                return Poll::Ready(Err(over(served)));
            }
            let rests_after = (!leaves).then(|| serving.rests_after());
            match keeper.poll(cx, rests_after) {
                // With the next answer its peer is told.
                Poll::Ready(Verdict::Drain) => {}
                // Who has begun to ask may finish.
                Poll::Ready(Verdict::Leave) if activity.head_has_begun() => {}
                Poll::Ready(Verdict::Leave) => it.as_mut().graceful_shutdown(),
                // The next bytes may be the rest of that body. Only hyper can tell, so the connection could never rest: it ends.
                Poll::Ready(Verdict::Rest) if activity.has_left_unread() => {
                    leaves = true;
                    it.as_mut().graceful_shutdown();
                }
                Poll::Ready(Verdict::Rest) => return Poll::Ready(Ok(())),
                Poll::Ready(Verdict::End(ended)) => return Poll::Ready(Err(ended)),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await?;

    // Between two requests hyper closes at once when it is told to, without another look at the socket. What it may have read of the next
    // request it gives back.
    it.graceful_shutdown();
    match connection.without_shutdown().now_or_never() {
        Some(Ok(parts)) => {
            let mut stream = parts.io.into_inner();
            stream.give_back(&parts.read_buf);
            Ok(stream)
        }
        Some(Err(error)) => Err(over(Err(error))),
        None => Err(Ended::Over),
    }
}

/// Serves HTTP/2 until the connection ends. When it is crowded, it ends when nobody uses it: it cannot be taken out of hyper's hands.
pub(super) async fn http2<S, D>(
    serving: &Arc<Serving>,
    stream: Watched<S>,
    keeper: &mut Keeper<'_, D>,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    D: Future,
{
    let _awake = serving.wakes();
    let activity = Arc::clone(stream.activity());
    let service = serving.service(Arc::clone(&activity));
    let mut connection = pin!(
        serving
            .http2
            .serve_connection(TokioIo::new(stream), service)
    );
    let mut leaves = false;
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(served) = connection.as_mut().poll(cx) {
                return Poll::Ready(over(served));
            }
            let rests_after = (!leaves && serving.is_crowded()).then(|| serving.rests_after());
            match keeper.poll(cx, rests_after) {
                // Its peer is told, and what it has asked before it has heard of that is answered.
                Poll::Ready(Verdict::Drain | Verdict::Rest) => {
                    leaves = true;
                    connection.as_mut().graceful_shutdown();
                }
                Poll::Ready(Verdict::Leave) if activity.has_nothing_under_way() => {
                    return Poll::Ready(Ended::Over);
                }
                Poll::Ready(Verdict::Leave) => {}
                Poll::Ready(Verdict::End(ended)) => return Poll::Ready(ended),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

fn over(served: hyper::Result<()>) -> Ended {
    if let Err(error) = served {
        tracing::debug!(error = %error, "a connection broke off");
    }
    Ended::Over
}
