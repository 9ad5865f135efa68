//! The client with scripted members.

use doorman_core::etcd::{LeaseId, Op, Txn};

use super::*;
use crate::{
    etcd::testing::{Member, client, reply_to},
    util::testing::Log,
};

const TIME: Duration = Duration::from_secs(10);
const NEWEST: ReplyHeader = ReplyHeader {
    cluster: 1,
    raft_term: 5,
    revision: 20,
};
const STALE: ReplyHeader = ReplyHeader {
    raft_term: 4,
    revision: 10,
    ..NEWEST
};
const NO_SPACE: &str = r#"{"error":"etcdserver: mvcc: database space exceeded","message":"etcdserver: mvcc: database space exceeded","code":8}"#;

fn read() -> EtcdCall {
    EtcdCall::Txn(Txn {
        failure: vec![Op::Get("a".to_owned())],
        ..Txn::default()
    })
}

#[tokio::test]
async fn stale_reply_counts_for_nothing_and_the_next_endpoint_is_asked() {
    let (newest, stale) = (
        Member::with_header(NEWEST).await,
        Member::with_header(STALE).await,
    );
    let client = client(&[&newest, &stale]);
    client.call(read(), TIME).await.unwrap();
    // For long. Two endpoints know less only if both do.
    for _ in 0..20 {
        for call in [
            read(),
            EtcdCall::KeepAlive(LeaseId(1)),
            EtcdCall::TimeToLive(LeaseId(1)),
            EtcdCall::GrantLease { ttl: 5 },
        ] {
            client.begin_with(1);
            let error = client.call(call, TIME).await.unwrap_err();
            let reason = ": stale reply: this member knows less than another one did before";
            assert!(error.to_string().ends_with(reason), "{error}");
            assert!(error.is_ambiguous());
            client.call(read(), TIME).await.unwrap();
        }
    }
    assert_eq!((newest.calls().len(), stale.calls().len()), (81, 80));
}

#[tokio::test]
async fn etcd_that_lost_its_data_is_used_again() {
    let member = Member::with_header(NEWEST).await;
    let client = client(&[&member]);
    client.call(read(), TIME).await.unwrap();
    member.answer(|path| (200, reply_to(path, STALE)));
    // Those of one member alone never mean lost data.
    for _ in 0..10 {
        let renewal = client.call(EtcdCall::KeepAlive(LeaseId(1)), TIME).await;
        renewal.unwrap_err();
    }
    for _ in 0..2 {
        client.call(read(), TIME).await.unwrap_err();
    }
    client.call(read(), TIME).await.unwrap();
    client
        .call(EtcdCall::KeepAlive(LeaseId(1)), TIME)
        .await
        .unwrap();
}

#[tokio::test]
async fn want_of_space_is_noticed_until_any_endpoint_denies_it() {
    let (full, other) = (
        Member::with_header(NEWEST).await,
        Member::with_header(NEWEST).await,
    );
    full.answer(|_| (429, NO_SPACE.to_owned()));
    let client = client(&[&full, &other]);
    let grant = client.call(EtcdCall::GrantLease { ttl: 5 }, TIME).await;
    let error = grant.unwrap_err();
    assert!(error.is_refused() && !error.is_ambiguous(), "{error}");
    assert!(
        error.to_string().contains("etcdctl alarm disarm"),
        "{error}"
    );
    assert!(client.is_out_of_space());

    // The first endpoint cannot tell.
    full.answer(|_| (500, String::new()));
    other.answer(|_| (200, r#"{"alarms":[{"alarm":"NOSPACE"}]}"#.to_owned()));
    assert_eq!(client.0.has_space_alarm(TIME).await, Ok(true));
    other.answer(|_| (200, "{}".to_owned()));
    let planned = time::timeout(TIME, client.wait_for_space(|| true));
    planned.await.expect("there is space");
    assert!(!client.is_out_of_space());
    assert_eq!(other.calls().last().unwrap().0, "/v3/maintenance/alarm");
}

#[tokio::test]
async fn planned_stop_waits_thirty_seconds_for_space() {
    let (log, _guard) = Log::capture();
    let member = Member::with_header(NEWEST).await;
    member.answer(|_| (429, NO_SPACE.to_owned()));
    let client = client(&[&member]);
    let grant = client.call(EtcdCall::GrantLease { ttl: 5 }, TIME).await;
    grant.unwrap_err();
    // From now on no call is answered in time.
    time::pause();
    let waited = async |is_master: bool| {
        let began = clock::now();
        client.wait_for_space(|| is_master).await;
        clock::now().since(began).as_secs()
    };
    assert_eq!(waited(false).await, 0);
    assert!((30..35).contains(&waited(true).await));
    assert_eq!(log.count("stopping without a successor"), 1);
}
