use super::*;

const HEADER: &str = r#""header":{"cluster_id":"324952591200643719","member_id":"3319814642761637952","revision":"7","raft_term":"2"}"#;

const LEASE: LeaseId = LeaseId(2_324_035_561_073_571_591);

fn get(key: &str) -> Op {
    Op::Get(key.to_owned())
}

fn replied(call: &EtcdCall, rest: &str) -> Result<EtcdReply, String> {
    parsed(call, &format!("{{{HEADER}{rest}}}"))
}

fn parsed(call: &EtcdCall, body: &str) -> Result<EtcdReply, String> {
    Ok(reply(call, body.as_bytes())?.reply)
}

#[test]
fn lease_calls_carry_numbers_as_strings() {
    for (call, path, body) in [
        (
            EtcdCall::GrantLease { ttl: 5 },
            "/v3/lease/grant",
            r#"{"TTL":"5"}"#,
        ),
        (
            EtcdCall::KeepAlive(LEASE),
            "/v3/lease/keepalive",
            r#"{"ID":"2324035561073571591"}"#,
        ),
        (
            EtcdCall::TimeToLive(LEASE),
            "/v3/lease/timetolive",
            r#"{"ID":"2324035561073571591"}"#,
        ),
        (
            EtcdCall::RevokeLease(LEASE),
            "/v3/lease/revoke",
            r#"{"ID":"2324035561073571591"}"#,
        ),
    ] {
        let (to, value) = request(&call);
        assert_eq!((to, &*value.to_string()), (path, body));
    }
}

#[test]
fn transaction_is_written_with_base64_keys() {
    let txn = Txn {
        compare: vec![
            Compare::Created {
                key: "a".to_owned(),
                revision: 0,
            },
            Compare::Modified {
                key: "b".to_owned(),
                revision: 9,
            },
        ],
        success: vec![
            Op::Put {
                key: "a".to_owned(),
                value: b"v".to_vec(),
                lease: Some(LEASE),
            },
            Op::Delete("b".to_owned()),
            Op::DeletePrefix("p/".to_owned()),
        ],
        failure: vec![get("a"), Op::GetPrefix("p/".to_owned())],
    };
    let (path, body) = request(&EtcdCall::Txn(txn));
    assert_eq!(path, "/v3/kv/txn");
    let expected = json!({
        "compare": [
            {"target": "CREATE", "result": "EQUAL", "key": "YQ==", "create_revision": "0"},
            {"target": "MOD", "result": "EQUAL", "key": "Yg==", "mod_revision": "9"},
        ],
        "success": [
            {"request_put": {"key": "YQ==", "value": "dg==", "lease": "2324035561073571591"}},
            {"request_delete_range": {"key": "Yg==", "prev_kv": true}},
            {"request_delete_range": {"key": "cC8=", "range_end": "cDA=", "prev_kv": true}},
        ],
        "failure": [
            {"request_range": {"key": "YQ=="}},
            {"request_range": {"key": "cC8=", "range_end": "cDA="}},
        ],
    });
    assert_eq!(body, expected);
}

#[test]
fn empty_prefix_is_every_key() {
    assert_eq!(range(""), ("AA==".to_owned(), "AA==".to_owned()));
}

