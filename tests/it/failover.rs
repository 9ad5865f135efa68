//! Fail-over among the servers of a node, with real etcd.
//!
//! Election leases last 2 s where the rule does not depend on it.

use std::{process::Command, thread::sleep, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tower_doorman::{Cost, Doorman};

use crate::support::{
    Connection, Etcd, Master, Node, Process, Relay, Response, TIMEOUT, curl, doorman, now, until,
};

/// Leases of 20 s, which are booked for 21.
const DOCUMENT: &str = "
resources:
  - identifier_glob: api
    capacity: 100
    algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 1}
";
const CAPACITY: &str = "/v1/capacity";
const BRIEF: &[&str] = &["--election-ttl", "2"];
/// A master of an election lease of 2 s grants nothing this long after the last renewal.
const DEADLINE: Duration = Duration::from_millis(1900);
const POLL: Duration = Duration::from_millis(20);

/// A request for a lease. `held`: the lease held, and the epoch in which it was heard of.
fn request(client: &str, wants: f64, held: Option<(f64, u64)>) -> String {
    let mut resource = json!({"resource_id": "api", "wants": wants});
    let mut request = json!({"client_id": client});
    if let Some((capacity, epoch)) = held {
        resource["has"] = json!({"capacity": capacity});
        request["heard_epoch"] = epoch.into();
    }
    request["resources"] = json!([resource]);
    request.to_string()
}

fn is_grant(response: &Response) -> bool {
    response.status == 200
}

/// The lease that a master grants.
fn lease(node: &Node, master: Master, request: &str) -> Value {
    let response = node.post(master.server, CAPACITY, request);
    assert!(is_grant(&response), "{response:?}");
    let answer: Value = serde_json::from_str(&response.body).expect("JSON");
    assert_eq!(answer["epoch"], master.epoch);
    answer["resources"][0].clone()
}

/// Seconds until a master has learned all earlier leases; 0 if it does not learn.
fn learning(node: &Node, master: Master) -> f64 {
    let status = node.get(master.server, "/v1/status");
    status["learning_ends_in"].as_f64().unwrap_or_default()
}

/// A server remains master for some time.
fn assert_remains(node: &Node, master: Master, time: Duration) {
    let from = now();
    while now() - from < time {
        let current = node.master_after(0, TIMEOUT);
        assert_eq!(current, master);
        sleep(POLL);
    }
}

#[test]
fn master_resumed_after_its_deadline_rejects_queued_requests() {
    let etcd = Etcd::start();
    let (node, master) = Node::start(&etcd, DOCUMENT, BRIEF);
    let holders = (0..100).map(|index| {
        let address = node.address(master.server);
        let client = format!("client-{index}");
        let mut connection = Connection::open(address, TIMEOUT).expect("it listens");
        let first = request(&client, 1.0, None);
        connection.send(CAPACITY, Some(&first)).expect("it is open");
        assert!(is_grant(&connection.receive().expect("a response")));
        (connection, request(&client, 1.0, Some((1.0, master.epoch))))
    });
    let mut holders: Vec<_> = holders.collect();
    node.pause(master.server);
    for (connection, renewal) in &mut holders {
        connection
            .send(CAPACITY, Some(renewal))
            .expect("it is open");
    }
    let next = node.master_after(master.epoch, TIMEOUT);
    node.resume(master.server);
    for (connection, _) in &mut holders {
        let response = connection.receive().expect("a response");
        assert!(matches!(response.status, 307 | 503), "{response:?}");
        let headers = response.headers.to_lowercase();
        assert!(headers.contains("connection: close"), "{response:?}");
    }
    assert_remains(&node, next, DEADLINE);
}

