//! How long a connection may keep the server waiting.
//!
//! A connection is *waiting* for the head of a request, *busy* with requests whose heads are there, or *idle* between requests. Only
//! the first and the last have a limit here: how long a body may take is its reader's affair, and handlers do not wait.
//!
//! hyper's own limit for a head runs while a connection is idle as well, so it cannot be short without cutting off clients that come
//! back every few seconds; and it arms a timer for each request, where this costs one look at the clock.

use std::time::Duration;

use doorman_openapi::Moment;

use super::activity::Activity;

/// How long the head of a request may take to arrive, from its first byte (on a new connection: from its beginning).
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may stay open between requests.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// How long a body may take to arrive when others need the connection's place.
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
        if activity.is_busy() {
            self.head_since = None;
            activity.waits(Moment::NEVER);
            return Moment::NEVER;
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
        activity.received();
        drop(request);
        assert_eq!(patience.until(&activity, second(110)), second(185));

        activity.received();
        assert_eq!(patience.until(&activity, second(150)), second(155));
        assert_eq!(patience.until(&activity, second(154)), second(155));
    }

    #[test]
    fn idleness_counts_from_the_last_byte_of_an_answer() {
        let activity = Arc::new(Activity::new());
        let mut patience = Patience::new(second(100));
        drop(activity.begin(false));
        assert_eq!(patience.until(&activity, second(100)), second(175));
        activity.moves();
        assert_eq!(patience.until(&activity, second(130)), second(205));
        assert_eq!(patience.until(&activity, second(140)), second(205));
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
