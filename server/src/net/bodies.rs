//! Bodies and answers that note in their connection's activity how long they are under way.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use doorman_openapi::Moment;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};

use super::activity::Activity;
use crate::util::clock;

/// The body of a request.
#[derive(Debug)]
pub(super) struct Asked {
    body: Incoming,
    ended: bool,
    since: Moment,
    activity: Arc<Activity>,
}

impl Asked {
    pub(super) fn new(body: Incoming, activity: Arc<Activity>) -> Self {
        let since = clock::now();
        activity.body_begins(since);
        Self {
            body,
            ended: false,
            since,
            activity,
        }
    }
}

impl HttpBody for Asked {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) {
            self.ended = true;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let is_read = self.ended || self.body.is_end_stream();
        self.activity.body_ends(self.since, is_read);
    }
}

/// An answer on its way, until it is dropped: held by its body, and by those of its bytes that the system has not taken.
#[derive(Debug)]
pub(super) struct Told {
    since: Moment,
    activity: Arc<Activity>,
}

impl Told {
    pub(super) fn new(activity: Arc<Activity>) -> Self {
        let since = clock::now();
        activity.answer_begins(since);
        Self { since, activity }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.activity.answer_ends(self.since);
    }
}
