//! One connection, from its first byte to its end: at rest, and in the hands of hyper, in turns.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::sleep,
};

use super::{
    activity::Activity,
    awake,
    keeper::{Ended, Keeper, Verdict},
    resting::{self, Speaks},
    serving::Serving,
    watched::Watched,
};

/// Serves a connection to its end: the peer's, the end of our patience, the end of what is under way when `draining` turns true, or
/// as soon as it is asked to give way while it waits for its peer.
pub(super) async fn serve(
    serving: Arc<Serving>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    activity: Arc<Activity>,
    mut draining: watch::Receiver<bool>,
) -> Ended {
    let mut stream = Watched::new(stream, Arc::clone(&activity));
    let drain = pin!(draining.wait_for(|draining| *draining));
    let timer = pin!(sleep(Duration::ZERO));
    let mut keeper = Keeper::new(activity, timer, drain);
    let mut known = None;
    loop {
        // What serves is on the heap only while it does: a task at rest is small.
        let served = match rest(&mut stream, known, &mut keeper).await {
            Ok(Speaks::Http1) => Box::pin(awake::http1(&serving, stream, &mut keeper)).await,
            Ok(Speaks::Http2) => Err(Box::pin(awake::http2(&serving, stream, &mut keeper)).await),
            Err(ended) => Err(ended),
        };
        stream = match served {
            Ok(stream) => stream,
            Err(ended) => return ended,
        };
        known = Some(Speaks::Http1);
    }
}

/// Waits for something to serve.
async fn rest<S, D>(
    stream: &mut Watched<S>,
    known: Option<Speaks>,
    keeper: &mut Keeper<'_, D>,
) -> Result<Speaks, Ended>
where
    S: AsyncRead + Unpin,
    D: Future,
{
    poll_fn(|cx| {
        match resting::poll(stream, known, cx) {
            Poll::Ready(Ok(Some(speaks))) => return Poll::Ready(Ok(speaks)),
            Poll::Ready(Ok(None)) => return Poll::Ready(Err(Ended::Over)),
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "a connection broke off");
                return Poll::Ready(Err(Ended::Over));
            }
            Poll::Pending => {}
        }
        keeper.poll(cx, None).map(|verdict| match verdict {
            Verdict::End(ended) => Err(ended),
            Verdict::Drain | Verdict::Rest => Err(Ended::Over),
        })
    })
    .await
}
