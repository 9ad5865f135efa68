//! Changes of the limit and of the control plane, and SUPPRESSION.

use super::{
    Case, DEFAULTS, Measured, PACES, document, document_with, list, measure, outcomes, stepping,
};
use crate::situations::{
    Error, Outcome, Programs,
    plan::{Plan, Report},
    process::sleep_until,
    traffic::Traffic,
};

pub(super) fn changed(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const ENDS: f64 = 14.0;
    const CHANGES: [(f64, f64); 2] = [(3.0, 500.0), (8.3, 2000.0)];
    let plans = (1..=3).map(|seed| stepping("api", "even", seed, &[(ENDS, 50.0)]));
    let cases = [Case::new("", plans)];
    let document = document(1000.0, DEFAULTS);
    let [case] = &cases;
    let reports = programs.run_with(&document, &case.plans, |control_plane, start| {
        for (at, capacity) in CHANGES {
            sleep_until(start, at)?;
            control_plane.put_template("api", &format!(r#"{{"capacity": {capacity}}}"#))?;
        }
        Ok(())
    })?;
    Ok(outcomes(&cases, reports, DEFAULTS.0, |_, reports| {
        let delays = CHANGES.map(|(at, capacity)| {
            let delays = reports.iter().map(|it| seen(it, capacity) - at);
            delays.fold(0.0, f64::max)
        });
        let [cut, raise] = delays.map(|seconds| format!("{:.0} ms", seconds * 1000.0));
        Measured::new(
            "seen by all 3 holders within 200 ms",
            delays.iter().all(|seconds| *seconds <= 0.2),
            format!(
                "cut after {cut}, raise after {raise}; {}",
                Traffic::of(reports).refused()
            ),
        )
    }))
}

/// When a service saw a limit.
fn seen(report: &Report, limit: f64) -> f64 {
    let mut states = report.states.iter();
    let state = states.find(|state| state.limit == Some(limit));
    state.map_or(f64::INFINITY, |state| state.at)
}

pub(super) fn suppression(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const ENDS: f64 = 25.0;
    let mut cases = Vec::new();
    for pace in PACES {
        for services in [1_u8, 3, 9] {
            let name = format!("{services} services {pace}");
            let rate = 900.0 / f64::from(services);
            let plans =
                (1..=u64::from(services)).map(|seed| stepping(&name, pace, seed, &[(ENDS, rate)]));
            let plans: Vec<_> = plans.collect();
            cases.push(Case::new(name, plans));
        }
    }
    let document = document_with(100.0, "SUPPRESSION", DEFAULTS);
    measure(programs, &document, DEFAULTS.0, &cases, |_, reports| {
        let traffic = Traffic::of(reports);
        let seconds = traffic.admitted_per_second(0.0, ENDS);
        // Chance admits 200 ± 14 in two seconds.
        let is_right = |pair: &[usize]| (150..=250).contains(&pair.iter().sum::<usize>());
        let wrong = seconds.windows(2).rposition(|pair| !is_right(pair));
        let settled = wrong.map_or(0, |index| index.saturating_add(1));
        Measured::new(
            "75–125/s from 2 s on",
            settled <= 2,
            format!(
                "right from {settled} s on: {}/s; {}",
                list(seconds),
                traffic.refused()
            ),
        )
    })
}

pub(super) fn sigkill(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const KILL: f64 = 10.0;
    const JOINS: f64 = 10.5;
    const ENDS: f64 = 40.0;
    /// Requests per second of the newcomer, which are free all the time.
    const WANTED: f64 = 100.0;
    let intervals = (4.0, 20.0);
    let (refresh_interval, _) = intervals;
    let cases = PACES.map(|pace| {
        let shrinking = stepping(pace, pace, 10, &[(KILL, 600.0), (ENDS, 100.0)]);
        let growing = stepping(pace, pace, 20, &[(KILL, 100.0), (ENDS, 600.0)]);
        let newcomer = stepping(pace, pace, 30, &[(JOINS + 0.1, 0.0), (ENDS, WANTED)]);
        Case::new(pace, [growing, newcomer.joins(JOINS), shrinking])
    });
    let plans: Vec<Plan> = cases.iter().flat_map(|case| case.plans.clone()).collect();
    let document = document(1000.0, intervals);
    let reports = programs.run_with(&document, &plans, |control_plane, start| {
        sleep_until(start, KILL)?;
        control_plane.kill_and_restart()
    })?;
    Ok(outcomes(&cases, reports, refresh_interval, |_, reports| {
        let [growing, newcomer, _] = reports else {
            return Measured::new("", false, "a report is missing".to_owned());
        };
        let served = served_from(&Traffic::of([growing]), KILL, ENDS);
        // Without a lease the fallback admits its requests.
        let leased = leased_from(newcomer, 0.95 * WANTED);
        let delays = [served, leased].map(|at| at - KILL);
        let [grown, joined] = delays;
        let refused = Traffic::of(reports).sent(KILL, ENDS).refused();
        Measured::new(
            "served after two refresh intervals, 8 s",
            delays
                .iter()
                .all(|seconds| *seconds <= 2.0 * refresh_interval),
            format!("shifted load after {grown} s, newcomer after {joined:.1} s; {refused}"),
        )
    }))
}

/// When a service first had a lease of this capacity.
fn leased_from(report: &Report, capacity: f64) -> f64 {
    let mut states = report.states.iter();
    let state = states.find(|state| state.lease.is_some_and(|lease| lease >= capacity));
    state.map_or(f64::INFINITY, |state| state.at)
}

/// The second from which on 95 % of the requests of every second are admitted.
fn served_from(traffic: &Traffic<'_>, from: f64, until: f64) -> f64 {
    let seconds = (until - from) as u32;
    let is_served = |second: &u32| {
        let at = from + f64::from(*second);
        let sent = traffic.sent(at, at + 1.0);
        sent.admitted() as f64 >= 0.95 * sent.len() as f64
    };
    let last = (0..seconds).rev().find(|second| !is_served(second));
    from + last.map_or(0.0, |second| f64::from(second) + 1.0)
}
