use super::super::*;

const VALID: &str = "
seconds: 60
document:
  resources:
    - {identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE}}
clients:
  - {count: 2, resource: db, requests: random, demand: {constant: {wants: 20}}}
  - {count: 2, resource: api, demand: {constant: {wants: 20}}}
";

/// The scenario with these targets, and another line of the first clients.
fn text(targets: &str, clients: &str) -> String {
    let text = VALID.replace("requests: random", &format!("requests: random{clients}"));
    format!("{text}targets:\n  - {{{targets}}}\n")
}

fn parse(targets: &str) -> ScenarioTarget {
    let scenario = Scenario::parse(&text(targets, ""), None);
    let scenario = scenario.unwrap_or_else(|error| panic!("{targets}: {error}"));
    scenario.targets[0].clone()
}

#[track_caller]
fn check_error(targets: &str, clients: &str, message: &str) {
    let error = Scenario::parse(&text(targets, clients), None).unwrap_err();
    assert_eq!(error.to_string(), message, "{targets}");
}

#[test]
fn absent_fields_have_defaults() {
    let target = parse("resource: db, rate: [{at: 0, value: 50}, {at: 20, value: 10}]");
    let TargetKind::Bucket { limit, burst } = &target.kind else {
        panic!("{target:?}");
    };
    assert_eq!((*burst, target.latency, target.always), (0.2, 0.02, 0.0));
    assert!(!limit.headers && !limit.retry_after);
    let rates = [0.0, 19.9, 20.0, 60.0].map(|second| target.accepts(second));
    assert_eq!(rates, [50.0, 50.0, 10.0, 10.0]);
    assert_eq!(target.changes(), [20.0]);
}

