//! Rejects stale replies of etcd, by the newest state that this server has seen.
//!
//! A leader of etcd that was deposed still tells what is left of leases. A member that was restored
//! may even execute transactions by itself. So a reply counts for nothing if it knows less than an
//! earlier one. A cluster that was replaced, or has lost its data, knows less, too: it counts once
//! more than half of the endpoints execute calls, and none has known the newest state for a while.
//! The newest state is in memory: a server that starts beside a stale member alone believes it.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use doorman_core::etcd::ReplyHeader;
use doorman_openapi::Moment;

use crate::util::log_throttle::LogThrottle;

/// How many calls must be executed without knowledge of the newest state, until that is lost.
const LOST_AFTER: u32 = 3;
/// How long at least: an election of etcd takes less.
const LOST_AFTER_TIME: Duration = Duration::from_secs(10);
/// After a longer pause between two of these calls, such as a suspend, their count begins anew.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Shared by all calls to one cluster.
#[derive(Debug)]
pub(super) struct NewestSeen {
    seen: Mutex<Seen>,
    lost: LogThrottle,
    behind: LogThrottle,
}

#[derive(Debug, Default)]
struct Seen {
    /// `None` before the first reply.
    newest: Option<ReplyHeader>,
    /// Calls that were executed without knowing it, since the last one that did.
    behind: Option<Behind>,
}

/// Executed calls without knowledge of the newest state.
#[derive(Debug)]
struct Behind {
    first: Moment,
    last: Moment,
    calls: u32,
    endpoints: BTreeSet<usize>,
}

/// A reply of an endpoint, as far as its age can be told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reply {
    pub(super) header: ReplyHeader,
    /// Whether a quorum has executed the call. Other replies are those of one member.
    pub(super) is_executed: bool,
    /// The index of the endpoint, and the number of endpoints.
    pub(super) endpoint: (usize, usize),
}

impl Default for NewestSeen {
    fn default() -> Self {
        Self {
            seen: Mutex::default(),
            lost: LogThrottle::per_minute(),
            behind: LogThrottle::per_minute(),
        }
    }
}

impl NewestSeen {
    /// The state that a reply must know at least, if its call is sent now.
    pub(super) fn get(&self) -> Option<ReplyHeader> {
        self.seen().newest
    }

    /// Whether the last executed call was one without knowledge of the newest state.
    pub(super) fn is_behind(&self) -> bool {
        self.seen().behind.is_some()
    }

    /// For how long all endpoints that execute calls have not known the newest state; `None` if
    /// that may be a change of etcd's leader.
    pub(super) fn behind_for(&self, now: Moment) -> Option<Duration> {
        let seen = self.seen();
        let behind = seen.behind.as_ref()?;
        let time = behind.last.since(behind.first);
        (time >= LOST_AFTER_TIME && now.since(behind.last) <= MAX_PAUSE).then_some(time)
    }

