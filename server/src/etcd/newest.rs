//! The newest state of etcd that this server has seen, by which answers from the past are ignored.
//!
//! A leader of etcd that was deposed still tells what is left of leases. A member that was restored
//! or cut off from the others may even execute transactions. So a reply counts for nothing if it
//! knows less than an earlier one. A cluster that was replaced, or has lost its data, knows less,
//! too: it counts once more than half of the endpoints execute calls, and none knows the newest
//! state.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use doorman_core::etcd::ReplyHeader;

/// How many calls must be executed without knowledge of the newest state, until that is lost.
const LOST_AFTER: u32 = 3;

/// Shared by all calls to one cluster.
#[derive(Debug, Default)]
pub(super) struct NewestSeen(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// `None` before the first reply.
    newest: Option<ReplyHeader>,
    /// Endpoints that executed calls without knowing it, since the last reply that did, and how
    /// many calls.
    behind: BTreeSet<usize>,
    calls_behind: u32,
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

impl NewestSeen {
    /// What the reply to a call that is sent now must know.
    pub(super) fn get(&self) -> Option<ReplyHeader> {
        self.seen().newest
    }

    /// Whether a reply counts. `sent` is the newest state at the sending of the call.
    pub(super) fn admit(&self, sent: Option<ReplyHeader>, reply: Reply) -> bool {
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
        if least.is_some_and(|least| is_behind(least, reply.header)) {
            return seen.is_lost(reply);
        }
        seen.add(reply.header);
        true
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Every statement leaves it consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn add(&mut self, header: ReplyHeader) {
        let newest = self.newest.get_or_insert(header);
        if header.cluster == newest.cluster {
            newest.raft_term = newest.raft_term.max(header.raft_term);
            newest.revision = newest.revision.max(header.revision);
            self.behind.clear();
            self.calls_behind = 0;
        }
    }

    /// Whether this reply, which is behind, shows that the newest state is lost.
    fn is_lost(&mut self, reply: Reply) -> bool {
        if !reply.is_executed {
            return false;
        }
        let (endpoint, endpoints) = reply.endpoint;
        self.behind.insert(endpoint);
        self.calls_behind = self.calls_behind.saturating_add(1);
        let is_lost = self.calls_behind >= LOST_AFTER && self.behind.len() > endpoints / 2;
        if is_lost {
            tracing::warn!(
                "etcd was replaced, or has lost data: its endpoints do not know its newest state \
                 any more"
            );
            *self = Self::default();
            self.add(reply.header);
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

    /// A call that is answered before the next one is sent.
    fn call(newest: &NewestSeen, reply: Reply) -> bool {
        newest.admit(newest.get(), reply)
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
        assert!(newest.admit(sent, of(0, header(5, 21))));
        // One member alone may have been deposed since.
        assert!(!newest.admit(sent, by_one_member(header(5, 21))));
    }

    #[test]
    fn deposed_leader_never_means_lost_data() {
        let newest = seen();
        for _ in 0..100 {
            assert!(!call(&newest, by_one_member(header(4, 19))));
        }
    }

    #[test]
    fn stale_member_never_means_lost_data_beside_others() {
        // The others do not answer.
        let newest = seen();
        for _ in 0..100 {
            assert!(!call(&newest, of(2, header(4, 19))));
        }
        // One of them does.
        let newest = seen();
        for _ in 0..100 {
            assert!(!call(&newest, of(2, header(4, 19))));
            assert!(!call(&newest, of(1, header(4, 19))));
            assert!(call(&newest, of(0, NEWEST)));
        }
    }

    #[test]
    fn data_is_lost_when_most_endpoints_know_less() {
        let rebuilt = header(2, 3);
        let replaced = ReplyHeader {
            cluster: 7,
            ..rebuilt
        };
        for after in [rebuilt, replaced] {
            let newest = seen();
            let endpoints = [0, 1, 0];
            let admitted = endpoints.map(|it| call(&newest, of(it, after)));
            assert_eq!(admitted, [false, false, true]);
            assert!(call(&newest, by_one_member(after)));
        }
        // Of a single endpoint.
        let newest = seen();
        let alone = Reply {
            endpoint: (0, 1),
            ..of(0, rebuilt)
        };
        let admitted = [(); 3].map(|()| call(&newest, alone));
        assert_eq!(admitted, [false, false, true]);
    }
}