#[test]
fn master_without_etcd_grants_nothing_after_its_deadline() {
    let etcd = Etcd::start();
    // A stall of etcd would end a reign as a partition does, so the election lease is longer here.
    let (node, master) = Node::start(&etcd, DOCUMENT, &["--election-ttl", "4"]);
    let deadline = Duration::from_millis(3900);
    let ask = || node.post(master.server, CAPACITY, &request("a", 10.0, None));
    assert!(is_grant(&ask()));
    let others: Vec<_> = (0..3).filter(|it| *it != master.server).collect();

    node.partition(master.server);
    let partitioned = now();
    let mut grants = 0;
    let next = loop {
        let sent = now();
        let response = ask();
        if is_grant(&response) {
            assert!(sent - partitioned < deadline, "{:?}", sent - partitioned);
            grants += 1;
        }
        if let Some(next) = others.iter().find_map(|other| node.as_master(*other)) {
            break next;
        }
        sleep(POLL);
    };
    assert!(grants > 0, "one lost renewal does not end a reign");
    assert!(next.epoch > master.epoch);
    assert!(!is_grant(&ask()));

    node.heal(master.server);
    let location = format!("location: {}{CAPACITY}\r\n", node.address(next.server));
    until("it follows the next master", || {
        let response = ask();
        response.status == 307 && response.headers.contains(&location)
    });
    assert_remains(&node, next, deadline);
}

#[test]
fn brief_outages_of_etcd_do_not_end_a_reign() {
    let etcd = Etcd::start_cluster();
    let (node, master) = Node::start(&etcd, DOCUMENT, &[]);
    assert_eq!(
        lease(&node, master, &request("a", 60.0, None))["reason"],
        "granted"
    );
    let held = Some((60.0, master.epoch));
    // Every request is granted in the same epoch.
    let serve_for = |time| {
        let from = now();
        while now() - from < time {
            let renewed = lease(&node, master, &request("a", 60.0, held));
            assert_eq!(renewed["gets"]["capacity"], 60.0);
            sleep(POLL);
        }
    };
    for _ in 0..3 {
        let leader = etcd.leader();
        etcd.pause(leader);
        serve_for(Duration::from_millis(1500));
        etcd.resume(leader);
        serve_for(Duration::from_millis(1500));
    }
    etcd.pause(0);
    etcd.pause(1);
    serve_for(Duration::from_secs(1));
    etcd.resume(0);
    etcd.resume(1);
    serve_for(Duration::from_secs(2));

    etcd.pause(0);
    etcd.pause(1);
    let paused = now();
    while now() - paused < Duration::from_secs(10) {
        let sent = now();
        let response = node.post(master.server, CAPACITY, &request("a", 60.0, held));
        let in_time = sent - paused < Duration::from_millis(4750);
        assert!(in_time || !is_grant(&response), "{response:?}");
        assert!((0..3).all(|it| node.as_master(it).is_none_or(|it| it == master)));
        sleep(POLL);
    }
    etcd.resume(0);
    etcd.resume(1);
    let next = node.master_after(master.epoch, TIMEOUT);
    // Holders keep their leases meanwhile, so others wait.
    assert!(learning(&node, next) > 0.0);
    let renewed = lease(&node, next, &request("a", 60.0, held));
    assert_eq!(renewed["gets"]["capacity"], 60.0);
    let newcomer = lease(&node, next, &request("b", 60.0, None));
    assert_eq!(newcomer["reason"], "pending");
}

#[test]
fn epoch_grows_and_leases_are_learned_after_etcd_lost_its_data() {
    let mut etcd = Etcd::start();
    let (mut node, master) = Node::start(&etcd, DOCUMENT, &[]);
    lease(&node, master, &request("a", 60.0, None));
    etcd.kill(0);
    etcd.restart(0);
    assert_remains(&node, master, Duration::from_secs(6));

    etcd.rebuild();
    let from = now();
    let next = node.master_after(master.epoch, TIMEOUT);
    // The longest lease counts from the beginning of the reign.
    let (left, since) = (learning(&node, next), (now() - from).as_secs_f64());
    assert!((21.0 - since..21.0).contains(&left), "{left}");
    until("its own bound covers them", || {
        let keys = etcd.ctl(&["get", "--prefix", "--keys-only", "doorman/leases/"]);
        keys.contains(&next.epoch.to_string())
    });
    node.kill(next.server);
    let last = node.master_after(next.epoch, TIMEOUT);
    assert!(learning(&node, last) > 0.0);
    let renewed = lease(&node, last, &request("a", 60.0, Some((60.0, master.epoch))));
    assert_eq!(renewed["gets"]["capacity"], 60.0);
    let newcomer = lease(&node, last, &request("b", 60.0, None));
    assert_eq!(newcomer["reason"], "pending");
}

