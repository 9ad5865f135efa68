use super::*;

const VALID: &str = "
seconds: 60
servers: {count: 3, election_lease: 5}
document:
  resources:
    - {identifier_glob: db, capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 4}}
    - {identifier_glob: gauge, capacity: 100, unit: gauge, algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 4}}
clients:
  - {count: 2, resource: db, demand: {constant: {wants: 20}}}
";

fn error(text: &str) -> String {
    Scenario::parse(text, None).unwrap_err().to_string()
}

#[test]
fn valid_scenario_is_parsed() {
    let scenario = Scenario::parse(VALID, None).unwrap();
    assert_eq!((scenario.clients(), scenario.seconds()), (2, 60.0));
    let resource = &scenario.resources()[0];
    assert_eq!((resource.id.as_str(), resource.capacity), ("db", 100.0));
}

#[test]
fn given_document_replaces_that_of_the_scenario() {
    let text = VALID.replace("capacity: 100", "capacity: 7");
    let document =
        "resources: [{identifier_glob: '*', capacity: 30, algorithm: {kind: FAIR_SHARE}}]";
    let document = Document::parse(document).unwrap();
    let scenario = Scenario::parse(&text, Some(document)).unwrap();
    assert_eq!(scenario.resources()[0].capacity, 30.0);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn errors_name_the_field_and_what_is_right() {
    for (old, new, message) in [
        (
            "seconds: 60",
            "seconds: -1",
            "seconds: must be a number from 1 to 86400, not -1",
        ),
        (
            "seconds: 60",
            "seconds: 60\nsecond: 3",
            "second: unknown field `second`",
        ),
        ("seconds: 60", "", "missing field `seconds`"),
        ("seconds: 60", "seconds: [", ""),
        (
            "seconds: 60",
            "seconds: .nan",
            "line 2 column 10: non-finite float",
        ),
        (
            "seconds: 60",
            "seconds: 60\nmeasure_from: 61",
            "measure_from: must be a number from 0 to 60, not 61",
        ),
        (
            "seconds: 60",
            "seconds: 60.9\nmeasure_from: 60.5",
            "measure_from: must be a number from 0 to 60, not 60.5",
        ),
        (
            "count: 3",
            "count: 0",
            "servers.count: must be a number from 1 to 9, not 0",
        ),
        (
            "count: 3",
            "count: 1",
            "servers.election_lease: does not apply: a single server needs no election",
        ),
        (
            "resource: db",
            "resource: other",
            "clients[0].resource: no template of the document matches \"other\"",
        ),
        (
            "resource: db, ",
            "",
            "clients[0].resource: is missing; must be a resource id",
        ),
        (
            ", demand: {constant: {wants: 20}}",
            "",
            "clients[0].demand: is missing; must be a pattern, or `load` the name of a load",
        ),
        (
            "demand: {constant: {wants: 20}}",
            "load: front",
            "clients[0].load: no entry of loads has the name \"front\"",
        ),
        (
            "clients:",
            "loads: [{name: front, demand: {constant: {wants: 20}}}]\nclients:",
            "loads[0]: has no effect: no client has `load: front`",
        ),
        (
            "resource: db, demand: {constant: {wants: 20}}",
            "uses: [{resource: db, demand: {constant: {wants: -1}}}]",
            "clients[0].uses[0].demand.constant.wants: must be a number from 0 to",
        ),
        (
            "resource: db, demand: {constant: {wants: 20}}",
            "uses: []",
            "clients[0].uses: must be 1 to 16, not 0",
        ),
        (
            "resource: db,",
            "uses: [], resource: db,",
            "clients[0].uses: does not apply beside resource, priority, demand and load",
        ),
        (
            "resource: db, demand: {constant: {wants: 20}}",
            "uses: [{resource: db, demand: {constant: {wants: 1}}}, {resource: db, demand: {constant: {wants: 1}}}]",
            "clients[0].uses[1].resource: is used before; one use of a resource must have one priority",
        ),
        (
            "resource: db,",
            "resource: db, requests: often,",
            "clients[0].requests: unknown variant `often`, expected `even` or `random`",
        ),
        (
            "{wants: 20}}",
            "{wants: 1e7}}, requests: even",
            "clients: must send at most 100000000 requests in a run, not 1200000000",
        ),
        (
            "resource: db,",
            "resource: gauge, requests: even,",
            "clients[0].requests: does not apply: \"gauge\" is a gauge, and must have a target",
        ),
        (
            "resource: db,",
            "resource: db, start: {at: 61},",
            "clients[0].start.at: must be a number from 0 to 60, not 61",
        ),
        (
            "resource: db,",
            "resource: db, start: {at: 50, within: 5}, stop: {at: 40},",
            "clients[0].stop.at: must be a number from 55 to 60, not 40",
        ),
        (
            "seconds: 60",
            "seconds: 60\nchanges: [{at: 20, template: none, capacity: 5}]",
            "changes[0].template: must be the template of a used resource, not \"none\"",
        ),
        (
            "seconds: 60",
            "seconds: 60\nchanges: [{at: 20, template: db, capacity: 5}, {at: 10, template: db, capacity: 5}]",
            "changes[1].at: must be a number from 20 to 60, not 10",
        ),
        (
            "seconds: 60",
            "seconds: 60\nchanges: [{at: 20, template: db, capacity: -5}]",
            "changes[0].capacity: resources[0] \"db\": capacity: must be",
        ),
        (
            "resource: db",
            "resource: db, priority: 3",
            "clients[0].priority: does not apply: the algorithm of the resource",
        ),
        (
            "{wants: 20}",
            "{wants: -20}",
            "clients[0].demand.constant.wants: must be a number from 0 to",
        ),
        (
            "{wants: 20}",
            "{wants: 20, want: 3}",
            "clients[0].demand.constant.want: unknown field `want`",
        ),
        (
            "constant",
            "constantly",
            "clients[0].demand: unknown variant `constantly`",
        ),
        (
            "constant: {wants: 20}",
            "sine: {mean: 3, amplitude: 4, period: 9}",
            "clients[0].demand.sine.amplitude: must be a number from 0 to 3, not 4",
        ),
        (
            "count: 2",
            "count: 16000",
            "clients[0].count: must be a number from 1 to 10000",
        ),
        (
            "capacity: 100,",
            "capacity: x,",
            "document: resources[0] \"db\": capacity: must be",
        ),
        (
            "seconds: 60",
            "seconds: 60\nnetwork: {loss: 0.9}",
            "network.loss: must be a number from 0 to 0.5, not 0.9",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: stop_etcd, at: 5, for: 1, clients: 1}]",
            "faults[0].clients: does not apply",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: pause_clients, at: 5, for: 1, group: nobody}]",
            "faults[0].group: no clients have the name \"nobody\"",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: stop_etcd, at: 5, for: 1, group: nobody}]",
            "faults[0].group: does not apply: the fault is not one of clients",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: delay_client_requests, at: 5, for: 1}]",
            "faults[0].by: is missing; must be the seconds by which messages are late",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: pause_clients, at: 5, for: 1, by: 1}]",
            "faults[0].by: does not apply: the fault delays no messages",
        ),
        (
            "seconds: 60",
            "seconds: 60\nrandom_faults: {kinds: [repeat_client_requests], every: 5, for: 1}",
            "random_faults.kinds[0]: does not apply to random faults, which have no `by`",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: pause_server, at: 5, for: 1, server: 3}]",
            "faults[0].server: must be a number from 0 to 2, not 3",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: fire, at: 5, for: 1}]",
            "faults[0].kind: unknown variant `fire`, expected one of `lose_master`",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: pause_server, at: 61, for: 1}]",
            "faults[0].at: must be a number from 0 to 60, not 61",
        ),
        (
            "seconds: 60",
            "seconds: 60\nrandom_faults: {kinds: [], every: 5, for: 1}",
            "random_faults.kinds: must name at least one",
        ),
        (
            "{count: 3, election_lease: 5}",
            "{count: 1}\nfaults: [{kind: stop_etcd, at: 5, for: 1}]",
            "faults[0].kind: has no effect: a single server needs no etcd",
        ),
        (
            "seconds: 60",
            "seconds: 60\nnodes: [{name: eu, servers: 10}]",
            "nodes[0].servers: must be a number from 1 to 9, not 10",
        ),
        (
            "seconds: 60",
            "seconds: 60\nnodes: [{name: eu, nodes: [{name: eu}]}]",
            "nodes[0].nodes[0].name: \"eu\" is used twice",
        ),
        (
            "seconds: 60",
            "seconds: 60\nnodes: [{name: eu, count: 2}, {name: eu-1}]",
            "nodes[1].name: \"eu-1\" is used twice",
        ),
        (
            "seconds: 60",
            "seconds: 60\nnodes: [{name: \"\"}]",
            "nodes[0].name: ",
        ),
        (
            "seconds: 60",
            "seconds: 60\nnodes: [{name: eu, count: 10, nodes: [{name: leaf, count: 10}]}]",
            "nodes: must be at most 100 nodes together with the root",
        ),
        (
            "resource: db",
            "node: eu, resource: db",
            "clients[0].node: no node has the name \"eu\"",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: lose_master, at: 5}]",
            "faults[0].for: is missing; must be the seconds of the fault",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: elect_master, at: 5, for: 1}]",
            "faults[0].for: does not apply: the fault does not last",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: elect_master, at: 5, node: eu}]",
            "faults[0].node: no node has the name \"eu\"",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: pause_clients, at: 5, for: 1, node: root}]",
            "faults[0].node: does not apply: the fault is one of clients",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: partition_node, at: 5, for: 1}]",
            "faults[0].kind: has no effect: the root has no parent",
        ),
        (
            "seconds: 60",
            "seconds: 60\nnodes: [{name: eu}]\nfaults: [{kind: stop_etcd, at: 5, for: 1, node: eu}]",
            "faults[0].node: has no effect: a single server needs no etcd",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: change_demand, at: 5}]",
            "faults[0].wants: is missing; must be the demand, or `more` what is added to it",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: change_demand, at: 5, wants: 1, more: 1}]",
            "faults[0].more: does not apply beside wants",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: change_demand, at: 5, wants: -1}]",
            "faults[0].wants: must be a number from 0 to",
        ),
        (
            "seconds: 60",
            "seconds: 60\nfaults: [{kind: stop_etcd, at: 5, for: 1, more: 1}]",
            "faults[0].more: does not apply without change_demand",
        ),
        (
            "demand: {constant: {wants: 20}}}",
            "demand: {poisson: {mean: 20, every: 1}}}\nfaults: [{kind: change_demand, at: 5, more: 1}]",
            "faults[0].kind: has no effect: no client has a constant demand or a random walk",
        ),
        (
            "resource: db, demand: {constant: {wants: 20}}}",
            "resource: db, requests: even, demand: {constant: {wants: 20}}}\nfaults: [{kind: change_demand, at: 5, more: 1e12}]",
            "clients: must send at most 100000000 requests in a run",
        ),
        (
            "seconds: 60",
            "seconds: 60\nrandom_faults: {kinds: [partition_node], every: 5, for: 1}",
            "random_faults.kinds[0]: has no effect: the root has no parent",
        ),
        (
            "seconds: 60",
            "seconds: 60\nrandom_faults: {kinds: [elect_master], every: 5, from: 70}",
            "random_faults.from: must be a number from 0 to 60, not 70",
        ),
        (
            "seconds: 60",
            "seconds: 60\nrandom_faults: {kinds: [elect_master], every: 5, more: 1}",
            "random_faults.more: does not apply without change_demand",
        ),
    ] {
        let text = VALID.replacen(old, new, 1);
        assert_ne!(text, VALID, "{old}");
        let found = error(&text);
        assert!(found.starts_with(message), "{new}: {found}");
        assert!(!found.is_empty() && !found.contains('\n'), "{new}: {found}");
    }
    let start = VALID.find("document").unwrap();
    let end = VALID.find("clients").unwrap();
    let found = error(&format!("{}{}", &VALID[..start], &VALID[end..]));
    assert_eq!(
        found,
        "document: is missing; must be here or in a file of its own"
    );
}

