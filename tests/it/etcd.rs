//! The client of etcd with real etcd.

use std::{fs, time::Duration};

use doorman_core::etcd::{Compare, EtcdCall, EtcdReply, KeyValue, LeaseId, Op, Txn, TxnReply};
use doorman_server::etcd::{EtcdClient, EtcdError, EtcdSettings, EtcdUser};

use crate::support::{Authority, Etcd};

/// Enough for every call to etcd that answers.
const TIME: Duration = Duration::from_secs(10);

async fn grant(client: &EtcdClient, ttl: u32) -> LeaseId {
    match client.call(EtcdCall::GrantLease { ttl }, TIME).await {
        Ok(EtcdReply::LeaseGranted { lease, .. }) => lease,
        other => panic!("no lease: {other:?}"),
    }
}

async fn transact(client: &EtcdClient, txn: Txn) -> Result<TxnReply, EtcdError> {
    match client.call(EtcdCall::Txn(txn), TIME).await? {
        EtcdReply::Txn(reply) => Ok(reply),
        other => panic!("no reply to a transaction: {other:?}"),
    }
}

async fn get(client: &EtcdClient, key: &str) -> Result<Vec<KeyValue>, EtcdError> {
    let read = Txn {
        success: vec![Op::Get(key.to_owned())],
        ..Txn::default()
    };
    let reply = transact(client, read).await?;
    Ok(reply.results.concat())
}

fn put(key: &str, value: &[u8], lease: Option<LeaseId>) -> Op {
    Op::Put {
        key: key.to_owned(),
        value: value.to_vec(),
        lease,
    }
}

fn write(key: &str, value: &[u8]) -> Txn {
    Txn {
        success: vec![put(key, value, None)],
        ..Txn::default()
    }
}

#[tokio::test]
async fn lease_lives_until_it_is_revoked() {
    let etcd = Etcd::start();
    let client = etcd.client();
    let lease = grant(&client, 60).await;
    let keep_alive = client.call(EtcdCall::KeepAlive(lease), TIME).await;
    assert_eq!(keep_alive, Ok(EtcdReply::KeptAlive(Some(60))));
    let left = client.call(EtcdCall::TimeToLive(lease), TIME).await;
    let Ok(EtcdReply::TimeLeft(Some(50..=60))) = left else {
        panic!("{left:?}");
    };
    let attach = Txn {
        success: vec![put("a", b"1", Some(lease)), put("b", b"", None)],
        ..Txn::default()
    };
    transact(&client, attach).await.expect("it is written");
    assert_eq!(
        get(&client, "a").await.expect("a reply")[0].lease,
        Some(lease)
    );

    for _ in 0..2 {
        let revoked = client.call(EtcdCall::RevokeLease(lease), TIME).await;
        assert_eq!(revoked, Ok(EtcdReply::LeaseRevoked));
    }
    assert_eq!(get(&client, "a").await, Ok(Vec::new()));
    assert_eq!(get(&client, "b").await.expect("a reply").len(), 1);
    let keep_alive = client.call(EtcdCall::KeepAlive(lease), TIME).await;
    assert_eq!(keep_alive, Ok(EtcdReply::KeptAlive(None)));
    let left = client.call(EtcdCall::TimeToLive(lease), TIME).await;
    assert_eq!(left, Ok(EtcdReply::TimeLeft(None)));
    let attach = Txn {
        success: vec![put("a", b"2", Some(lease))],
        ..Txn::default()
    };
    let error = transact(&client, attach).await.expect_err("no lease");
    let text = format!(
        "{}: etcdserver: requested lease not found",
        etcd.endpoint(0)
    );
    assert_eq!(error.to_string(), text);
    assert!(!error.is_ambiguous());
}

#[tokio::test]
async fn expired_lease_deletes_its_keys() {
    let etcd = Etcd::start();
    let client = etcd.client();
    let lease = grant(&client, 2).await;
    let attach = Txn {
        success: vec![put("a", b"1", Some(lease))],
        ..Txn::default()
    };
    transact(&client, attach).await.expect("it is written");
    while get(&client, "a").await != Ok(Vec::new()) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let keep_alive = client.call(EtcdCall::KeepAlive(lease), TIME).await;
    assert_eq!(keep_alive, Ok(EtcdReply::KeptAlive(None)));
}