/// A client that echoes every epoch that it hears of, also from polls.
#[test]
fn epoch_of_a_poll_confirms_no_claim_from_before_the_fail_over() {
    let mut etcd = Etcd::start();
    // The old master grants for some time after etcd has forgotten it.
    let (mut node, master) = Node::start(&etcd, DOCUMENT, &["--election-ttl", "10"]);
    let numbered = |client: &str, seq: u64, wants: f64, held| {
        let text = request(client, wants, held);
        let mut request: Value = serde_json::from_str(&text).expect("JSON");
        request["seq"] = seq.into();
        request.to_string()
    };
    let granted = lease(&node, master, &numbered("a", 1, 100.0, None));
    assert_eq!(granted["gets"]["capacity"], 100.0);

    node.partition(master.server);
    let others = (0..3).filter(|it| *it != master.server);
    // After a restart they believe the new etcd at once.
    others.clone().for_each(|other| node.kill(other));
    etcd.rebuild();
    others.clone().for_each(|other| node.start_server(other));
    let capacity =
        |master, request: &str| lease(&node, master, request)["gets"]["capacity"].clone();
    until("another server is elected", || {
        !etcd
            .ctl(&["get", "--keys-only", "doorman/epoch"])
            .is_empty()
    });
    let told = others.map(|other| node.get(other, "/v1/hints?client_id=a&wait=0")["epoch"].clone());
    let told = told.filter_map(|it| it.as_u64()).max();
    // Never delivered to the old master, and delayed until the next one serves.
    let late = numbered("a", 2, 100.0, Some((100.0, told.expect("a number"))));
    let held = Some((100.0, master.epoch));
    assert_eq!(capacity(master, &numbered("a", 3, 20.0, held)), 20.0);
    let held = Some((20.0, master.epoch));
    assert_eq!(capacity(master, &numbered("a", 4, 20.0, held)), 20.0);
    assert_eq!(capacity(master, &numbered("b", 1, 80.0, None)), 80.0);

    let next = node.master_after(master.epoch, TIMEOUT);
    node.post(next.server, CAPACITY, &late);
    let held = Some((20.0, next.epoch));
    lease(&node, next, &numbered("a", 5, 20.0, held));
    let newcomer = |seq| {
        let mut request: Value =
            serde_json::from_str(&numbered("c", seq, 100.0, None)).expect("JSON");
        request["heard_epoch"] = next.epoch.into();
        capacity(next, &request.to_string())
    };
    newcomer(1);
    // The others have 20 and 80.
    assert_eq!(newcomer(2), 0.0);
}

#[test]
fn third_master_learns_as_long_as_leases_of_the_first_last() {
    let document = |length| {
        format!(
            "
resources:
  - identifier_glob: api
    capacity: 100
    algorithm: {{kind: FAIR_SHARE, lease_length: {length}, refresh_interval: 1}}
"
        )
    };
    let etcd = Etcd::start();
    let (mut node, first) = Node::start(&etcd, &document(30), BRIEF);
    let before = now();
    lease(&node, first, &request("a", 60.0, None));
    let after = now();
    // Booked for 31.5 s. The key in etcd lives for up to 37 s: the bound is 3 s ahead, and all of
    // it is multiplied by 1.05 and rounded up. What is left of it is rounded, and multiplied by
    // 1.05.
    let check = |node: &Node, master| {
        let earlier = (now() - before).as_secs_f64();
        let left = learning(node, master);
        let later = (now() - after).as_secs_f64();
        let longest = 1.05 * (38.0 - earlier);
        assert!(
            31.5 - later <= left && left <= longest + 0.5,
            "{left} {longest}"
        );
    };
    node.set_document(&document(6));
    node.kill(first.server);
    let second = node.master_after(first.epoch, TIMEOUT);
    check(&node, second);
    until("the document is active", || {
        let held = Some((60.0, second.epoch));
        let renewed = lease(&node, second, &request("a", 60.0, held));
        assert_eq!(renewed["gets"]["capacity"], 60.0);
        renewed["gets"]["lease_length"] == 6.0
    });
    node.kill(second.server);
    let third = node.master_after(second.epoch, TIMEOUT);
    check(&node, third);
}

