//! Activity of a connection, and the timeouts that follow from it. It *waits* for the head of a
//! request, is *busy* with requests or responses, or *idle* between requests.
//!
//! hyper's own head timeout also runs while a connection is idle, so it cannot be short without
//! closing clients that return every few seconds.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Relaxed, Release},
        },
    },
    task::Waker,
    time::Duration,
};

use doorman_openapi::Moment;
use futures_util::task::AtomicWaker;

use crate::util::{clock, peer::PeerAddr};

/// Time for the head of a request, from its first byte; on a new connection from the accept, or
/// from the end of the TLS handshake. A handshake has as long.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two requests.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// Time until the system has all of a response; as long as for a request body. Progress does not
/// extend it, so that no peer keeps the memory of a large response by reading a byte now and then.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a request body or a response may take when the connection limit is reached.
const SLOW: Duration = Duration::from_secs(2);

/// Response extension: the peer may take the body for as long as it likes, and its connection is
/// not evicted meanwhile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoTimeout;

/// Progress of a connection. Shared by the connection's task, its requests, and eviction.
#[derive(Debug)]
pub(super) struct Activity {
    pub(super) peer: Option<PeerAddr>,
    state: Mutex<Progress>,
    evict: AtomicBool,
    is_draining: AtomicBool,
    /// A response of an HTTP/2 connection asks to close it.
    close: AtomicBool,
    task: AtomicWaker,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each changes on its own")]
struct Progress {
    /// Requests with a complete head whose handler has not returned.
    requests: usize,
    /// When the only request began, if its connection can be parked before its handler returns.
    parkable_since: Option<Moment>,
    /// When each request body in progress began.
    request_bodies: Vec<Moment>,
    /// When each response began of which the system has not taken everything.
    responses: Vec<Moment>,
    /// Requests are multiplexed: bytes between them need not begin a head.
    is_http2: bool,
    /// A request body was dropped before its end: the next bytes may be the rest of it.
    has_unread_body: bool,
    has_unflushed: bool,
    /// The head of the next request has begun, or the first head is due.
    head_started: bool,
    /// The next head began while a request was in progress.
    next_head_started: bool,
    /// A request or a response has ended since `idle_since` was set. Other HTTP/2 frames are no
    /// progress: a peer that only sends pings is idle.
    has_progressed: bool,
    idle_since: Moment,
    /// Nothing more is read or answered.
    is_lingering: bool,
    /// When the started head was first seen.
    head_since: Option<Moment>,
}

impl Activity {
    /// A new connection, whose first head is due.
    pub(super) fn new(peer: Option<PeerAddr>) -> Self {
        Self {
            peer,
            state: Mutex::new(Progress {
                head_started: true,
                idle_since: Moment::NEVER,
                ..Progress::default()
            }),
            evict: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            close: AtomicBool::new(false),
            task: AtomicWaker::new(),
        }
    }

    pub(super) fn on_read(&self) {
        let mut state = self.state();
        if state.is_http2 {
            return;
        }
        if state.requests == 0 {
            state.head_started = true;
        } else if state.request_bodies.is_empty() && !state.has_unread_body {
            state.next_head_started = true;
        }
    }

    pub(super) fn on_write(&self) {
        self.state().has_unflushed = true;
    }

    /// The system has taken everything that was written.
    pub(super) fn on_flush(&self) {
        self.state().has_unflushed = false;
    }

    /// The handshake is complete: the first head is due from now on.
    pub(super) fn on_open(&self) {
        self.state().head_since = None;
    }

    /// The head of a request is complete. The request is in progress until the guard is dropped.
    pub(super) fn begin_request(self: &Arc<Self>, is_http2: bool) -> RequestGuard {
        let mut state = self.state();
        state.requests = state.requests.saturating_add(1);
        state.parkable_since = None;
        state.head_started = false;
        state.next_head_started = false;
        state.is_http2 = is_http2;
        drop(state);
        RequestGuard(Arc::clone(self))
    }

    /// Allows to park the connection while the handler of its only request, which has no body,
    /// runs.
    pub(super) fn allow_parking(&self, now: Moment) {
        self.state().parkable_since = Some(now);
    }

    pub(super) fn begin_request_body(&self, now: Moment) {
        self.state().request_bodies.push(now);
    }