#[tokio::test]
async fn transaction_is_executed_if_all_comparisons_hold() {
    let etcd = Etcd::start();
    let client = etcd.client();
    let create = Txn {
        compare: vec![Compare::Created {
            key: "p/a".to_owned(),
            revision: 0,
        }],
        success: vec![
            put("p/a", b"1", None),
            put("p/b", b"\0\xff", None),
            put("q", b"", None),
        ],
        failure: vec![Op::Get("p/a".to_owned())],
    };
    let created = transact(&client, create.clone()).await.expect("a reply");
    assert!(created.succeeded);
    assert_eq!(created.results, [vec![], vec![], vec![]]);
    let again = transact(&client, create).await.expect("a reply");
    assert!(!again.succeeded);
    let found = &again.results[0][0];
    assert_eq!((&*found.key, &*found.value), ("p/a", &b"1"[..]));
    assert_eq!(
        (found.created, found.modified),
        (created.revision, created.revision)
    );

    let change = |revision| Txn {
        compare: vec![Compare::Modified {
            key: "p/a".to_owned(),
            revision,
        }],
        success: vec![put("p/a", b"2", None)],
        failure: Vec::new(),
    };
    let stale = transact(&client, change(created.revision - 1)).await;
    assert!(!stale.expect("a reply").succeeded);
    let current = transact(&client, change(created.revision)).await;
    assert!(current.expect("a reply").succeeded);

    let clear = Txn {
        success: vec![
            Op::GetPrefix("p/".to_owned()),
            Op::DeletePrefix("p/".to_owned()),
            Op::Delete("q".to_owned()),
            Op::Delete("none".to_owned()),
        ],
        ..Txn::default()
    };
    let cleared = transact(&client, clear).await.expect("a reply");
    let values: Vec<Vec<_>> = (cleared.results.iter())
        .map(|keys| keys.iter().map(|it| (&*it.key, &*it.value)).collect())
        .collect();
    let both = vec![("p/a", &b"2"[..]), ("p/b", &b"\0\xff"[..])];
    assert_eq!(values, [both.clone(), both, vec![("q", &b""[..])], vec![]]);
    assert_eq!(get(&client, "p/a").await, Ok(Vec::new()));
}

#[tokio::test]
async fn user_authenticates_with_the_password_in_a_file() {
    let mut etcd = Etcd::start();
    let early = etcd.client();
    etcd.enable_authentication("doorman", "secret-1");
    let error = get(&early, "a").await.expect_err("no user");
    assert!(
        error
            .to_string()
            .ends_with("etcdserver: user name is empty"),
        "{error}"
    );

    let client = etcd.client();
    assert_eq!(get(&client, "a").await, Ok(Vec::new()));
    // A new password invalidates the tokens of the user.
    etcd.set_password("doorman", "secret-2");
    let error = get(&client, "a").await.expect_err("a wrong password");
    assert!(
        error.to_string().contains("invalid user ID or password"),
        "{error}"
    );
    assert!(!format!("{error:?} {client:?}").contains("secret"));
    fs::write(etcd.file("password"), "secret-2").expect("it is writable");
    assert_eq!(get(&client, "a").await, Ok(Vec::new()));

    fs::remove_file(etcd.file("password")).expect("it exists");
    assert_eq!(
        get(&client, "a").await,
        Ok(Vec::new()),
        "the token is still valid"
    );
    let missing = EtcdClient::new(&etcd.settings()).expect_err("no password");
    let flag = format!("--etcd-password-file {}", etcd.file("password"));
    assert!(missing.to_string().starts_with(&flag), "{missing}");
}

#[tokio::test]
async fn token_is_renewed_when_etcd_no_longer_knows_it() {
    let mut etcd = Etcd::start();
    etcd.enable_authentication("doorman", "secret");
    let client = etcd.client();
    transact(&client, write("a", b"1"))
        .await
        .expect("it is written");
    etcd.ctl(&["auth", "disable"]);
    assert_eq!(get(&client, "a").await.expect("a reply").len(), 1);
    etcd.ctl(&["auth", "enable"]);
    let read = || get(&client, "a");
    let (one, other) = tokio::join!(read(), read());
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");

    etcd.kill(0);
    etcd.restart(0);
    // Connections to the killed process end with the first call.
    drop(get(&client, "a").await);
    assert_eq!(get(&client, "a").await.expect("a reply").len(), 1);
}

#[tokio::test]
async fn user_is_accepted_where_authentication_is_disabled() {
    let etcd = Etcd::start();
    fs::write(etcd.file("password"), "secret").expect("it is writable");
    let settings = EtcdSettings {
        user: Some(EtcdUser {
            name: "doorman".to_owned(),
            password_file: etcd.file("password").into(),
        }),
        ..etcd.settings()
    };
    let client = EtcdClient::new(&settings).expect("valid settings");
    assert_eq!(get(&client, "a").await, Ok(Vec::new()));
}