#[test]
fn stopped_master_hands_its_ledger_over() {
    let etcd = Etcd::start();
    let (mut node, master) = Node::start(&etcd, DOCUMENT, BRIEF);
    assert_eq!(
        lease(&node, master, &request("a", 80.0, None))["reason"],
        "granted"
    );
    let assert_inherited = |node: &Node, master| {
        assert_eq!(learning(node, master), 0.0);
        let view = node.get(master.server, "/v1/resources/api");
        let sums = (&view["sum_has"], &view["sum_wants"]);
        assert_eq!(sums, (&80.0.into(), &80.0.into()), "{view}");
    };
    node.request_stop(master.server);
    let next = node.master_after(master.epoch, TIMEOUT);
    node.wait(master.server);
    assert_inherited(&node, next);

    // Without another server the ledger waits in the data directory.
    let standby = 3 - master.server - next.server;
    node.terminate(standby);
    node.terminate(next.server);
    node.start_server(next.server);
    let last = node.master_after(next.epoch, TIMEOUT);
    assert_inherited(&node, last);
    let newcomer = lease(&node, last, &request("b", 80.0, None));
    assert_eq!(newcomer["gets"]["capacity"], 20.0);
    let renewed = lease(&node, last, &request("a", 80.0, Some((80.0, master.epoch))));
    assert_eq!(renewed["gets"]["capacity"], 50.0);
}

/// A probe or a view of a server, as text.
fn read(node: &Node, server: usize, path: &str) -> Response {
    curl(&[&format!("{}{path}", node.address(server))])
}

/// Waits until a server has noticed whether etcd has space, which may take 30 s.
fn wait_for_space(node: &Node, server: usize, is_out: bool, renew: impl Fn()) {
    let metric = format!("doorman_etcd_out_of_space {}\n", u8::from(is_out));
    let from = now();
    while !read(node, server, "/metrics").body.contains(&metric) {
        assert!(now() - from < 2 * TIMEOUT, "not {metric}");
        renew();
        sleep(Duration::from_millis(200));
    }
}

#[test]
fn planned_stop_waits_for_space_in_etcd() {
    let etcd = Etcd::start_with_little_space();
    let (mut node, master) = Node::start(&etcd, DOCUMENT, BRIEF);
    lease(&node, master, &request("a", 80.0, None));
    wait_for_space(&node, master.server, false, || ());
    etcd.fill();
    let held = Some((80.0, master.epoch));
    // The bound in etcd ends with the last lease, and another one would need space.
    let renew = || drop(lease(&node, master, &request("a", 80.0, held)));
    wait_for_space(&node, master.server, true, renew);
    let ready = read(&node, master.server, "/readyz");
    assert_eq!(ready.status, 200, "{ready:?}");
    assert!(ready.body.contains("etcd is out of space"), "{ready:?}");

    node.request_stop(master.server);
    until("the stop waits", || {
        node.output(master.server).contains("the stop waits")
    });
    assert_remains(&node, master, DEADLINE);
    let renewed = lease(&node, master, &request("a", 80.0, held));
    assert_eq!(renewed["gets"]["capacity"], 80.0, "{renewed}");

    etcd.free();
    let next = node.master_after(master.epoch, TIMEOUT);
    node.wait(master.server);
    assert_eq!(learning(&node, next), 0.0);
}

#[test]
fn no_master_for_want_of_space_fails_readiness() {
    let etcd = Etcd::start_with_little_space();
    let (mut node, master) = Node::start(&etcd, DOCUMENT, BRIEF);
    etcd.fill();
    let standby = (master.server + 1) % 3;
    wait_for_space(&node, standby, true, || ());
    assert_eq!(read(&node, standby, "/readyz").status, 200);

    node.kill(master.server);
    until("the standby is not ready", || {
        read(&node, standby, "/readyz").status == 503
    });
    let ready = read(&node, standby, "/readyz");
    assert!(ready.body.contains("etcd is out of space"), "{ready:?}");
    let output = node.output(standby);
    assert!(output.contains("etcdctl alarm disarm"), "{output}");

    etcd.free();
    let next = node.master_after(master.epoch, TIMEOUT);
    wait_for_space(&node, next.server, false, || ());
    assert_eq!(read(&node, next.server, "/readyz").status, 200);
}