#[test]
fn clients_are_spread_over_the_leaves() {
    let text = VALID.replace(
        "document:",
        "nodes: [{name: eu, count: 2, nodes: [{name: leaf, count: 2, servers: 2}]}, {name: us}]\ndocument:",
    );
    let scenario = Scenario::parse(&text, None).unwrap();
    let nodes = scenario.nodes.iter();
    let nodes: Vec<_> = nodes.map(|it| (it.name.as_str(), it.parent)).collect();
    assert_eq!(
        nodes,
        [
            ("root", None),
            ("eu-0", Some(0)),
            ("eu-1", Some(0)),
            ("leaf-0", Some(1)),
            ("leaf-1", Some(1)),
            ("leaf-2", Some(2)),
            ("leaf-3", Some(2)),
            ("us", Some(0)),
        ]
    );
    assert_eq!(scenario.servers_of(4), 7..9);
    assert_eq!(scenario.groups[0].nodes, [3, 4, 5, 6, 7]);
    let named = |name: &str| {
        let text = text.replace("resource: db", &format!("node: {name}, resource: db"));
        Scenario::parse(&text, None).unwrap().groups[0]
            .nodes
            .clone()
    };
    assert_eq!((named("eu"), named("leaf-2")), (vec![1, 2], vec![5]));
}

#[test]
fn hostile_text_is_rejected() {
    for text in [
        "",
        "[]",
        "3",
        "a: &a [*a]",
        "seconds: 60\nseconds: 61",
        "\u{0}",
    ] {
        assert!(!error(text).is_empty());
    }
}
