//! A request without a body whose handler is kept outside hyper, so that its connection can be
//! parked until the handler returns.
//!
//! hyper is then dropped with its buffers. Later a new one reads a short head instead of the
//! request, gets the response from the slot, and writes it.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use axum::http::{Request, Response, Version, header};

use super::activity::ResponseGuard;
use crate::util::guarded_body::GuardedBody;

pub(super) type HttpResponse = Response<GuardedBody<ResponseGuard>>;

type Handler = Pin<Box<dyn Future<Output = HttpResponse> + Send>>;

/// At most one request of an HTTP/1 connection; clones share it.
#[derive(Clone, Default)]
pub(super) struct RequestSlot(Arc<Mutex<Slot>>);

#[derive(Default)]
enum Slot {
    #[default]
    Empty,
    Running {
        handler: Handler,
        head: Vec<u8>,
    },
    Answered(Box<HttpResponse>),
}

impl RequestSlot {
    /// Puts in a request, whose `head` is a [`short_head`].
    pub(super) fn start(&self, head: Vec<u8>, handler: Handler) {
        *self.state() = Slot::Running { handler, head };
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(*self.state(), Slot::Running { .. })
    }

    pub(super) fn is_answered(&self) -> bool {
        matches!(*self.state(), Slot::Answered(_))
    }

    /// Waits for the response and takes it out.
    pub(super) fn response(self) -> impl Future<Output = HttpResponse> + Send {
        poll_fn(move |cx| {
            let mut state = self.state();
            if let Slot::Running { handler, .. } = &mut *state {
                let response = ready!(handler.as_mut().poll(cx));
                *state = Slot::Empty;
                return Poll::Ready(response);
            }
            match std::mem::take(&mut *state) {
                Slot::Answered(response) => Poll::Ready(*response),
                Slot::Empty | Slot::Running { .. } => Poll::Pending,
            }
        })
    }

    /// Waits for the response, keeps it, and returns the head with which hyper gets it.
    pub(super) fn poll_answered(&self, cx: &mut Context<'_>) -> Poll<Vec<u8>> {
        let mut state = self.state();
        let Slot::Running { handler, head } = &mut *state else {
            return Poll::Pending;
        };
        let response = ready!(handler.as_mut().poll(cx));
        let head = std::mem::take(head);
        *state = Slot::Answered(Box::new(response));
        Poll::Ready(head)
    }

    fn state(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The head of a GET with the version and connection options of `request`, by which hyper decides
/// how to write the response and whether to keep the connection.
pub(super) fn short_head<B>(request: &Request<B>) -> Vec<u8> {
    let mut head = match request.version() {
        Version::HTTP_10 => b"GET / HTTP/1.0\r\n".to_vec(),
        _ => b"GET / HTTP/1.1\r\n".to_vec(),
    };
    for options in request.headers().get_all(header::CONNECTION) {
        head.extend_from_slice(b"connection: ");
        head.extend_from_slice(options.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}