/// Leases that a stopped master hands over. A thousand of each client.
const HANDOVER_LEASES: &str = "DOORMAN_HANDOVER_LEASES";
/// Enough for several parts of the transfer.
const DEFAULT_LEASES: usize = 20_000;

/// With `DOORMAN_HANDOVER_LEASES=1000000` it shows that a million leases are handed over, and what
/// that takes; use `--release`.
#[test]
fn stopped_master_hands_many_leases_over() {
    let leases = std::env::var(HANDOVER_LEASES).ok();
    let leases = leases.map_or(DEFAULT_LEASES, |it| it.parse().expect("a number"));
    let document = "
resources:
  - identifier_glob: '*'
    capacity: 1000000
    algorithm: {kind: FAIR_SHARE, lease_length: 600, refresh_interval: 60}
";
    let etcd = Etcd::start();
    let most = (leases + 1000).to_string();
    let args = ["--election-ttl", "2", "--max-leases", &most];
    let (mut node, master) = Node::start(&etcd, document, &args);
    let request = |client: usize| {
        let resources = (0..1000).map(|it| json!({"resource_id": format!("r{it}"), "wants": 1}));
        let resources: Vec<_> = resources.collect();
        json!({"client_id": format!("c{client}"), "seq": 1, "resources": resources}).to_string()
    };
    for client in 0..leases / 1000 {
        let response = node.post(master.server, CAPACITY, &request(client));
        assert!(is_grant(&response), "{response:?}");
    }
    let stopped = now();
    node.request_stop(master.server);
    let next = node.master_after(master.epoch, Duration::from_secs(300));
    let took = now() - stopped;
    assert_eq!(learning(&node, next), 0.0);
    assert_eq!(node.get(next.server, "/v1/status")["leases"], leases);
    let held = lease(
        &node,
        next,
        r#"{"client_id":"new","resources":[{"resource_id":"r0","wants":1e6}]}"#,
    );
    let free = 1e6 - (leases / 1000) as f64;
    assert_eq!(held["gets"]["capacity"], free);
    node.wait(master.server);
    let memory = node.peak_memory(next.server) >> 20;
    println!(
        "{leases} leases handed over in {took:?}; peak memory of the next master: {memory} MiB"
    );
}

#[test]
fn leases_are_learned_if_the_ledger_cannot_be_fetched() {
    let etcd = Etcd::start();
    let unreachable = ["--election-ttl", "2", "--advertise", "http://127.0.0.1:9"];
    let (mut node, master) = Node::start(&etcd, DOCUMENT, &unreachable);
    lease(&node, master, &request("a", 80.0, None));
    node.request_stop(master.server);
    let next = node.master_after(master.epoch, TIMEOUT);
    assert!(learning(&node, next) > 0.0);
    let newcomer = lease(&node, next, &request("b", 80.0, None));
    assert_eq!(newcomer["reason"], "pending");
    let renewed = lease(&node, next, &request("a", 80.0, Some((80.0, master.epoch))));
    assert_eq!(renewed["gets"]["capacity"], 80.0);
    let log = node.output(next.server);
    assert!(log.contains("cannot fetch the ledger"), "{log}");
    let metrics = curl(&[&format!("{}/metrics", node.address(next.server))]).body;
    let count = r#"doorman_handovers_total{outcome="unreachable"} 1"#;
    assert!(metrics.contains(count), "{metrics}");
    node.wait(master.server);
}

/// A document with leases of so many seconds.
fn with_leases_of(seconds: u32) -> String {
    DOCUMENT.replace("lease_length: 20", &format!("lease_length: {seconds}"))
}

/// Activates a document on all servers.
fn change(node: &Node, document: &str) {
    let before: Vec<_> = (0..3)
        .map(|it| node.get(it, "/v1/status")["config_version"].clone())
        .collect();
    node.set_document(document);
    until("all servers have the new document", || {
        let versions = (0..3).map(|it| node.get(it, "/v1/status")["config_version"].clone());
        versions
            .zip(&before)
            .all(|(version, before)| version != *before)
    });
}

