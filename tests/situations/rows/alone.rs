//! One process that has the limit to itself.

use super::{Case, DEFAULTS, Measured, PACES, document, list, measure, stepping};
use crate::situations::{
    Error, Outcome, Programs,
    load::{Arrivals, Load},
    plan::{Plan, Report},
    traffic::Traffic,
};

/// One burst of requests.
fn burst(from: f64, requests: u32) -> Load {
    Load::Bursts {
        from,
        every: 1.0,
        times: 1,
        requests,
    }
}

pub(super) fn one_request(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const ENDS: f64 = 85.0;
    let (refresh_interval, _) = DEFAULTS;
    let plan = |key| Plan::new(key, ENDS).tenant("first", burst(0.5, 1));
    let cases = [
        Case::new("constant key", [plan("api")]),
        Case::new("key of a request", [plan("tenant/{header:x-tenant}")]),
    ];
    let document = document(1000.0, DEFAULTS);
    measure(
        programs,
        &document,
        refresh_interval,
        &cases,
        |case, reports| {
            let requests = reports.iter().flat_map(|report| &report.lease_requests);
            // A key is idle for a minute before it is forgotten, and then released.
            let (active, later): (Vec<f64>, Vec<f64>) = requests.partition(|at| **at < 60.0);
            let late = later.iter().filter(|at| **at > 70.0).count();
            let regular = (60.0 / refresh_interval) as usize + 1;
            let is_forgotten = case.name == "key of a request";
            Measured::new(
                &if is_forgotten {
                    format!("at most {regular} lease requests in 60 s, none after 70 s")
                } else {
                    format!("at most {regular} lease requests in 60 s")
                },
                active.len() <= regular && (late == 0 || !is_forgotten),
                format!("{} in 60 s, {late} from 70 to {ENDS} s", active.len()),
            )
        },
    )
}

pub(super) fn page_of_six(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const PAGES: usize = 6;
    const ENDS: f64 = 90.0;
    let (refresh_interval, _) = DEFAULTS;
    let pages = Load::Bursts {
        from: 0.5,
        every: 15.0,
        times: 6,
        requests: 6,
    };
    let cases = [Case::new("", [Plan::new("api", ENDS).load(pages)])];
    let document = document(1000.0, DEFAULTS);
    measure(
        programs,
        &document,
        refresh_interval,
        &cases,
        |_, reports| {
            let refused = Traffic::of(reports).refused();
            let requests: usize = reports.iter().map(|it| it.lease_requests.len()).sum();
            let regular = (ENDS / refresh_interval) as usize;
            let more = requests.saturating_sub(regular);
            Measured::new(
                "all 200; at most 2 lease requests a page beside the regular ones",
                refused.total() == 0 && more <= 2 * PAGES,
                format!("{refused}; {requests} lease requests in {PAGES} pages, {regular} regular"),
            )
        },
    )
}

pub(super) fn slow_requests(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    let mut cases = Vec::new();
    for pace in PACES {
        for (seed, rate) in (1..).zip([0.5, 2.0, 20.0]) {
            let name = format!("{rate}/s {pace}");
            let plan = stepping(&name, pace, seed, &[(60.0, rate)]);
            cases.push(Case::new(name, [plan]));
        }
    }
    let document = document(1000.0, DEFAULTS);
    measure(programs, &document, DEFAULTS.0, &cases, none_refused)
}

/// All requests must be admitted.
fn none_refused(_: &Case, reports: &[Report]) -> Measured {
    let traffic = Traffic::of(reports);
    let refused = traffic.refused();
    let percent = 100.0 * refused.total() as f64 / traffic.len() as f64;
    Measured::new(
        "none refused",
        refused.total() == 0,
        format!("{refused} of {}, {percent:.1} %", traffic.len()),
    )
}

pub(super) fn step_up(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    let document = "
resources:
  - {identifier_glob: 'slow/*', capacity: 1000, algorithm: {kind: FAIR_SHARE, lease_length: 300, refresh_interval: 60}}
  - {identifier_glob: '*', capacity: 1000, algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}
";
    let mut outcomes = Vec::new();
    for (prefix, refresh_interval, seconds) in [("quick", 5.0, 28.0), ("slow", 60.0, 95.0)] {
        let cases = PACES.map(|pace| {
            let key = format!("{prefix}/{pace}");
            let plan = stepping(&key, pace, 1, &[(20.0, 1.0), (seconds, 100.0)]);
            Case::new(format!("refresh {refresh_interval} s {pace}"), [plan])
        });
        outcomes.extend(measure(
            programs,
            document,
            refresh_interval,
            &cases,
            none_refused,
        )?);
    }
    Ok(outcomes)
}

pub(super) fn hey(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    let load = Load::Http {
        connections: 10,
        per_second: 100.0,
    };
    let cases = [Case::new("", [Plan::new("api", 10.0).load(load)])];
    let document = document(10_000_000.0, DEFAULTS);
    measure(programs, &document, DEFAULTS.0, &cases, none_refused)
}