#[test]
fn what_a_target_accepts_depends_on_its_kind() {
    let target = parse(
        "resource: db, window: 10, headers: true, rate: [{at: 0, value: 50}], \
         foreign: [{at: 5, value: 20}, {at: 9, value: 70}]",
    );
    assert!(matches!(&target.kind, TargetKind::Window { limit, seconds: 10.0 } if limit.headers));
    let rates = [4.0, 5.0, 9.0].map(|second| target.accepts(second));
    assert_eq!(rates, [50.0, 30.0, 0.0]);
    assert_eq!(target.changes(), [5.0, 9.0]);

    let target = parse("resource: db, workers: [{at: 0, value: 5}], queue: 0.25, latency: 0.05");
    assert_eq!(target.accepts(1.0), 100.0);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn errors_name_the_field_and_what_is_right() {
    let rate = "resource: db, rate: [{at: 0, value: 50}]";
    let workers = "resource: db, workers: [{at: 0, value: 5}], latency: 0.05";
    let with = |base: &str, rest: &str| format!("{base}, {rest}");
    for (targets, message) in [
        (
            with("rate: [{at: 0, value: 50}]", "resource: other"),
            "targets[0].resource: must be a used resource, not \"other\"",
        ),
        (
            with("rate: [{at: 0, value: 50}]", "resource: api"),
            "targets[0].resource: has no effect: no client of the resource has `requests`",
        ),
        (
            format!("{rate}}}\n  - {{{rate}"),
            "targets[1].resource: has a target before; a resource has one target",
        ),
        (
            "resource: db".to_owned(),
            "targets[0].rate: is missing; must be a list of values, or `workers` one",
        ),
        (
            with(rate, "workers: []"),
            "targets[0].workers: does not apply beside a rate",
        ),
        (
            "resource: db, rate: []".to_owned(),
            "targets[0].rate: must have a value from second 0 on",
        ),
        (
            "resource: db, rate: [{at: 5, value: 50}]".to_owned(),
            "targets[0].rate[0].at: must be 0, not 5",
        ),
        (
            "resource: db, rate: [{at: 0, value: 50}, {at: 9, value: 5}, {at: 8, value: 5}]"
                .to_owned(),
            "targets[0].rate[2].at: must be a number from 9 to 60, not 8",
        ),
        (
            "resource: db, rate: [{at: 0, value: -1}]".to_owned(),
            "targets[0].rate[0].value: must be a number from 0 to 1000000, not -1",
        ),
        (
            "resource: db, rate: [{at: 0, value: 5, until: 3}]".to_owned(),
            "targets[0].rate[0].until: unknown field `until`, expected `at` or `value`",
        ),
        (
            with(rate, "burst: 1, window: 60"),
            "targets[0].window: does not apply beside a burst",
        ),
        (
            with(rate, "window: 0"),
            "targets[0].window: must be a number from 1 to 3600, not 0",
        ),
        (
            with(rate, "burst: -1"),
            "targets[0].burst: must be a number from 0 to 3600, not -1",
        ),
        (
            with(rate, "queue: 1"),
            "targets[0].queue: does not apply to a rate",
        ),
        (
            with(rate, "always: 1.5"),
            "targets[0].always: must be a number from 0 to 1, not 1.5",
        ),
        (
            with(rate, "latency: 3"),
            "targets[0].latency: must be a number from 0.001 to 2, not 3",
        ),
        (
            with(rate, "foreign: [{at: 61, value: 5}]"),
            "targets[0].foreign[0].at: must be a number from 0 to 60, not 61",
        ),
        (
            "resource: db, workers: [{at: 0, value: 5}]".to_owned(),
            "targets[0].latency: is missing; must be the mean seconds that a worker takes for a request",
        ),
        (
            "resource: db, workers: [{at: 0, value: 2.5}], latency: 0.05".to_owned(),
            "targets[0].workers[0].value: must be a whole number, not 2.5",
        ),
        (
            with(workers, "headers: true"),
            "targets[0].headers: does not apply to workers",
        ),
        (
            with(workers, "queue: -1"),
            "targets[0].queue: must be a number from 0 to 3600, not -1",
        ),
    ] {
        check_error(&targets, "", message);
    }
    for (clients, message) in [
        (
            ", claims: sometimes",
            "clients[0].claims: must be always, never or a number from 0 to 1",
        ),
        (
            ", claims: 2",
            "clients[0].claims: must be a number from 0 to 1, not 2",
        ),
        (
            ", passes: -1",
            "clients[0].passes: must be a number from 0 to 1000000, not -1",
        ),
        (
            ", limits: cubic",
            "clients[0].limits: unknown variant `cubic`, expected `aimd`",
        ),
    ] {
        check_error(rate, clients, message);
    }
}

#[test]
fn claims_networks_and_own_limits_need_a_target() {
    for (field, name) in [
        ("claims: never", "claims"),
        ("passes: 5", "passes"),
        ("limits: aimd", "limits"),
    ] {
        let rate = "resource: db, rate: [{at: 0, value: 50}]";
        let text = text(rate, "").replace("resource: api", &format!("resource: api, {field}"));
        let error = Scenario::parse(&text, None).unwrap_err().to_string();
        let expected =
            format!("clients[1].{name}: does not apply: the clients send no requests to a target");
        assert_eq!(error, expected);
    }
    let parse = |claims: &str| {
        let text = text(
            "resource: db, rate: [{at: 0, value: 50}]",
            &format!(", claims: {claims}"),
        );
        Scenario::parse(&text, None).unwrap().groups[0].claims
    };
    assert_eq!(parse("always"), Some(Claims::Refused(1.0)));
    assert_eq!(parse("never"), Some(Claims::Served));
    assert_eq!(parse("0.2"), Some(Claims::Refused(0.2)));
}

#[test]
fn changes_of_a_target_begin_phases() {
    let targets = "resource: db, rate: [{at: 0, value: 50}, {at: 20, value: 10}]";
    let scenario = Scenario::parse(&text(targets, ""), None).unwrap();
    let events = scenario.events();
    assert_eq!(
        events,
        [(20.0, "target of db accepts 10 a second".to_owned())]
    );
}