#[test]
fn lease_replies_are_read() {
    let grant = EtcdCall::GrantLease { ttl: 5 };
    assert_eq!(
        replied(&grant, r#","ID":"2324035561073571591","TTL":"5""#),
        Ok(EtcdReply::LeaseGranted {
            lease: LEASE,
            ttl: 5
        })
    );
    assert!(replied(&grant, "").is_err());
    let left = EtcdCall::TimeToLive(LEASE);
    for (rest, expected) in [
        (r#","ID":"1","TTL":"59","grantedTTL":"60""#, Some(59)),
        (r#","ID":"1","grantedTTL":"60""#, Some(0)),
        // Of a leader that has just been elected, and of one that was deposed.
        (r#","ID":"1","TTL":"61","grantedTTL":"60""#, Some(60)),
        (
            r#","ID":"1","TTL":"9223372036","grantedTTL":"60""#,
            Some(60),
        ),
        (r#","ID":"1","TTL":"-1""#, None),
    ] {
        assert_eq!(replied(&left, rest), Ok(EtcdReply::TimeLeft(expected)));
    }
    let revoke = EtcdCall::RevokeLease(LEASE);
    assert_eq!(replied(&revoke, ""), Ok(EtcdReply::LeaseRevoked));
}

#[test]
fn first_line_of_the_keep_alive_stream_is_read() {
    let call = EtcdCall::KeepAlive(LEASE);
    let kept = format!("{{\"result\":{{{HEADER},\"ID\":\"1\",\"TTL\":\"60\"}}}}\n");
    let twice = kept.repeat(2);
    for body in [&kept, &twice] {
        assert_eq!(parsed(&call, body), Ok(EtcdReply::KeptAlive(Some(60))));
    }
    let gone = format!("{{\"result\":{{{HEADER},\"ID\":\"1\"}}}}\n");
    assert_eq!(parsed(&call, &gone), Ok(EtcdReply::KeptAlive(None)));
    let not_found = r#"{"error":{"grpc_code":5,"http_code":404,"message":"requested lease not found","http_status":"Not Found"}}"#;
    assert_eq!(parsed(&call, not_found), Ok(EtcdReply::KeptAlive(None)));
    let error = r#"{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader","http_status":"Service Unavailable"}}"#;
    assert_eq!(
        parsed(&call, error),
        Err("etcdserver: no leader".to_owned())
    );
    assert!(parsed(&call, "").is_err());
}

#[test]
fn header_tells_term_and_revision() {
    let header = ReplyHeader {
        cluster: 324_952_591_200_643_719,
        raft_term: 2,
        revision: 7,
    };
    let lease = format!("{{{HEADER},\"ID\":\"1\",\"TTL\":\"60\"}}");
    let kept = format!("{{\"result\":{lease}}}");
    let read = EtcdCall::Txn(Txn::default());
    for (call, body) in [
        (EtcdCall::GrantLease { ttl: 60 }, &lease),
        (EtcdCall::KeepAlive(LEASE), &kept),
        (EtcdCall::TimeToLive(LEASE), &lease),
        (read, &lease),
    ] {
        let answer = reply(&call, body.as_bytes()).unwrap();
        assert_eq!(answer.header, header, "{call:?}");
    }
}

#[test]
fn results_of_a_transaction_are_in_the_order_of_its_operations() {
    let call = EtcdCall::Txn(Txn {
        success: vec![
            get("none"),
            get("a"),
            Op::Put {
                key: "b".to_owned(),
                value: Vec::new(),
                lease: None,
            },
            Op::Delete("c".to_owned()),
        ],
        ..Txn::default()
    });
    let responses = r#","succeeded":true,"responses":[
        {"response_range":{"header":{"revision":"7"}}},
        {"response_range":{"header":{"revision":"7"},"kvs":[{"key":"YQ==","create_revision":"2","mod_revision":"3","version":"2","value":"dg==","lease":"2324035561073571591"}],"count":"1"}},
        {"response_put":{"header":{"revision":"7"}}},
        {"response_delete_range":{"header":{"revision":"7"},"deleted":"1","prev_kvs":[{"key":"Yw==","create_revision":"4","mod_revision":"4","version":"1"}]}}]"#;
    let a = KeyValue {
        key: "a".to_owned(),
        value: b"v".to_vec(),
        created: 2,
        modified: 3,
        lease: Some(LEASE),
    };
    let c = KeyValue {
        key: "c".to_owned(),
        value: Vec::new(),
        created: 4,
        modified: 4,
        lease: None,
    };
    let expected = TxnReply {
        succeeded: true,
        revision: 7,
        results: vec![vec![], vec![a], vec![], vec![c]],
    };
    assert_eq!(replied(&call, responses), Ok(EtcdReply::Txn(expected)));
}

#[test]
fn refused_transaction_omits_succeeded() {
    let call = EtcdCall::Txn(Txn {
        success: vec![get("a"), get("b")],
        ..Txn::default()
    });
    let expected = TxnReply {
        succeeded: false,
        revision: 7,
        results: Vec::new(),
    };
    assert_eq!(replied(&call, ""), Ok(EtcdReply::Txn(expected)));
    assert!(replied(&call, r#","succeeded":true"#).is_err());
}

#[test]
fn other_json_is_an_error() {
    let call = EtcdCall::Txn(Txn::default());
    for body in ["", "{}", "[]", "null", r#"{"header":{"revision":7}}"#] {
        assert!(reply(&call, body.as_bytes()).is_err(), "{body}");
    }
    let read = EtcdCall::Txn(Txn {
        success: vec![get("a")],
        ..Txn::default()
    });
    let key = |key: &str| {
        format!(
            r#","succeeded":true,"responses":[{{"response_range":{{"kvs":[{{"key":"{key}"}}]}}}}]"#
        )
    };
    assert!(replied(&read, &key("YQ==")).is_ok());
    assert!(replied(&read, &key("not base64")).is_err());
    // Another program wrote it: it must not hide our own.
    assert!(replied(&read, &key("/w==")).is_ok());
}

#[test]
fn errors_of_etcd_are_recognized() {
    let parse = |text: &str| Failure::parse(text.as_bytes()).unwrap();
    let not_found = parse(
        r#"{"error":"etcdserver: requested lease not found","message":"etcdserver: requested lease not found","code":5}"#,
    );
    assert!(not_found.is_not_found());
    assert_eq!(not_found.message, "etcdserver: requested lease not found");
    for text in [
        r#"{"error":"etcdserver: invalid auth token","message":"etcdserver: invalid auth token","code":16}"#,
        r#"{"error":"etcdserver: user name is empty","message":"etcdserver: user name is empty","code":3}"#,
    ] {
        assert!(parse(text).is_of_token());
    }
    let disabled = parse(
        r#"{"error":"etcdserver: authentication is not enabled","message":"etcdserver: authentication is not enabled","code":9}"#,
    );
    assert!(disabled.is_without_authentication() && !disabled.is_of_token());
    assert!(Failure::parse(b"Not Found\n").is_none());
}

#[test]
fn alarm_of_any_member_means_no_space() {
    for (body, expected) in [
        ("{}", false),
        (r#"{"alarms":[]}"#, false),
        (r#"{"alarms":[{"memberID":"7","alarm":"CORRUPT"}]}"#, false),
        (
            r#"{"alarms":[{"memberID":"7"},{"memberID":"8","alarm":"NOSPACE"}]}"#,
            true,
        ),
    ] {
        let alarm = has_space_alarm(body.as_bytes());
        assert_eq!(alarm, Ok((expected, None)), "{body}");
    }
    let with_header = br#"{"header":{"cluster_id":"1","revision":"2","raft_term":"3"}}"#;
    let header = ReplyHeader {
        cluster: 1,
        raft_term: 3,
        revision: 2,
    };
    assert_eq!(has_space_alarm(with_header), Ok((false, Some(header))));
    assert!(has_space_alarm(b"[").is_err());
}
