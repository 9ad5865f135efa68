//! How long a connection may keep the server waiting.
//!
//! A connection is *waiting* for the head of a request, *busy* with requests whose heads are there, or with answers that are on their
//! way, or *idle* between requests. Of what it is busy with only answers have a limit here: how long a body may take is its reader's
//! affair, and handlers do not wait.
//!
//! hyper's own limit for a head runs while a connection is idle as well, so it cannot be short without cutting off clients that come
//! back every few seconds; and it arms a timer for each request, where this costs one look at the clock.

use std::time::Duration;

use doorman_openapi::Moment;

use super::activity::Activity;

/// How long the head of a request may take to arrive, from its first byte (on a new connection: from its beginning, or the end of the
/// handshake). A handshake of TLS may take as long.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may stay open between requests.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// How long an answer may take until the system has all of it; as long as a body may. What the peer does meanwhile does not matter, so
/// that nobody keeps the memory of a large answer by taking a byte of it now and then.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a body may take to arrive, or an answer to be taken, when others need the connection's place.
pub(super) const SLOW: Duration = Duration::from_secs(2);

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
        if activity.has_moved() {
            self.quiet_since = now;
        }
        let answer_since = activity.answer_since();
        if activity.is_busy() || answer_since != Moment::NEVER {
            self.head_since = None;
            activity.waits(Moment::NEVER);
            return answer_since.after(ANSWER_TIMEOUT);
        }
        let (since, patience) = if activity.head_has_begun() {
            (*self.head_since.get_or_insert(now), HEAD_TIMEOUT)
        } else {
            self.head_since = None;
            (self.quiet_since, IDLE_TIMEOUT)
        };
        activity.waits(since);
        since.after(patience)
    }

    /// When it will have been between two requests for so long; [`Moment::NEVER`] when it is not. Ask for [`Self::until`] first.
    pub(super) fn rests_at(&self, activity: &Activity, after: Duration) -> Moment {
        if activity.is_between_requests() {
            self.quiet_since.after(after)
        } else {
            Moment::NEVER
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn second(n: u64) -> Moment {
        Moment::ORIGIN.after(Duration::from_secs(n))
    }

    #[test]
    fn a_head_is_due_in_time_from_the_beginning_and_from_its_first_byte() {
        let activity = Arc::new(Activity::new());
        let mut patience = Patience::new(second(100));
        assert_eq!(patience.until(&activity, second(100)), second(105));
        // A byte now and then does not help.
        activity.received();
        assert_eq!(patience.until(&activity, second(104)), second(105));

        let request = activity.begin(false);
        assert_eq!(patience.until(&activity, second(104)), Moment::NEVER);
        // The body's bytes are not a head's.
        activity.body_begins(second(104));
        activity.received();
        activity.body_ends(second(104), true);
        drop(request);
        assert_eq!(patience.until(&activity, second(110)), second(185));

        activity.received();
        assert_eq!(patience.until(&activity, second(150)), second(155));
        assert_eq!(patience.until(&activity, second(154)), second(155));

        let request = activity.begin(false);
        assert_eq!(patience.until(&activity, second(154)), Moment::NEVER);
        // What comes behind a whole request is.
        activity.received();
        drop(request);
        assert_eq!(patience.until(&activity, second(160)), second(165));
    }

    #[test]
    fn idleness_counts_from_the_end_of_an_answer() {
        let activity = Arc::new(Activity::new());
        let mut patience = Patience::new(second(100));
        drop(activity.begin(false));
        assert_eq!(patience.until(&activity, second(100)), second(175));
        activity.answer_begins(second(120));
        assert_eq!(patience.until(&activity, second(120)), second(130));
        activity.answer_ends(second(120));
        assert_eq!(patience.until(&activity, second(125)), second(200));
        assert_eq!(patience.until(&activity, second(140)), second(200));
    }

    #[test]
    fn of_several_answers_the_first_must_be_taken_in_time_whatever_else_is_under_way() {
        let activity = Arc::new(Activity::new());
        let mut patience = Patience::new(second(100));
        let _request = activity.begin(true);
        for at in [101, 103, 102] {
            activity.answer_begins(second(at));
        }
        assert_eq!(patience.until(&activity, second(104)), second(111));
        activity.answer_ends(second(101));
        assert_eq!(patience.until(&activity, second(104)), second(112));
        // Another begins no head that would be due sooner.
        activity.received();
        assert_eq!(patience.until(&activity, second(105)), second(112));
    }

    #[test]
    fn frames_between_interleaved_requests_begin_no_head() {
        let activity = Arc::new(Activity::new());
        let mut patience = Patience::new(second(100));
        let first = activity.begin(true);
        drop(activity.begin(true));
        assert_eq!(patience.until(&activity, second(101)), Moment::NEVER);
        drop(first);
        activity.received();
        assert_eq!(patience.until(&activity, second(102)), second(177));
    }
}