#[test]
fn server_alone_learns_the_longest_lease_of_any_server() {
    let etcd = Etcd::start();
    let (mut node, master) = Node::start(&etcd, &with_leases_of(600), BRIEF);
    let granted = lease(&node, master, &request("a", 80.0, None));
    assert_eq!(granted["gets"]["lease_length"], 600.0);
    until("the standbys have heard of it", || {
        let key = etcd.ctl(&["get", "--prefix", "--keys-only", "doorman/longest/"]);
        key.contains("/630000000000")
    });
    sleep(Duration::from_millis(800));
    change(&node, &with_leases_of(10));
    (0..3).for_each(|server| node.kill(server));

    let alone = (master.server + 1) % 3;
    let started = now();
    node.start_alone(alone);
    let master = node.master_after(master.epoch, TIMEOUT);
    let (left, since) = (learning(&node, master), (now() - started).as_secs_f64());
    assert!((630.0 - since..630.0).contains(&left), "{left}");
    let newcomer = lease(&node, master, &request("b", 80.0, None));
    assert_eq!(newcomer["gets"]["capacity"], 0.0);
    let log = node.output(alone);
    assert!(!log.contains("--longest-lease"), "{log}");
}

#[test]
fn lost_data_of_etcd_is_learned_for_the_longest_lease_that_was_granted() {
    let mut etcd = Etcd::start();
    let (mut node, master) = Node::start(&etcd, &with_leases_of(600), BRIEF);
    lease(&node, master, &request("a", 80.0, None));
    sleep(Duration::from_millis(800));
    change(&node, &with_leases_of(10));
    node.kill(master.server);
    etcd.rebuild();
    let from = now();
    let next = node.master_after(master.epoch, TIMEOUT);
    let (left, since) = (learning(&node, next), (now() - from).as_secs_f64());
    assert!((630.0 - since..630.0).contains(&left), "{left}");
}