#[tokio::test]
async fn endpoints_and_clients_are_verified_with_tls() {
    let authority = Authority::new();
    let etcd = Etcd::start_encrypted(&authority);
    assert_eq!(get(&etcd.client(), "a").await, Ok(Vec::new()));

    let other = etcd.file("other.pem");
    fs::write(&other, Authority::new().pem()).expect("it is writable");
    for settings in [
        EtcdSettings {
            ca_file: Some(other.clone().into()),
            ..etcd.settings()
        },
        EtcdSettings {
            certificate: None,
            ..etcd.settings()
        },
    ] {
        let client = EtcdClient::new(&settings).expect("valid settings");
        let error = get(&client, "a").await.expect_err("not trusted");
        assert!(error.to_string().starts_with(etcd.endpoint(0)), "{error}");
        assert!(
            error.to_string().to_lowercase().contains("certificate"),
            "{error}"
        );
    }
    for (settings, flag) in [
        (
            EtcdSettings {
                ca_file: Some(etcd.file("etcd.key").into()),
                ..etcd.settings()
            },
            "--etcd-ca-file",
        ),
        (
            EtcdSettings {
                certificate: Some((etcd.file("etcd.crt").into(), other.into())),
                ..etcd.settings()
            },
            "--etcd-cert",
        ),
    ] {
        let error = EtcdClient::new(&settings).expect_err("no such PEM");
        assert!(error.to_string().starts_with(flag), "{error}");
    }
}

#[tokio::test]
async fn certificates_are_replaced_without_a_restart_of_the_client() {
    let mut etcd = Etcd::start_encrypted(&Authority::new());
    let client = etcd.client();
    assert_eq!(get(&client, "a").await, Ok(Vec::new()));
    etcd.kill(0);
    fs::write(etcd.file("ca.pem"), "no PEM").expect("it is writable");
    get(&client, "a").await.expect_err("etcd is away");
    etcd.issue_certificates(&Authority::new());
    etcd.restart(0);
    until_ok(&client).await;
}

/// Reads until a call succeeds.
async fn until_ok(client: &EtcdClient) {
    for _ in 0..600 {
        if get(client, "a").await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no call succeeds: {:?}", get(client, "a").await);
}

#[tokio::test]
async fn frozen_or_killed_member_costs_one_call() {
    let mut etcd = Etcd::start_cluster();
    let follower = (etcd.leader() + 1) % 3;
    let clients: Vec<_> = (0..6).map(|_| etcd.client()).collect();
    for client in &clients {
        assert_eq!(get(client, "a").await, Ok(Vec::new()));
    }
    etcd.pause(follower);
    let read = || {
        EtcdCall::Txn(Txn {
            success: vec![Op::Get("a".to_owned())],
            ..Txn::default()
        })
    };
    for client in &clients {
        if let Err(error) = client.call(read(), Duration::from_millis(500)).await {
            let text = format!("{}: no answer within 500 ms", etcd.endpoint(follower));
            assert_eq!(error.to_string(), text);
            assert!(error.is_ambiguous());
        }
        client
            .call(read(), TIME)
            .await
            .expect("the next endpoint answers");
    }
    etcd.resume(follower);
    etcd.kill(follower);
    for _ in 0..6 {
        let client = etcd.client();
        if let Err(error) = client.call(read(), TIME).await {
            assert!(
                error.to_string().starts_with(etcd.endpoint(follower)),
                "{error}"
            );
            assert!(!error.is_ambiguous(), "{error}");
        }
        client
            .call(read(), TIME)
            .await
            .expect("the next endpoint answers");
    }
}

#[tokio::test]
async fn calls_without_quorum_end_in_time_and_succeed_with_it() {
    let mut etcd = Etcd::start_cluster();
    let client = etcd.client();
    transact(&client, write("a", b"1"))
        .await
        .expect("it is written");
    etcd.kill(0);
    etcd.kill(1);
    for _ in 0..6 {
        let call = EtcdCall::Txn(write("a", b"2"));
        let result = client.call(call, Duration::from_millis(200)).await;
        result.expect_err("no quorum");
    }
    etcd.restart_all();
    while let Err(error) = get(&client, "a").await {
        assert!(error.to_string().starts_with("http://"), "{error}");
    }
    etcd.rebuild();
    while get(&client, "a").await != Ok(Vec::new()) {}
}

#[tokio::test]
async fn large_values_are_refused_by_etcd() {
    let etcd = Etcd::start();
    let client = etcd.client();
    transact(&client, write("a", &[b'x'; 1_400_000]))
        .await
        .expect("it is written");
    for bytes in [1_600_000, 3_000_000] {
        let error = transact(&client, write("a", &vec![b'x'; bytes])).await;
        let error = error.expect_err("too large");
        assert!(error.is_too_large() && !error.is_ambiguous(), "{error}");
    }
    assert_eq!(
        get(&client, "a").await.expect("a reply")[0].value.len(),
        1_400_000
    );
}

#[tokio::test]
async fn program_that_is_not_etcd_is_an_error() {
    let plane = crate::support::ControlPlane::start(crate::support::DOCUMENT);
    let settings = EtcdSettings {
        endpoints: vec![plane.address().parse().expect("a URL")],
        user: None,
        ca_file: None,
        certificate: None,
    };
    let client = EtcdClient::new(&settings).expect("valid settings");
    let error = get(&client, "a").await.expect_err("no etcd");
    assert!(
        error.to_string().contains("is its JSON gateway enabled?"),
        "{error}"
    );
}