pub(super) fn ten_at_once(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    let bursts = Load::Bursts {
        from: 0.5,
        every: 10.0,
        times: 5,
        requests: 10,
    };
    let cases = [Case::new("", [Plan::new("api", 42.0).load(bursts)])];
    let document = document(10.0, DEFAULTS);
    measure(programs, &document, DEFAULTS.0, &cases, |_, reports| {
        let traffic = Traffic::of(reports);
        let bursts = (0..5).map(|burst| f64::from(burst) * 10.0);
        let admitted: Vec<_> = bursts
            .map(|from| traffic.sent(from, from + 10.0).admitted())
            .collect();
        let first = admitted.first().copied().unwrap_or_default();
        let later = admitted.iter().skip(1).copied().min().unwrap_or_default();
        Measured::new(
            "at least 5 of the first burst, all of later ones",
            first >= 5 && later >= 10,
            format!("{}; {}", list(admitted), traffic.refused()),
        )
    })
}

/// Sixty requests at once, then one every 25 ms for half a second.
fn sixty_at_once(plan: Plan, tenant: &str, at: f64) -> Plan {
    let retries = Load::Rate {
        from: at + 0.025,
        until: at + 0.5,
        per_second: 40.0,
        arrivals: Arrivals::Even,
    };
    plan.tenant(tenant, burst(at, 60)).tenant(tenant, retries)
}

/// Of a burst on 10/s, at least so many are admitted at once.
fn evaluate_sixty(traffic: &Traffic<'_>, at: f64, least: usize) -> Measured {
    let at_once = traffic.sent(at, at + 0.02).admitted();
    let burst = traffic.sent(at, at + 0.6);
    let (admitted, refused) = (burst.admitted(), burst.refused());
    let bucket = burst.bucket(10.0);
    let remaining = burst
        .first_remaining()
        .map_or("absent".to_owned(), |r| format!("{r}"));
    Measured::new(
        &format!(
            "at least {least} at once, {} within 0.5 s, at most a bucket of 10; the rest 429",
            least + 4
        ),
        at_once >= least && admitted >= least + 4 && bucket < 11.5 && refused.all_have(429),
        format!(
            "{at_once} at once, {admitted} within 0.5 s, a bucket of {bucket:.0}; {refused}; r={remaining} in the first \
             response, Retry-After up to {} s",
            burst.retry_after()
        ),
    )
}

pub(super) fn idle_key(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const AT: f64 = 12.0;
    // As much as it wants is left to others.
    const RECENT: &str = "3 requests 1.5 s before";
    let used = Plan::new("used", AT + 1.0).load(burst(0.5, 1));
    let unused = Plan::new("unused", AT + 1.0);
    let recent = Plan::new("recent", AT + 1.0).load(burst(AT - 1.5, 3));
    let cases = [
        ("used before", used),
        ("never used", unused),
        (RECENT, recent),
    ];
    let cases = cases.map(|(name, plan)| Case::new(name, [sixty_at_once(plan, "", AT)]));
    let document = document(10.0, DEFAULTS);
    measure(programs, &document, DEFAULTS.0, &cases, |case, reports| {
        let least = if case.name == RECENT { 7 } else { 9 };
        evaluate_sixty(&Traffic::of(reports), AT, least)
    })
}

pub(super) fn new_tenant(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const AT: f64 = 2.0;
    let document = "
resources:
  - identifier_glob: 'tenant/*'
    capacity: 10
    safe_capacity: 3
  - identifier_glob: '*'
    capacity: 1000
    algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}
";
    let plan = Plan::new("tenant/{header:x-tenant}", AT + 2.0).tenant("old", burst(0.2, 1));
    let cases = [Case::new("", [sixty_at_once(plan, "new", AT)])];
    measure(programs, document, DEFAULTS.0, &cases, |_, reports| {
        evaluate_sixty(&Traffic::of(reports).tenant("new"), AT, 5)
    })
}

/// When the only service of a limit of 100/s had all of it.
fn leases_all(report: &Report) -> f64 {
    let mut states = report.states.iter();
    let state = states.find(|state| state.lease >= Some(95.0));
    state.map_or(f64::INFINITY, |state| state.at)
}

pub(super) fn wait_loop(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const ENDS: f64 = 10.0;
    let cases = [
        Case::new("wait", [Plan::new("wait", ENDS).load(Load::WaitLoop)]),
        Case::new(
            "delay",
            [Plan::new("delay", ENDS).delays(0.5).load(Load::RequestLoop)],
        ),
    ];
    let document = document(100.0, DEFAULTS);
    measure(programs, &document, DEFAULTS.0, &cases, |case, reports| {
        let traffic = Traffic::of(reports);
        let leased = reports.iter().map(leases_all).fold(0.0, f64::max);
        let seconds = traffic.admitted_per_second(leased, ENDS);
        let lowest = seconds.iter().skip(1).min().copied().unwrap_or_default();
        let bucket = traffic.bucket(100.0);
        // Before the first answer requests pass, and such a loop sends thousands.
        let bounded = case.name == "delay" || bucket < 102.0;
        Measured::new(
            "all leased within 1 s, 95/s one second later; waits: at most 100/s and a bucket of 100",
            leased < 1.0 && lowest >= 95 && bounded,
            format!(
                "leased after {:.0} ms, {}/s, a bucket of {bucket:.0}; {}",
                leased * 1000.0,
                list(seconds),
                traffic.refused()
            ),
        )
    })
}
