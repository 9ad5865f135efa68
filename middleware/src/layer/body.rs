//! The response body: the inner service's, or that of a refusal.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::permit::Permit;

pin_project! {
    #[project = LimitBodyProjection]
    /// The response body of a [`LimitService`](crate::LimitService). The units of gauges that the
    /// request uses are given back when it ends, fails or is dropped.
    #[derive(Debug)]
    pub struct LimitBody<B> {
        #[pin]
        source: Source<B>,
        permit: Permit,
    }
}

pin_project! {
    #[project = SourceProjection]
    #[derive(Debug)]
    enum Source<B> {
        Inner { #[pin] body: B },
        Refused { problem: Option<Bytes> },
    }
}

impl<B> LimitBody<B> {
    pub(super) fn inner(body: B) -> Self {
        Self::holding(body, Permit::default())
    }

    pub(super) fn holding(body: B, permit: Permit) -> Self {
        Self {
            source: Source::Inner { body },
            permit,
        }
    }

    pub(super) fn refused(problem: Bytes) -> Self {
        Self {
            source: Source::Refused {
                // An empty body has ended, so that HTTP/2 ends the stream with the headers.
                problem: Some(problem).filter(|problem| !problem.is_empty()),
            },
            permit: Permit::default(),
        }
    }
}

impl<B> Body for LimitBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let LimitBodyProjection { source, permit } = self.project();
        match source.project() {
            SourceProjection::Inner { mut body } => {
                let frame = body.as_mut().poll_frame(cx);
                let has_ended = match &frame {
                    Poll::Ready(Some(Ok(_))) => body.is_end_stream(),
                    Poll::Ready(Some(Err(_)) | None) => true,
                    Poll::Pending => false,
                };
                if has_ended && !permit.is_empty() {
                    *permit = Permit::default();
                }
                frame
            }
            SourceProjection::Refused { problem } => {
                Poll::Ready(problem.take().map(|bytes| Ok(Frame::data(bytes.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Inner { body } => body.is_end_stream(),
            Source::Refused { problem } => problem.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Inner { body } => body.size_hint(),
            Source::Refused { problem } => {
                let bytes = problem.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(bytes).unwrap_or(u64::MAX))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[test]
    fn empty_refusal_has_ended() {
        let empty = LimitBody::<Full<Bytes>>::refused(Bytes::new());
        assert!(empty.is_end_stream());
        assert_eq!(empty.size_hint().exact(), Some(0));
    }

    #[test]
    fn reports_size_and_end() {
        let inner = LimitBody::inner(Full::new(Bytes::from("ok")));
        assert_eq!(inner.size_hint().exact(), Some(2));
        assert!(!inner.is_end_stream());

        let mut refused = LimitBody::<Full<Bytes>>::refused(Bytes::from("{}"));
        assert_eq!(refused.size_hint().exact(), Some(2));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let frame = Pin::new(&mut refused).poll_frame(&mut cx);
        assert!(matches!(frame, Poll::Ready(Some(Ok(frame))) if frame.data_ref().unwrap() == "{}"));
        assert!(refused.is_end_stream());
        assert_eq!(refused.size_hint().exact(), Some(0));
        assert!(
            Pin::new(&mut refused)
                .poll_frame(&mut cx)
                .map(|frame| frame.is_none())
                .is_ready()
        );
    }
}
