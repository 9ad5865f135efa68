//! The client with scripted members.

use doorman_core::etcd::{LeaseId, Op, Txn};

use super::*;
use crate::{
    etcd::testing::{Member, client, client_without_space, no_space, reply_to},
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

fn read() -> EtcdCall {
    EtcdCall::Txn(Txn {
        failure: vec![Op::Get("a".to_owned())],
        ..Txn::default()
    })
}

async fn pass(seconds: u64) {
    time::pause();
    time::advance(Duration::from_secs(seconds)).await;
    time::resume();
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
    for _ in 0..4 {
        client.call(read(), TIME).await.unwrap_err();
    }
    pass(10).await;
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
    full.answer(|_| no_space());
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
    let client = client_without_space().await;
    // From now on no call is answered in time.
    time::pause();
    let waited = async |is_master: bool| {
        let began = clock::now();
        client.wait_for_space(|| is_master).await;
        clock::now().since(began).as_secs()
    };
    assert_eq!(waited(false).await, 0);
    assert_eq!(waited(true).await, 30);
    assert_eq!(log.count("stopping without a successor"), 1);
}

#[tokio::test]
async fn planned_stop_asks_the_next_endpoint_for_space() {
    let (log, _guard) = Log::capture();
    let full = Member::start(|_| no_space()).await;
    let (silent, _listener) = Member::silent();
    let client = client(&[&full, &silent, &full]);
    let grant = client.call(EtcdCall::GrantLease { ttl: 5 }, TIME).await;
    grant.unwrap_err();
    full.answer(|_| (200, "{}".to_owned()));
    client.begin_with(1);
    client.wait_for_space(|| true).await;
    assert!(!client.is_out_of_space());
    assert_eq!(log.count("the stop waits"), 0);
}

#[tokio::test]
async fn writes_show_whether_there_is_space_if_the_alarms_are_hidden() {
    let (log, _guard) = Log::capture();
    let member = Member::with_header(NEWEST).await;
    let client = client(&[&member]);
    let put = EtcdCall::Txn(Txn {
        failure: vec![Op::put("a".to_owned(), Vec::new(), None)],
        ..Txn::default()
    });
    let is_out_after = async |has_space: bool, call: EtcdCall| {
        member.answer(move |path| match path {
            "/v3/maintenance/alarm" => {
                let denied = r#"{"code":7,"message":"etcdserver: permission denied"}"#;
                (403, denied.to_owned())
            }
            "/v3/kv/txn" if has_space => {
                let put = r#"[{"response_put":{}}]"#;
                let range = r#"[{"response_range":{}}]"#;
                (200, reply_to(path, NEWEST).replace(range, put))
            }
            _ if has_space => (200, reply_to(path, NEWEST)),
            _ => no_space(),
        });
        client.call(call, TIME).await.ok();
        client.ask_for_space().await;
        client.is_out_of_space()
    };
    for write in [put, EtcdCall::GrantLease { ttl: 5 }] {
        assert!(is_out_after(false, write.clone()).await);
        // A renewal needs no space.
        assert!(is_out_after(true, EtcdCall::KeepAlive(LeaseId(1))).await);
        assert!(!is_out_after(true, write).await);
    }
    assert_eq!(log.count("permission denied"), 1);
    assert_eq!(log.count("etcd is out of space"), 1);
    assert_eq!(log.count("etcd has space for writes again"), 1);
}

#[tokio::test]
async fn alarms_of_a_stale_member_count_for_nothing() {
    let member = Member::with_header(NEWEST).await;
    let client = client(&[&member]);
    client.call(read(), TIME).await.unwrap();
    assert_eq!(client.0.has_space_alarm(TIME).await, Ok(false));
    member.answer(|path| (200, reply_to(path, STALE)));
    client.0.has_space_alarm(TIME).await.unwrap_err();
}

#[tokio::test]
async fn alarms_are_listed_often_only_without_space() {
    let member = Member::with_header(NEWEST).await;
    let client = client(&[&member]);
    let follower = tokio::spawn(client.clone().follow_space());
    let lists = || {
        let calls = member.calls();
        let paths = calls.iter().map(|(path, _)| path.as_str());
        paths.filter(|it| *it == "/v3/maintenance/alarm").count()
    };
    let wait_for_lists = async |number| {
        while lists() < number {
            time::sleep(Duration::from_millis(1)).await;
        }
        // It takes note of the reply.
        client.call(read(), TIME).await.ok();
    };
    wait_for_lists(1).await;
    for _ in 0..4 {
        pass(5).await;
        client.call(read(), TIME).await.unwrap();
    }
    assert_eq!(lists(), 1);
    pass(10).await;
    wait_for_lists(2).await;
    member.answer(|_| no_space());
    let grant = client.call(EtcdCall::GrantLease { ttl: 5 }, TIME).await;
    grant.unwrap_err();
    for number in 3..6 {
        pass(2).await;
        wait_for_lists(number).await;
    }
    follower.abort();
}

#[tokio::test]
async fn balancer_gets_another_connection_after_a_stale_reply() {
    let (newest, stale) = (
        Member::with_header(NEWEST).await,
        Member::with_header(STALE).await,
    );
    let balancer = stale.before(&newest).await;
    let client = client(&[&newest, &balancer]);
    client.call(read(), TIME).await.unwrap();
    let mut answered = Vec::new();
    for _ in 0..3 {
        client.begin_with(1);
        answered.push(client.call(read(), TIME).await.is_ok());
    }
    // The second call tells the member to close the connection.
    assert_eq!(answered, [false, false, true]);
}