    /// Whether a reply counts. `sent` is the newest state at the sending of the call.
    pub(super) fn admit(&self, sent: Option<ReplyHeader>, reply: Reply, now: Moment) -> bool {
        let mut seen = self.seen();
        // Calls that are executed at the same time have an order, in which their replies need not
        // arrive. The others may be answered by a leader that was deposed since the sending, and by
        // way of a member that has yet to hear of the newest revision.
        let least = if reply.is_executed {
            sent
        } else {
            let any_revision = |newest| ReplyHeader {
                revision: 0,
                ..newest
            };
            seen.newest.map(any_revision)
        };
        if !least.is_some_and(|least| is_behind(least, reply.header)) {
            seen.add(reply);
            return true;
        }
        let is_lost = reply.is_executed && seen.is_lost(reply, now);
        drop(seen);
        if is_lost && self.lost.admit(now).is_some() {
            tracing::warn!(
                "etcd was replaced, or has lost data: its endpoints do not know its newest state \
                 any more"
            );
        }
        if let Some(time) = self.behind_for(now)
            && self.behind.admit(now).is_some()
        {
            tracing::warn!(seconds = time.as_secs(), "{BEHIND}");
        }
        is_lost
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Every statement leaves it consistent.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All endpoints that answer are behind, but not enough of them to believe it.
const BEHIND: &str = "every endpoint of etcd that answers knows less than this server has seen, so \
                      its replies are ignored; if etcd was restored from a backup, restart the \
                      servers";

impl Seen {
    fn add(&mut self, reply: Reply) {
        let Reply {
            header,
            is_executed,
            ..
        } = reply;
        let newest = self.newest.get_or_insert(header);
        if header.cluster == newest.cluster {
            newest.raft_term = newest.raft_term.max(header.raft_term);
            newest.revision = newest.revision.max(header.revision);
            if is_executed {
                self.behind = None;
            }
        }
    }

    /// Whether this executed call, which is behind, shows that the newest state is lost.
    fn is_lost(&mut self, reply: Reply, now: Moment) -> bool {
        let (endpoint, endpoints) = reply.endpoint;
        let earlier = self.behind.take();
        let earlier = earlier.filter(|it| now.since(it.last) <= MAX_PAUSE);
        let mut behind = earlier.unwrap_or_else(|| Behind {
            first: now,
            last: now,
            calls: 0,
            endpoints: BTreeSet::new(),
        });
        behind.last = behind.last.max(now);
        behind.calls = behind.calls.saturating_add(1);
        behind.endpoints.insert(endpoint);
        let is_lost = behind.calls >= LOST_AFTER
            && behind.last.since(behind.first) >= LOST_AFTER_TIME
            && behind.endpoints.len() > endpoints / 2;
        if is_lost {
            *self = Self::default();
            self.add(reply);
        } else {
            self.behind = Some(behind);
        }
        is_lost
    }
}

fn is_behind(least: ReplyHeader, header: ReplyHeader) -> bool {
    header.cluster != least.cluster
        || header.raft_term < least.raft_term
        || header.revision < least.revision
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::testing::Log;

    const fn header(raft_term: u64, revision: u64) -> ReplyHeader {
        ReplyHeader {
            cluster: 1,
            raft_term,
            revision,
        }
    }

    const NEWEST: ReplyHeader = header(5, 20);

    fn of(endpoint: usize, header: ReplyHeader) -> Reply {
        Reply {
            header,
            is_executed: true,
            endpoint: (endpoint, 3),
        }
    }

    fn by_one_member(header: ReplyHeader) -> Reply {
        Reply {
            is_executed: false,
            ..of(0, header)
        }
    }

    fn second(n: u64) -> Moment {
        Moment::ORIGIN.after(Duration::from_secs(n))
    }

    /// A call that is answered before the next one is sent, at a second.
    fn call_at(newest: &NewestSeen, n: u64, reply: Reply) -> bool {
        newest.admit(newest.get(), reply, second(n))
    }

    fn call(newest: &NewestSeen, reply: Reply) -> bool {
        call_at(newest, 0, reply)
    }

    fn seen() -> NewestSeen {
        let newest = NewestSeen::default();
        assert!(call(&newest, of(0, NEWEST)));
        newest
    }

    #[test]
    fn reply_that_knows_less_is_ignored() {
        let newest = seen();
        for behind in [
            header(4, 20),
            header(4, 99),
            ReplyHeader {
                cluster: 2,
                ..header(9, 99)
            },
            ReplyHeader::default(),
        ] {
            assert!(!call(&newest, by_one_member(behind)), "{behind:?}");
            assert!(!call(&newest, of(0, behind)), "{behind:?}");
        }
        assert!(!call(&newest, of(0, header(5, 19))));
        // The member lags behind its leader, which renewed the lease.
        assert!(call(&newest, by_one_member(header(5, 19))));
        assert!(call(&newest, of(0, header(6, 21))));
        assert!(!call(&newest, by_one_member(NEWEST)));
    }

    #[test]
    fn concurrent_transactions_may_arrive_in_any_order() {
        let newest = seen();
        let sent = newest.get();
        assert!(call(&newest, of(0, header(6, 22))));
        assert!(newest.admit(sent, of(0, header(5, 21)), second(0)));
        // One member alone may have been deposed since.
        assert!(!newest.admit(sent, by_one_member(header(5, 21)), second(0)));
    }

    #[test]
    fn deposed_leader_never_means_lost_data() {
        let newest = seen();
        for n in 0..100 {
            assert!(!call_at(&newest, n, by_one_member(header(4, 19))));
        }
        assert_eq!(newest.behind_for(second(100)), None);
    }

    #[test]
    fn restored_member_never_means_lost_data_beside_others() {
        // The others do not answer.
        let newest = seen();
        for n in 0..100 {
            assert!(!call_at(&newest, n, of(2, header(4, 19))));
        }
        // One of them does.
        let newest = seen();
        for n in 0..100 {
            assert!(!call_at(&newest, n, of(2, header(4, 19))));
            assert!(!call_at(&newest, n, of(1, header(4, 19))));
            assert!(call_at(&newest, n, of(0, NEWEST)));
        }
    }

    #[test]
    fn data_is_lost_when_most_endpoints_know_less_for_a_while() {
        let rebuilt = header(2, 3);
        let replaced = ReplyHeader {
            cluster: 7,
            ..rebuilt
        };
        for after in [rebuilt, replaced] {
            let newest = seen();
            for n in 0..10 {
                assert!(!call_at(&newest, n, of(0, after)));
                assert!(!call_at(&newest, n, of(1, after)));
                // The member that passes it on is not behind, but what it tells is its own.
                assert!(call_at(&newest, n, by_one_member(header(5, 19))));
            }
            assert!(call_at(&newest, 10, of(1, after)));
            assert!(call_at(&newest, 10, by_one_member(after)));
        }
    }

    #[test]
    fn data_of_a_single_endpoint_is_lost_after_several_calls() {
        let newest = seen();
        let alone = Reply {
            endpoint: (0, 1),
            ..of(0, header(2, 3))
        };
        let admitted = [0, 10, 10].map(|n| call_at(&newest, n, alone));
        assert_eq!(admitted, [false, false, true]);
    }

    #[test]
    fn calls_before_a_suspend_do_not_count() {
        let newest = seen();
        let alone = Reply {
            endpoint: (0, 1),
            ..of(0, header(2, 3))
        };
        let times = [0, 1, 3600, 3600, 3600, 3609];
        assert_eq!(times.map(|n| call_at(&newest, n, alone)), [false; 6]);
        assert!(call_at(&newest, 3610, alone));
    }

    #[test]
    fn only_restored_member_that_answers_is_warned_of() {
        let (log, _guard) = Log::capture();
        let newest = seen();
        for n in 0..50 {
            let behind = (n > 10).then(|| Duration::from_secs(n - 1));
            assert_eq!(newest.behind_for(second(n)), behind);
            call_at(&newest, n, of(2, header(4, 19)));
        }
        assert_eq!(log.count("if etcd was restored from a backup"), 1);
        assert_eq!(newest.behind_for(second(90)), None, "none answers");
        call_at(&newest, 50, of(2, header(4, 19)));
        call_at(&newest, 50, of(0, NEWEST));
        assert_eq!(newest.behind_for(second(50)), None);
    }
}