    /// Ends the request body that began at `since`.
    pub(super) fn end_request_body(&self, since: Moment, is_read: bool) {
        let mut state = self.state();
        if !is_read && !state.is_http2 {
            state.has_unread_body = true;
        }
        remove(&mut state.request_bodies, since);
    }

    pub(super) fn begin_response(&self, now: Moment) {
        self.state().responses.push(now);
    }

    /// Ends the response that began at `since`: the system has all of it, or it was dropped.
    pub(super) fn end_response(&self, since: Moment) {
        let mut state = self.state();
        remove(&mut state.responses, since);
        state.has_progressed = true;
    }

    /// When the connection's timeout ends, as things are now.
    pub(super) fn deadline(&self, now: Moment) -> Moment {
        let mut state = self.state();
        if mem::take(&mut state.has_progressed) {
            state.idle_since = now;
        }
        if state.is_busy() {
            state.head_since = None;
            return first(&state.responses).after(RESPONSE_TIMEOUT);
        }
        if state.head_started {
            state.head_since.get_or_insert(now).after(HEAD_TIMEOUT)
        } else {
            state.head_since = None;
            state.idle_since.after(IDLE_TIMEOUT)
        }
    }

    /// When the connection will have been idle, or will have waited for a handler, for `time`;
    /// [`Moment::NEVER`] while it cannot be parked. Call [`Self::deadline`] first.
    pub(super) fn park_at(&self, time: Duration) -> Moment {
        let state = self.state();
        if state.is_quiet() && !state.head_started {
            return state.idle_since.after(time);
        }
        let awaits_handler = state.requests == 1
            && state.responses.is_empty()
            && !state.has_unflushed
            && !state.has_unread_body;
        match state.parkable_since {
            Some(since) if awaits_handler => since.after(time),
            _ => Moment::NEVER,
        }
    }

    /// Whether every complete request has been answered, and the system has the response.
    pub(super) fn is_quiet(&self) -> bool {
        self.state().is_quiet()
    }

    /// Whether a request body was not read to its end: only hyper can find the next request.
    pub(super) fn has_unread_body(&self) -> bool {
        self.state().has_unread_body
    }

    /// Whether the head of the next request has begun, or the first head is due.
    pub(super) fn head_started(&self) -> bool {
        self.state().head_started
    }

    /// Nothing more will be read or answered: the connection is the first to be evicted.
    pub(super) fn linger(&self) {
        self.state().is_lingering = true;
    }

    /// Since when the connection has waited for a head; [`Moment::NEVER`] while it is busy.
    pub(super) fn waiting_since(&self) -> Moment {
        let state = self.state();
        if state.is_lingering {
            Moment::ORIGIN
        } else if state.is_busy() || state.has_progressed {
            Moment::NEVER
        } else if state.head_started {
            state.head_since.unwrap_or(Moment::NEVER)
        } else {
            state.idle_since
        }
    }

    /// Since when the peer has been too slow with a body or a response; [`Moment::NEVER`] if it is
    /// not, or while a handler runs: its request must not fail for a slow one beside it.
    pub(super) fn slow_since(&self, now: Moment) -> Moment {
        let state = self.state();
        if state.requests > state.request_bodies.len() {
            return Moment::NEVER;
        }
        let since = first(&state.request_bodies).min(first(&state.responses));
        if since.after(SLOW) <= now {
            since
        } else {
            Moment::NEVER
        }
    }

    /// The server shuts down: the next response is the last.
    pub(super) fn start_draining(&self) {
        self.is_draining.store(true, Relaxed);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining.load(Relaxed)
    }

    /// Asks the connection to close unless it is busy by then.
    pub(super) fn evict(&self) {
        self.evict.store(true, Release);
        self.task.wake();
    }

    /// Asks the connection to close once its requests are answered.
    pub(super) fn close(&self) {
        self.close.store(true, Release);
        self.task.wake();
    }

    /// Whether closing was requested since the last call.
    pub(super) fn take_close(&self) -> bool {
        self.close.swap(false, AcqRel)
    }

    /// Registers the task that [`Self::evict`] and [`Self::close`] wake.
    pub(super) fn register(&self, waker: &Waker) {
        self.task.register(waker);
    }

    /// Whether eviction was requested since the last call.
    pub(super) fn take_eviction(&self) -> bool {
        self.evict.swap(false, AcqRel)
    }

    fn state(&self) -> MutexGuard<'_, Progress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    fn is_busy(&self) -> bool {
        self.requests > 0 || !self.responses.is_empty()
    }