#[test]
fn units_of_earlier_leases_survive_all_servers_in_etcd() {
    let etcd = Etcd::start();
    let (mut node, master) = Node::start(&etcd, DOCUMENT, BRIEF);
    lease(&node, master, &request("a", 80.0, None));
    let terms = || etcd.ctl(&["get", "--prefix", "doorman/terms/"]);
    until("the terms are stored", || terms().contains(r#""per":1.0"#));
    (0..3).for_each(|server| node.kill(server));
    let per_minute = DOCUMENT.replace("capacity: 100", "capacity: 6000\n    per: 60");
    node.set_document(&per_minute);
    (0..3).for_each(|server| node.start_server(server));
    let next = node.master_after(master.epoch, TIMEOUT);
    until("both units are stored", || {
        let terms = terms();
        terms.contains(r#""per":1.0"#) && terms.contains(r#""per":60.0"#)
    });
    assert!(learning(&node, next) > 0.0);
}

/// The lease of a layer's only resource, the seconds that it lasts, and what is wanted of it.
fn lease_of(layer: &Doorman) -> (f64, f64, f64) {
    let snapshot = layer.snapshot();
    let limit = &snapshot.limits[0];
    let lease = limit.lease.expect("it has a lease");
    let parts = lease.capacity.zip(lease.expires_in);
    let (capacity, expires_in) = parts.expect("it is limited");
    (capacity, expires_in, limit.wants)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn layer_keeps_its_lease_over_fail_overs_behind_one_address() {
    let etcd = Etcd::start();
    let (mut node, mut master) = Node::start(&etcd, DOCUMENT, BRIEF);
    let balancer = Relay::balance(node.addresses());
    let layer = Doorman::builder(balancer.address()).service("test");
    let layer = layer.spawn().expect("valid settings");
    let rate = layer.rate("api");
    layer.ready(TIMEOUT).await.expect("a lease");
    let load = tokio::spawn(async move {
        loop {
            assert!(rate.try_acquire(Cost::ONE).is_ok());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    until("the demand is known", || lease_of(&layer).2 > 10.0);

    let stops: [fn(&mut Node, usize); 3] = [Node::kill, Node::terminate, |node, server| {
        node.pause(server);
    }];
    for (index, stop) in stops.into_iter().enumerate() {
        stop(&mut node, master.server);
        let next = node.master_after(master.epoch, TIMEOUT);
        let (_, mut expires_in, _) = lease_of(&layer);
        until("the next master renews the lease", || {
            let (capacity, left, _) = lease_of(&layer);
            assert!(capacity > 0.0);
            let is_renewed = left > expires_in + 0.5;
            expires_in = left;
            is_renewed
        });
        match index {
            2 => node.resume(master.server),
            _ => node.start_server(master.server),
        }
        master = next;
    }
    assert_remains(&node, master, DEADLINE);
    assert!(!load.is_finished(), "every request is admitted");
    load.abort();
}

/// Starts a server in a directory: alone, or with an election.
fn start(home: &TempDir, etcd: Option<&Etcd>) -> (Process, String) {
    let [config, data] = ["limits.yaml", "data"].map(|it| home.path().join(it));
    std::fs::write(&config, DOCUMENT).expect("it is writable");
    let (config, data) = (
        format!("file:{}", config.display()),
        data.display().to_string(),
    );
    let mut args = vec![
        "--listen",
        "127.0.0.1:0",
        "--config",
        &config,
        "--data-dir",
        &data,
    ];
    let endpoints = etcd.map(Etcd::endpoints);
    if let Some(endpoints) = &endpoints {
        args.extend(["--etcd-endpoints", endpoints]);
    }
    let mut process = Process::start(&doorman(), &args);
    let address = process.wait_for_address();
    (process, address)
}

#[test]
fn leases_are_learned_with_and_without_an_earlier_election() {
    let etcd = Etcd::start();
    let home = TempDir::new().expect("a temporary directory");
    let get = |address: &str, path| -> Value {
        let response = curl(&[&format!("{address}{path}")]);
        serde_json::from_str(&response.body).expect("JSON")
    };
    let ask = |address: &str, client: &str| -> Value {
        let url = format!("{address}{CAPACITY}");
        let body = request(client, 10.0, None);
        let json = "content-type: application/json";
        let response = curl(&[&url, "-H", json, "-d", &body]);
        let answer: Value = serde_json::from_str(&response.body).expect("JSON");
        answer["resources"][0]["reason"].clone()
    };
    let (alone, address) = start(&home, None);
    let granted = now();
    assert_eq!(ask(&address, "a"), "granted");
    let first = get(&address, "/v1/discovery")["epoch"].as_u64();
    alone.kill();

    let (elected, address) = start(&home, Some(&etcd));
    until("it is master", || {
        get(&address, "/v1/discovery")["is_master"] == true
    });
    let status = get(&address, "/v1/status");
    let learns = status["learning_ends_in"].as_f64().expect("it learns");
    let since = (now() - granted).as_secs_f64();
    // The bound is up to 5 s ahead of the lease.
    assert!((21.0 - since..26.5 - since).contains(&learns), "{learns}");
    assert_eq!(ask(&address, "b"), "pending");
    let second = status["epoch"].as_u64();
    assert!(second > first);
    elected.kill();

    let started = now();
    let (_alone, address) = start(&home, None);
    let status = get(&address, "/v1/status");
    let learns = status["learning_ends_in"].as_f64().expect("it learns");
    let since = (now() - started).as_secs_f64();
    assert!((21.0 - since..21.0).contains(&learns), "{learns}");
    assert_eq!(ask(&address, "c"), "pending");
    assert!(status["epoch"].as_u64() > second);
}

#[test]
fn other_name_of_the_node_is_rejected() {
    let etcd = Etcd::start();
    let (node, master) = Node::start(&etcd, DOCUMENT, &["--node", "blue"]);
    let home = TempDir::new().expect("a temporary directory");
    let data = home.path().join("data").display().to_string();
    let config = home.path().join("limits.yaml");
    std::fs::write(&config, DOCUMENT).expect("it is writable");
    let config = format!("file:{}", config.display());
    let output = Command::new(doorman())
        .args(["--listen", "127.0.0.1:0", "--config", &config])
        .args(["--etcd-endpoints", &etcd.endpoints()])
        .args(["--data-dir", &data, "--node", "green"])
        .output()
        .expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("--node blue"), "{stderr}");
    assert_eq!(node.get(master.server, "/v1/status")["node"], "blue");
}
