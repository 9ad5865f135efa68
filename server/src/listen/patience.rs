//! How long a connection may keep the server waiting.
//!
//! A connection is *waiting* for the head of a request, *busy* with requests whose heads are there, or *idle* between requests. Only
//! the first and the last have a limit here: how long a body may take is its reader's affair, and handlers do not wait.
//!
//! hyper's own limit for a head runs while a connection is idle as well, so it cannot be short without cutting off clients that come
//! back every few seconds; and it arms a timer for each request, where this costs one look at the clock.

use std::{
    sync::atomic::{
        AtomicBool, AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Relaxed, Release},
    },
    task::Waker,
    time::Duration,
};

use doorman_openapi::Moment;
use futures_util::task::AtomicWaker;

/// How long the head of a request may take to arrive, from its first byte (on a new connection: from its beginning).
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may stay open between requests.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// What the parts of a connection tell of it, and what it is told. Written from within the connection's task, from the requests it has
/// under way, and by who needs room.
#[derive(Debug)]
pub(super) struct Activity {
    requests: AtomicUsize,
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

    /// Bytes have gone out.
    pub(super) fn sent(&self) {
        self.moved.store(true, Relaxed);
    }

    /// The head of a request is whole. Call [`Self::end`] when it has been answered.
    pub(super) fn begin(&self, interleaved: bool) {
        self.requests.fetch_add(1, Relaxed);
        self.head_begun.store(false, Relaxed);
        self.interleaved.store(interleaved, Relaxed);
    }

    /// A request has been answered, or given up.
    pub(super) fn end(&self) {
        self.requests.fetch_sub(1, Relaxed);
        self.moved.store(true, Relaxed);
    }

    /// Since when the connection has waited for its peer: for the first byte of a head, or for its last. [`Moment::NEVER`] while it is
    /// busy, or nobody has looked at it yet.
    pub(super) fn waits_since(&self) -> Moment {
        Moment::from_nanos(self.waits_since.load(Relaxed))
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

/// The times of one connection.
#[derive(Debug)]
pub(super) struct Patience {
    quiet_since: Moment,
    head_since: Option<Moment>,
}

impl Patience {
    /// Begins with a new connection.
    pub(super) fn new(now: Moment) -> Self {
        Self {
            quiet_since: now,
            head_since: None,
        }
    }

    /// Until when to wait for what comes next, as things stand now; since when, is noted for others.
    pub(super) fn until(&mut self, activity: &Activity, now: Moment) -> Moment {
        if activity.moved.swap(false, Relaxed) {
            self.quiet_since = now;
        }
        if activity.requests.load(Relaxed) > 0 {
            self.head_since = None;
            activity
                .waits_since
                .store(Moment::NEVER.as_nanos(), Relaxed);
            return Moment::NEVER;
        }
        let (since, patience) = if activity.head_begun.load(Relaxed) {
            (*self.head_since.get_or_insert(now), HEAD_TIMEOUT)
        } else {
            self.head_since = None;
            (self.quiet_since, IDLE_TIMEOUT)
        };
        activity.waits_since.store(since.as_nanos(), Relaxed);
        since.after(patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> Moment {
        Moment::ORIGIN.after(Duration::from_secs(n))
    }

    #[test]
    fn a_head_is_due_in_time_from_the_beginning_and_from_its_first_byte() {
        let activity = Activity::new();
        let mut patience = Patience::new(second(100));
        assert_eq!(patience.until(&activity, second(100)), second(105));
        // A byte now and then does not help.
        activity.received();
        assert_eq!(patience.until(&activity, second(104)), second(105));

        activity.begin(false);
        assert_eq!(patience.until(&activity, second(104)), Moment::NEVER);
        // The body's bytes are not a head's.
        activity.received();
        activity.end();
        assert_eq!(patience.until(&activity, second(110)), second(185));

        activity.received();
        assert_eq!(patience.until(&activity, second(150)), second(155));
        assert_eq!(patience.until(&activity, second(154)), second(155));
    }

    #[test]
    fn idleness_counts_from_the_last_byte_of_an_answer() {
        let activity = Activity::new();
        let mut patience = Patience::new(second(100));
        activity.begin(false);
        activity.end();
        assert_eq!(patience.until(&activity, second(100)), second(175));
        activity.sent();
        assert_eq!(patience.until(&activity, second(130)), second(205));
        assert_eq!(patience.until(&activity, second(140)), second(205));
    }

    #[test]
    fn frames_between_interleaved_requests_begin_no_head() {
        let activity = Activity::new();
        let mut patience = Patience::new(second(100));
        activity.begin(true);
        activity.begin(true);
        activity.end();
        assert_eq!(patience.until(&activity, second(101)), Moment::NEVER);
        activity.end();
        activity.received();
        assert_eq!(patience.until(&activity, second(102)), second(177));
    }
}
