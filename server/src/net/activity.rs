//! What the parts of a connection tell of it, and what it is told.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Relaxed, Release},
        },
    },
    task::Waker,
};

use doorman_openapi::Moment;
use futures_util::task::AtomicWaker;

use super::begun::Begun;
use crate::util::peer::PeerAddr;

/// What the parts of a connection tell of it, and what it is told. Written from within the connection's task, from the requests it has
/// under way, and by who needs room.
#[derive(Debug)]
pub(super) struct Activity {
    /// Who is at the other end, where there is an address.
    peer: Option<PeerAddr>,
    requests: AtomicUsize,
    /// Bodies that arrive.
    bodies: Begun,
    /// Answers of which the system has not taken everything.
    answers: Begun,
    /// A body was not read to its end: what comes next may be the rest of it.
    left_unread: AtomicBool,
    /// The system has not taken everything that is to go out.
    unsent: AtomicBool,
    /// Bytes have come since the last head was whole.
    head_begun: AtomicBool,
    /// Bytes have come that are no part of the request under way: the next has begun.
    next_begun: AtomicBool,
    /// A request or an answer has ended since somebody last looked. Other frames of HTTP/2 do not count: a peer that only sends pings is
    /// idle.
    moved: AtomicBool,
    /// Requests come interleaved (HTTP/2), with frames between them that begin no head.
    interleaved: AtomicBool,
    /// Since when it waits for its peer, in nanoseconds on the clock.
    waits_since: AtomicU64,
    gives_way: AtomicBool,
    /// The server stops: the next answer is the last.
    drains: AtomicBool,
    task: AtomicWaker,
}

impl Activity {
    /// A new connection, whose first head is due.
    pub(super) fn new() -> Self {
        Self {
            peer: None,
            requests: AtomicUsize::new(0),
            bodies: Begun::default(),
            answers: Begun::default(),
            left_unread: AtomicBool::new(false),
            unsent: AtomicBool::new(false),
            head_begun: AtomicBool::new(true),
            next_begun: AtomicBool::new(false),
            moved: AtomicBool::new(false),
            interleaved: AtomicBool::new(false),
            waits_since: AtomicU64::new(Moment::NEVER.as_nanos()),
            gives_way: AtomicBool::new(false),
            drains: AtomicBool::new(false),
            task: AtomicWaker::new(),
        }
    }

    /// The same, of a connection with this peer.
    pub(super) fn of(peer: PeerAddr) -> Self {
        Self {
            peer: Some(peer),
            ..Self::new()
        }
    }

    /// Who is at the other end, where that is known.
    pub(super) fn peer(&self) -> Option<PeerAddr> {
        self.peer
    }

    /// Bytes have come in.
    pub(super) fn received(&self) {
        if self.interleaved.load(Relaxed) {
            return;
        }
        if self.requests.load(Relaxed) == 0 {
            self.head_begun.store(true, Relaxed);
        } else if self.bodies.number() == 0 && !self.left_unread.load(Relaxed) {
            self.next_begun.store(true, Relaxed);
        }
    }

    /// Bytes are about to go out, or the end of them.
    pub(super) fn sends(&self) {
        self.unsent.store(true, Relaxed);
    }

    /// The system has taken everything that is to go out.
    pub(super) fn sent(&self) {
        self.unsent.store(false, Relaxed);
    }

    /// The head of a request is whole; until the guard is dropped, the request is under way.
    pub(super) fn begin(self: &Arc<Self>, interleaved: bool) -> UnderWay {
        self.requests.fetch_add(1, Relaxed);
        self.head_begun.store(false, Relaxed);
        self.next_begun.store(false, Relaxed);
        self.interleaved.store(interleaved, Relaxed);
        UnderWay(Arc::clone(self))
    }

    /// A body begins to arrive. Call [`Self::body_ends`] with the same moment when it has arrived, or is given up.
    pub(super) fn body_begins(&self, now: Moment) {
        self.bodies.begins(now);
    }

    /// A body arrives no longer that began then; `is_read` to its end, or not.
    pub(super) fn body_ends(&self, since: Moment, is_read: bool) {
        if !is_read && !self.interleaved.load(Relaxed) {
            self.left_unread.store(true, Relaxed);
        }
        self.bodies.ends(since);
    }

    /// An answer begins. Call [`Self::answer_ends`] with the same moment when the system has all of it.
    pub(super) fn answer_begins(&self, now: Moment) {
        self.answers.begins(now);
    }

    /// An answer that began then is in the hands of the system, or given up.
    pub(super) fn answer_ends(&self, since: Moment) {
        self.answers.ends(since);
        self.moved.store(true, Relaxed);
    }

    /// Whether it is between two requests: everything has been answered, and the system has the answer.
    pub(super) fn is_between_requests(&self) -> bool {
        self.has_nothing_under_way() && !self.head_begun.load(Relaxed)
    }

    /// Whether everything of which the head was whole has been answered, and the system has the answer.
    pub(super) fn has_nothing_under_way(&self) -> bool {
        self.requests.load(Relaxed) == 0 && self.answers.number() == 0 && !self.unsent.load(Relaxed)
    }

    /// Whether a body was not read to its end, so that nobody but hyper knows where the next request begins.
    pub(super) fn has_left_unread(&self) -> bool {
        self.left_unread.load(Relaxed)
    }

    /// Whether a request is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.requests.load(Relaxed) > 0
    }

    /// Whether the head of a request has begun, or is due.
    pub(super) fn head_has_begun(&self) -> bool {
        self.head_begun.load(Relaxed)
    }

    /// Whether a request or an answer has ended since this was last asked.
    pub(super) fn has_moved(&self) -> bool {
        self.moved.swap(false, Relaxed)
    }

    /// It has waited for its peer since then; [`Moment::NEVER`] when it does not.
    pub(super) fn waits(&self, since: Moment) {
        self.waits_since.store(since.as_nanos(), Relaxed);
    }

    /// Since when the connection has waited for its peer: for the first byte of a head, or for its last. [`Moment::NEVER`] while a
    /// request or an answer is under way, or nobody has looked at it yet.
    pub(super) fn waits_since(&self) -> Moment {
        Moment::from_nanos(self.waits_since.load(Relaxed))
    }

    /// Since when the answer has been on its way that has been so for longest; [`Moment::NEVER`] when none is.
    pub(super) fn answer_since(&self) -> Moment {
        self.answers.first()
    }

    /// Since when the peer has owed its part of a request: the rest of the body, or to take the answer. [`Moment::NEVER`] when it owes
    /// nothing, and while the handler of a request that has arrived whole is at work: that one must not suffer for a slow one beside it.
    pub(super) fn lags_since(&self) -> Moment {
        if self.requests.load(Relaxed) > self.bodies.number() {
            return Moment::NEVER;
        }
        self.bodies.first().min(self.answers.first())
    }

    /// The server stops.
    pub(super) fn drains(&self) {
        self.drains.store(true, Relaxed);
    }

    /// Whether the server stops, so that the next answer is the last.
    pub(super) fn is_draining(&self) -> bool {
        self.drains.load(Relaxed)
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
        let is_last = self.0.requests.fetch_sub(1, Relaxed) == 1;
        if is_last && self.0.next_begun.swap(false, Relaxed) {
            self.0.head_begun.store(true, Relaxed);
        }
        self.0.moved.store(true, Relaxed);
    }
}