    fn is_quiet(&self) -> bool {
        !self.is_busy() && !self.has_unflushed
    }
}

#[derive(Debug)]
pub(super) struct RequestGuard(Arc<Activity>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.requests = state.requests.saturating_sub(1);
        if state.requests == 0 && mem::take(&mut state.next_head_started) {
            state.head_started = true;
        }
        state.has_progressed = true;
    }
}

fn remove(all: &mut Vec<Moment>, since: Moment) {
    if let Some(at) = all.iter().position(|it| *it == since) {
        all.swap_remove(at);
    }
}

fn first(all: &[Moment]) -> Moment {
    all.iter().min().copied().unwrap_or(Moment::NEVER)
}

/// A response in progress: held by its body, and by its bytes until the system has them.
#[derive(Debug)]
pub(super) struct ResponseGuard {
    since: Moment,
    activity: Arc<Activity>,
}

impl ResponseGuard {
    /// `no_timeout`: that extension, if the response has it.
    pub(super) fn new(activity: Arc<Activity>, no_timeout: Option<&NoTimeout>) -> Self {
        let since = match no_timeout {
            Some(NoTimeout) => Moment::NEVER,
            None => clock::now(),
        };
        activity.begin_response(since);
        Self { since, activity }
    }
}

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        self.activity.end_response(self.since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> Moment {
        Moment::ORIGIN.after(Duration::from_secs(n))
    }

    #[test]
    fn head_timeout_runs_from_accept_and_from_first_byte() {
        let activity = Arc::new(Activity::new(None));
        assert_eq!(activity.deadline(second(100)), second(105));
        // Later bytes do not extend it.
        activity.on_read();
        assert_eq!(activity.deadline(second(104)), second(105));

        let request = activity.begin_request(false);
        assert_eq!(activity.deadline(second(104)), Moment::NEVER);
        // Bytes of the body begin no head.
        activity.begin_request_body(second(104));
        activity.on_read();
        activity.end_request_body(second(104), true);
        drop(request);
        assert_eq!(activity.deadline(second(110)), second(185));

        activity.on_read();
        assert_eq!(activity.deadline(second(150)), second(155));
        assert_eq!(activity.deadline(second(154)), second(155));

        let request = activity.begin_request(false);
        assert_eq!(activity.deadline(second(154)), Moment::NEVER);
        // Bytes behind a complete request do.
        activity.on_read();
        drop(request);
        assert_eq!(activity.deadline(second(160)), second(165));
    }

    #[test]
    fn idle_timeout_runs_from_end_of_response() {
        let activity = Arc::new(Activity::new(None));
        drop(activity.begin_request(false));
        assert_eq!(activity.deadline(second(100)), second(175));
        activity.begin_response(second(120));
        assert_eq!(activity.deadline(second(120)), second(130));
        activity.end_response(second(120));
        assert_eq!(activity.deadline(second(125)), second(200));
        assert_eq!(activity.deadline(second(140)), second(200));
    }

    #[test]
    fn response_timeout_is_that_of_the_oldest_response() {
        let activity = Arc::new(Activity::new(None));
        let _request = activity.begin_request(true);
        for at in [101, 103, 102] {
            activity.begin_response(second(at));
        }
        assert_eq!(activity.deadline(second(104)), second(111));
        activity.end_response(second(101));
        assert_eq!(activity.deadline(second(104)), second(112));
        // Another frame begins no head.
        activity.on_read();
        assert_eq!(activity.deadline(second(105)), second(112));
    }

    #[test]
    fn response_without_timeout_may_take_any_time() {
        let activity = Arc::new(Activity::new(None));
        let _request = activity.begin_request(false);
        let response = ResponseGuard::new(Arc::clone(&activity), Some(&NoTimeout));
        assert_eq!(activity.deadline(second(1000)), Moment::NEVER);
        assert_eq!(activity.slow_since(second(1000)), Moment::NEVER);
        assert!(!activity.is_quiet());
        drop(response);
        assert!(activity.state().responses.is_empty());
    }

    #[test]
    fn http2_frames_begin_no_head() {
        let activity = Arc::new(Activity::new(None));
        let first = activity.begin_request(true);
        drop(activity.begin_request(true));
        assert_eq!(activity.deadline(second(101)), Moment::NEVER);
        drop(first);
        activity.on_read();
        assert_eq!(activity.deadline(second(102)), second(177));
    }
}
