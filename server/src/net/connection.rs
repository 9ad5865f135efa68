//! One connection, from its first byte to its end: opened, then at rest and in the hands of hyper, in turns.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::sleep,
};

use super::{
    activity::Activity,
    awake,
    handshake::Opened,
    keeper::{Ended, Keeper, Verdict},
    resting::{self, Speaks},
    serving::Serving,
    watched::Watched,
};

/// Serves a connection to its end, as soon as it is `open`: the peer's end, that of our patience, the answer to what is under way or
/// comes next when `draining` turns true, or as soon as it is asked to give way while it waits for its peer.
pub(super) async fn serve<S>(
    serving: Arc<Serving>,
    open: impl Future<Output = Option<Opened<S>>>,
    activity: Arc<Activity>,
    mut draining: watch::Receiver<bool>,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let drain = pin!(draining.wait_for(|draining| *draining));
    let timer = pin!(sleep(Duration::ZERO));
    let mut keeper = Keeper::new(Arc::clone(&activity), timer, drain);
    let Opened { stream, speaks } = match opened(open, &mut keeper).await {
        Ok(opened) => opened,
        Err(ended) => return ended,
    };
    let mut stream = Watched::new(stream, activity);
    let mut known = speaks;
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

/// Waits until the connection is open, for as long as for a head; from then on the first head is due.
async fn opened<S, D: Future>(
    open: impl Future<Output = Option<Opened<S>>>,
    keeper: &mut Keeper<'_, D>,
) -> Result<Opened<S>, Ended> {
    let mut open = pin!(open);
    let opened = poll_fn(|cx| {
        if let Poll::Ready(opened) = open.as_mut().poll(cx) {
            return Poll::Ready(opened.ok_or(Ended::Over));
        }
        loop {
            match keeper.poll(cx, None) {
                Poll::Ready(Verdict::Drain) => {}
                Poll::Ready(verdict) => return Poll::Ready(Err(end(verdict))),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await?;
    keeper.begins_anew();
    Ok(opened)
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
        loop {
            match resting::poll(stream, known, cx) {
                Poll::Ready(Ok(Some(speaks))) => return Poll::Ready(Ok(speaks)),
                Poll::Ready(Ok(None)) => return Poll::Ready(Err(Ended::Over)),
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "a connection broke off");
                    return Poll::Ready(Err(Ended::Over));
                }
                Poll::Pending => {}
            }
            match keeper.poll(cx, None) {
                Poll::Ready(Verdict::Drain) => {}
                // Who has begun to ask may finish.
                Poll::Ready(Verdict::Leave) if !stream.ahead().is_empty() => {}
                Poll::Ready(verdict) => return Poll::Ready(Err(end(verdict))),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

/// How a connection ends on which nothing is under way.
fn end(verdict: Verdict) -> Ended {
    match verdict {
        Verdict::End(ended) => ended,
        Verdict::Drain | Verdict::Leave | Verdict::Rest => Ended::Over,
    }
}
