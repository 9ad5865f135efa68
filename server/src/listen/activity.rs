//! What the parts of a connection tell of it, and what it is told.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Relaxed, Release},
        },
    },
    task::Waker,
};

use doorman_openapi::Moment;
use futures_util::task::AtomicWaker;

/// What the parts of a connection tell of it, and what it is told. Written from within the connection's task, from the requests it has
/// under way, and by who needs room.
#[derive(Debug)]
pub(super) struct Activity {
    requests: AtomicUsize,
    /// Answers of which hyper has not taken everything.
    answers: AtomicUsize,
    /// Since when bodies arrive, of each that does.
    bodies: Mutex<Vec<Moment>>,
    /// A body was not read to its end: what comes next may be the rest of it.
    left_unread: AtomicBool,
    /// The system has not taken everything that is to go out.
    unsent: AtomicBool,
    /// Bytes have come since the last head was whole.
    head_begun: AtomicBool,
    /// A request has ended, or bytes have gone out, since somebody last looked.
    moved: AtomicBool,
    /// Requests come interleaved (HTTP/2), with frames between them that begin no head.
    interleaved: AtomicBool,
    /// Since when it waits for its peer, in nanoseconds on the clock.
    waits_since: AtomicU64,
    gives_way: AtomicBool,
    task: AtomicWaker,
}

impl Activity {
    /// A new connection, whose first head is due.
    pub(super) fn new() -> Self {
        Self {
            requests: AtomicUsize::new(0),
            answers: AtomicUsize::new(0),
            bodies: Mutex::default(),
            left_unread: AtomicBool::new(false),
            unsent: AtomicBool::new(false),
            head_begun: AtomicBool::new(true),
            moved: AtomicBool::new(false),
            interleaved: AtomicBool::new(false),
            waits_since: AtomicU64::new(Moment::NEVER.as_nanos()),
            gives_way: AtomicBool::new(false),
            task: AtomicWaker::new(),
        }
    }

    /// Bytes have come in.
    pub(super) fn received(&self) {
        if self.requests.load(Relaxed) == 0 && !self.interleaved.load(Relaxed) {
            self.head_begun.store(true, Relaxed);
        }
    }

    /// Bytes are about to go out, or the end of them.
    pub(super) fn sends(&self) {
        self.unsent.store(true, Relaxed);
    }

    /// Bytes have gone out.
    pub(super) fn moves(&self) {
        self.moved.store(true, Relaxed);
    }

    /// The system has taken everything that is to go out.
    pub(super) fn sent(&self) {
        self.unsent.store(false, Relaxed);
    }

    /// The head of a request is whole; until the guard is dropped, the request is under way.
    pub(super) fn begin(self: &Arc<Self>, interleaved: bool) -> UnderWay {
        self.requests.fetch_add(1, Relaxed);
        self.head_begun.store(false, Relaxed);
        self.interleaved.store(interleaved, Relaxed);
        UnderWay(Arc::clone(self))
    }

    /// A body begins to arrive. Call [`Self::body_ends`] with the same moment when it has arrived, or is given up.
    pub(super) fn body_begins(&self, now: Moment) {
        let mut bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        bodies.push(now);
    }

    /// A body arrives no longer that began then; `is_read` to its end, or not.
    pub(super) fn body_ends(&self, since: Moment, is_read: bool) {
        if !is_read && !self.interleaved.load(Relaxed) {
            self.left_unread.store(true, Relaxed);
        }
        let mut bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        // Of several that began at the same moment each stands for the others.
        if let Some(at) = bodies.iter().position(|it| *it == since) {
            bodies.swap_remove(at);
        }
    }

    /// An answer begins. Call [`Self::answer_ends`] when hyper has all of it.
    pub(super) fn answer_begins(&self) {
        self.answers.fetch_add(1, Relaxed);
    }

    /// An answer is in the hands of hyper, or given up.
    pub(super) fn answer_ends(&self) {
        self.answers.fetch_sub(1, Relaxed);
    }

    /// Whether it is between two requests: everything has been read and answered, and the system has the answer.
    pub(super) fn is_between_requests(&self) -> bool {
        self.requests.load(Relaxed) == 0
            && self.answers.load(Relaxed) == 0
            && !self.left_unread.load(Relaxed)
            && !self.unsent.load(Relaxed)
            && !self.head_begun.load(Relaxed)
    }

    /// Whether a request is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.requests.load(Relaxed) > 0
    }

    /// Whether the head of a request has begun, or is due.
    pub(super) fn head_has_begun(&self) -> bool {
        self.head_begun.load(Relaxed)
    }

    /// Whether a request has ended, or bytes have gone out, since this was last asked.
    pub(super) fn has_moved(&self) -> bool {
        self.moved.swap(false, Relaxed)
    }

    /// It has waited for its peer since then; [`Moment::NEVER`] when it does not.
    pub(super) fn waits(&self, since: Moment) {
        self.waits_since.store(since.as_nanos(), Relaxed);
    }

    /// Since when the connection has waited for its peer: for the first byte of a head, or for its last. [`Moment::NEVER`] while it is
    /// busy, or nobody has looked at it yet.
    pub(super) fn waits_since(&self) -> Moment {
        Moment::from_nanos(self.waits_since.load(Relaxed))
    }

    /// Since when the body has been arriving that has taken longest of all that are; [`Moment::NEVER`] when none is.
    pub(super) fn body_since(&self) -> Moment {
        let bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        bodies.iter().min().copied().unwrap_or(Moment::NEVER)
    }

    /// Asks the connection to close, unless it is busy by then.
    pub(super) fn give_way(&self) {
        self.gives_way.store(true, Release);
        self.task.wake();
    }

    /// Who is woken when it is asked to give way.
    pub(super) fn calls(&self, waker: &Waker) {
        self.task.register(waker);
    }

    /// Whether it was asked to give way since this was last asked.
    pub(super) fn was_asked_to_give_way(&self) -> bool {
        self.gives_way.swap(false, AcqRel)
    }
}

/// A request under way, until it is dropped.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Activity>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Relaxed);
        self.0.moved.store(true, Relaxed);
    }
}
