//! Calls of an election in etcd.

use std::{sync::Arc, time::Duration};

use super::driver::Execute;
use crate::{
    etcd::EtcdClient,
    util::{clock, log_throttle::ProblemLog},
};
use doorman_core::election::EtcdElection;

/// Sends calls to etcd, each of which may take as long as `timeout`.
pub(super) fn execute(client: EtcdClient, timeout: Duration) -> Execute<EtcdElection> {
    let problem = Arc::new(ProblemLog::new(Duration::from_secs(60)));
    Box::new(move |call| {
        let (client, problem) = (client.clone(), Arc::clone(&problem));
        Box::pin(async move {
            match client.answer(call, timeout).await {
                Ok(answer) => {
                    if problem.note_end() {
                        tracing::info!("etcd answers again");
                    }
                    Some(answer)
                }
                Err(error) => {
                    if problem.note(clock::now()) {
                        tracing::warn!(%error, "etcd call failed; a master that cannot renew ends");
                    }
                    None
                }
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use doorman_core::{
        election::{Effect, Election, EtcdOptions, Event, Time},
        etcd::{EtcdCall, ReplyHeader},
    };
    use doorman_openapi::{Epoch, NodeId};

    use super::*;
    use crate::{
        etcd::testing::{Member, client},
        util::testing::Log,
    };

    const NEWEST: ReplyHeader = ReplyHeader {
        cluster: 1,
        raft_term: 5,
        revision: 20,
    };

    fn standby() -> EtcdElection {
        EtcdElection::new(EtcdOptions {
            prefix: "p".to_owned(),
            node: NodeId::new("n").unwrap(),
            ttl: 5,
            server_id: "a".to_owned(),
            address: "http://a".to_owned(),
            instance: 1,
            last_epoch: Epoch::new(7).ok(),
            had_election: true,
            stored_ledger: None,
            earlier_leases: None,
            longest: None,
            terms: Vec::new(),
            is_first: false,
        })
    }

    /// Polls once, and returns whether the server campaigns.
    async fn campaigns(election: &mut EtcdElection, client: &EtcdClient) -> bool {
        let time = Time {
            now: clock::now(),
            unix: 1,
        };
        let poll = election.handle(Event::Wake, time);
        let Some(Effect::Call { id: call, call: it }) = poll.into_iter().next() else {
            panic!("no poll");
        };
        let execute = execute(client.clone(), Duration::from_secs(10));
        let result = execute(it).await;
        let effects = election.handle(Event::Reply { call, result }, time);
        let is_grant = |it: &Effect<_>| {
            matches!(
                it,
                Effect::Call {
                    call: EtcdCall::GrantLease { .. },
                    ..
                }
            )
        };
        effects.iter().any(is_grant)
    }

    #[tokio::test]
    async fn standby_is_no_candidate_at_a_stale_member() {
        // Both have no key of a master. The standby's first poll is one that they answer.
        let newest = Member::with_header(NEWEST).await;
        let stale = ReplyHeader {
            raft_term: 4,
            ..NEWEST
        };
        let stale = Member::with_header(stale).await;
        for member in [&newest, &stale] {
            let one = r#"[{"response_range":{}}"#;
            let five = format!("[{}", [&one[1..]; 5].join(","));
            member.edit(move |reply| reply.replace(one, &five));
            member.edit(|reply| reply.replace("\"responses\"", "\"succeeded\":true,\"responses\""));
        }
        let client = client(&[&newest, &stale]);
        assert!(campaigns(&mut standby(), &client).await);
        client.begin_with(1);
        assert!(!campaigns(&mut standby(), &client).await);
    }

    #[tokio::test]
    async fn endpoint_that_fails_every_other_call_is_logged_once() {
        let (log, _guard) = Log::capture();
        let (good, failing) = (
            Member::with_header(NEWEST).await,
            Member::with_header(NEWEST).await,
        );
        failing.answer(|_| (500, String::new()));
        let client = client(&[&failing, &good]);
        let execute = execute(client.clone(), Duration::from_secs(10));
        for _ in 0..3 {
            client.begin_with(0);
            for is_ok in [false, true] {
                let renewal = execute(EtcdCall::GrantLease { ttl: 5 }).await;
                assert_eq!(renewal.is_some(), is_ok);
            }
        }
        assert_eq!(log.count("etcd call failed"), 1);
        assert_eq!(log.count("etcd answers again"), 1);
    }
}
