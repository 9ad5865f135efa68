//! The arithmetic against a naive reference: a level that is filled tick by tick, in whole numbers.
//!
//! A tick is 1/512 s and an amount is counted in 1/512 tokens, so that a rate of so many tokens a second is the same number a tick,
//! every quantity is exact in either notation, and the two must agree on every single decision.

use std::time::Duration;

use doorman_openapi::Moment;
use proptest::prelude::*;

use super::*;

const TICKS: i64 = 512;
const NANOS_PER_TICK: u64 = 1_000_000_000 / 512;

fn moment(tick: i64) -> Moment {
    Moment::from_nanos(3_600_000_000_000 + u64::try_from(tick).unwrap() * NANOS_PER_TICK)
}

fn flow(rate: Rate) -> Flow {
    match rate {
        Rate::Shut => Flow::Shut,
        Rate::At(rate) => Flow::leased(Some(rate as f64)),
        Rate::Open => Flow::Open,
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Rate {
    Shut,
    /// Whole tokens a second, maybe none.
    At(i64),
    Open,
}

#[derive(Debug, Clone)]
enum Step {
    /// So many ticks pass.
    Pass(i64),
    /// A request of so many 512ths of a token.
    Ask(i64),
    /// A lease of a rate for so many ticks, and what counts after it.
    Lease(Rate, i64, Rate),
    /// The lease is lost, or known to have ended.
    Lose(Rate),
}

/// A bucket as one would explain it: a level, filled tick by tick.
#[derive(Debug, Clone)]
struct Naive {
    tick: i64,
    level: i64,
    burst_ticks: i64,
    lease: Option<(Rate, i64)>,
    lapse: Rate,
    /// When everything began to pass.
    open_since: Option<i64>,
    /// Whether there is debt of when everything passed that has met no rate yet.
    credit: bool,
    /// Whether no token has ever been issued.
    fresh: bool,
}

impl Naive {
    fn new(burst_ticks: i64, lapse: Rate) -> Self {
        Self {
            tick: 0,
            level: 0,
            burst_ticks,
            lease: None,
            lapse,
            open_since: (lapse == Rate::Open).then_some(0),
            credit: false,
            fresh: true,
        }
    }

    fn rate(&self) -> Rate {
        match self.lease {
            Some((rate, ends)) if self.tick < ends => rate,
            _ => self.lapse,
        }
    }

    fn burst(&self, rate: i64) -> i64 {
        (rate * self.burst_ticks).max(TICKS)
    }

    fn pass_one_tick(&mut self) {
        if let Rate::At(rate) = self.rate() {
            self.level = (self.level + rate).min(self.burst(rate));
            (self.fresh, self.credit) = (false, false);
        }
        let before = self.rate();
        self.tick += 1;
        match self.rate() {
            Rate::At(rate) => self.level = self.level.min(self.burst(rate)),
            Rate::Open if before != Rate::Open => self.open_since = Some(self.tick),
            Rate::Shut | Rate::Open => {}
        }
    }

    fn switch(&mut self, lease: Option<(Rate, i64)>, lapse: Rate) {
        let before = self.rate();
        (self.lease, self.lapse) = (lease, lapse);
        match (before, self.rate()) {
            (Rate::Open, Rate::Open) => {}
            (_, Rate::Open) => self.open_since = Some(self.tick),
            (before, Rate::Shut) => {
                self.credit |= before == Rate::Open;
                if self.credit
                    && let Rate::At(rate) = lapse
                {
                    self.level = self.level.max(-self.burst(rate));
                }
            }
            (before, Rate::At(rate)) => {
                let burst = self.burst(rate);
                if before == Rate::Open {
                    self.level += rate * (self.tick - self.open_since.unwrap());
                }
                if self.fresh {
                    self.level += burst;
                    self.fresh = false;
                }
                self.level = self.level.min(burst);
                if before == Rate::Open || self.credit {
                    self.level = self.level.max(-burst);
                }
                self.credit = false;
            }
        }
    }

    fn ask(&mut self, cost: i64) -> bool {
        let admitted = match self.rate() {
            Rate::Open => true,
            Rate::Shut => false,
            Rate::At(rate) => self.level >= cost.min(self.burst(rate)),
        };
        if admitted {
            self.level -= cost;
        }
        admitted
    }

    /// The first tick from now on at which a request would be admitted.
    fn first_admission(&self, cost: i64, horizon: i64) -> Option<i64> {
        let mut later = self.clone();
        while later.tick <= self.tick + horizon {
            if later.clone().ask(cost) {
                return Some(later.tick);
            }
            later.pass_one_tick();
        }
        None
    }
}

/// The arithmetic under test, with the two numbers that a limiter keeps for it.
struct Bucket {
    terms: Terms,
    spent: f64,
    burst: Burst,
}

impl Bucket {
    fn new(burst_ticks: i64, lapse: Rate) -> Self {
        Self {
            terms: Terms::new(flow(lapse), moment(0)),
            spent: 0.0,
            burst: Burst::new(Duration::from_nanos(
                u64::try_from(burst_ticks).unwrap() * NANOS_PER_TICK,
            )),
        }
    }

    fn switch(&mut self, supply: Supply, now: Moment) {
        let change = self.terms.succeed(supply, self.spent, now, self.burst);
        self.spent = self.spent.max(change.at_least).min(change.at_most);
        self.terms = change.terms;
    }

    fn next(&self, cost: i64, now: Moment) -> Take {
        let view = self.terms.at(now, self.burst);
        view.next(self.spent, cost as f64 / TICKS as f64)
    }

    fn admits(&self, take: Take, now: Moment) -> bool {
        self.terms.at(now, self.burst).admits(take)
    }
}

fn rates() -> impl Strategy<Value = i64> {
    prop_oneof![6 => 1..40_i64, 2 => 40..3_000_i64]
}

fn leases() -> impl Strategy<Value = Rate> {
    prop_oneof![1 => Just(Rate::Shut), 1 => Just(Rate::At(0)), 8 => rates().prop_map(Rate::At)]
}

fn lapses() -> impl Strategy<Value = Rate> {
    prop_oneof![1 => Just(Rate::Open), 1 => Just(Rate::Shut), 2 => rates().prop_map(Rate::At)]
}

fn steps() -> impl Strategy<Value = Step> {
    let costs = prop_oneof![6 => Just(TICKS), 2 => 1..TICKS, 1 => TICKS..20 * TICKS];
    prop_oneof![
        8 => prop_oneof![0..40_i64, 0..1_000_i64].prop_map(Step::Pass),
        16 => costs.prop_map(Step::Ask),
        3 => (leases(), 1..3_000_i64, lapses()).prop_map(|(rate, ticks, lapse)| Step::Lease(rate, ticks, lapse)),
        1 => lapses().prop_map(Step::Lose),
    ]
}

/// Notes the flow from the last tick on. A gap in which everything passes forgives debt, however short it is: once something was
/// admitted, such a tick counts as one.
fn note_flow(flows: &mut [Flow], admitted: &[(usize, f64, f64)], flow: Flow) {
    if let Some(last) = flows.last_mut()
        && (*last != Flow::Open || admitted.is_empty())
    {
        *last = flow;
    }
}

proptest! {
    #[test]
    fn decides_as_the_naive_bucket_and_promises_the_exact_moment(
        burst_ticks in prop_oneof![Just(0), Just(TICKS), 0..2_000_i64],
        lapse in lapses(),
        steps in prop::collection::vec(steps(), 1..120),
    ) {
        let mut naive = Naive::new(burst_ticks, lapse);
        let mut bucket = Bucket::new(burst_ticks, lapse);
        for step in steps {
            let now = moment(naive.tick);
            match step {
                Step::Pass(ticks) => (0..ticks).for_each(|_| naive.pass_one_tick()),
                Step::Lease(rate, ticks, lapse) => {
                    let ends = naive.tick + ticks;
                    naive.switch(Some((rate, ends)), lapse);
                    let (rate, lapse) = (flow(rate), flow(lapse));
                    bucket.switch(Supply::Lease { flow: rate, ends: moment(ends), lapse, left: None }, now);
                }
                Step::Lose(lapse) => {
                    naive.switch(None, lapse);
                    bucket.switch(Supply::NoLease { lapse: flow(lapse) }, now);
                }
                Step::Ask(cost) => {
                    let take = bucket.next(cost, now);
                    let admitted = bucket.admits(take, now);
                    prop_assert_eq!(admitted, naive.clone().ask(cost), "at tick {}", naive.tick);
                    if admitted {
                        naive.ask(cost);
                        bucket.spent = take.end();
                        continue;
                    }
                    let horizon = 5_000;
                    let promise = bucket.terms.reach(take, now, bucket.burst);
                    match naive.first_admission(cost, horizon) {
                        Some(tick) => {
                            let promise = promise.unwrap();
                            prop_assert!(moment(tick - 1) < promise && promise <= moment(tick));
                            prop_assert!(bucket.admits(take, promise), "refused when promised");
                            let before = Moment::from_nanos(promise.as_nanos() - 2);
                            prop_assert!(!bucket.admits(take, before), "admitted before promised");
                        }
                        None => {
                            // What counts ticks misses what is true only for a part of one, at the end of a lease.
                            let end = moment(naive.tick + horizon);
                            let part_of_a_tick = |promise: Moment| {
                                let ticks = promise.since(now).as_nanos();
                                !ticks.is_multiple_of(u128::from(NANOS_PER_TICK))
                                    && bucket.admits(take, promise)
                            };
                            prop_assert!(promise.is_none_or(|promise| promise > end || part_of_a_tick(promise)));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn admits_in_any_window_at_most_what_the_rates_issue_in_it_and_one_burst(
        burst_ticks in prop_oneof![Just(0), Just(TICKS), 0..2_000_i64],
        lapse in lapses(),
        steps in prop::collection::vec(steps(), 1..60),
    ) {
        let mut bucket = Bucket::new(burst_ticks, lapse);
        // What was in force from each tick on, by the terms themselves; and what was admitted when, under which burst.
        let mut flows = vec![flow(lapse)];
        let mut admitted: Vec<(usize, f64, f64)> = Vec::new();
        for step in steps {
            let tick = flows.len() - 1;
            let now = moment(i64::try_from(tick).unwrap());
            match step {
                Step::Pass(ticks) => {
                    for later in 1..=ticks {
                        let now = moment(i64::try_from(tick).unwrap() + later);
                        flows.push(bucket.terms.at(now, bucket.burst).flow);
                    }
                }
                Step::Lease(rate, ticks, lapse) => {
                    let ends = moment(i64::try_from(tick).unwrap() + ticks);
                    let (rate, lapse) = (flow(rate), flow(lapse));
                    bucket.switch(Supply::Lease { flow: rate, ends, lapse, left: None }, now);
                    note_flow(&mut flows, &admitted, bucket.terms.at(now, bucket.burst).flow);
                }
                Step::Lose(lapse) => {
                    bucket.switch(Supply::NoLease { lapse: flow(lapse) }, now);
                    note_flow(&mut flows, &admitted, bucket.terms.at(now, bucket.burst).flow);
                }
                Step::Ask(cost) => {
                    // As many as there is room for: whoever asks, asks without pause.
                    for _ in 0..100 {
                        let take = bucket.next(cost, now);
                        let Flow::At(rate) = flows[tick] else { break };
                        if !bucket.admits(take, now) {
                            break;
                        }
                        bucket.spent = take.end();
                        admitted.push((tick, take.cost, bucket.burst.tokens(rate)));
                    }
                }
            }
        }
        for (index, &(first, ..)) in admitted.iter().enumerate() {
            let (mut total, mut issued, mut largest, mut debt) = (0.0, 0.0, 0.0_f64, 0.0_f64);
            let mut tick = first;
            for &(last, cost, burst) in &admitted[index..] {
                // While everything passes there is no bound.
                if flows[tick..=last].contains(&Flow::Open) {
                    break;
                }
                for flow in &flows[tick..last] {
                    issued += flow.tokens(1.0 / TICKS as f64);
                }
                tick = last;
                total += cost;
                largest = largest.max(burst);
                // What costs more than a full bucket passes one, and leaves debt.
                debt = debt.max(cost - burst);
                prop_assert!(
                    total <= issued + largest + debt + 1e-9,
                    "{total} within ticks {first}..={last}: {issued} issued, a burst of {largest}, a debt of {debt}"
                );
            }
        }
    }
}

#[test]
fn a_place_given_back_late_returns_only_what_has_not_overflowed() {
    let mut bucket = Bucket::new(TICKS, Rate::Shut);
    let supply = Supply::Lease {
        flow: Flow::At(10.0),
        ends: Moment::NEVER,
        lapse: Flow::Shut,
        left: None,
    };
    bucket.switch(supply, moment(0));
    let take = bucket.next(4 * TICKS, moment(0));
    bucket.spent = take.end();

    let returned = |ticks| take.returnable(&bucket.terms.at(moment(ticks), bucket.burst));
    assert_eq!(returned(0), 4.0);
    assert_eq!(returned(TICKS / 4), 1.5);
    assert_eq!(returned(TICKS), 0.0);
}

#[test]
fn a_rate_below_one_request_a_burst_still_admits() {
    let mut bucket = Bucket::new(TICKS, Rate::Shut);
    let supply = Supply::Lease {
        flow: Flow::At(0.25),
        ends: Moment::NEVER,
        lapse: Flow::Shut,
        left: None,
    };
    bucket.switch(supply, moment(0));
    let take = bucket.next(TICKS, moment(0));
    assert!(bucket.admits(take, moment(0)));
    bucket.spent = take.end();

    let next = bucket.next(TICKS, moment(0));
    let promise = bucket.terms.reach(next, moment(0), bucket.burst);
    assert_eq!(promise, Some(moment(4 * TICKS)));
}

#[test]
fn no_rate_makes_the_promise_run_past_the_end_of_time() {
    for rate in [f64::MIN_POSITIVE, 1e-300, 1e-12, 1e15, f64::MAX] {
        let mut bucket = Bucket::new(TICKS, Rate::Shut);
        let supply = Supply::Lease {
            flow: Flow::at(rate),
            ends: Moment::NEVER,
            lapse: Flow::Shut,
            left: None,
        };
        bucket.switch(supply, moment(0));
        bucket.spent += 1e15;
        let take = bucket.next(TICKS, moment(0));
        let promise = bucket.terms.reach(take, moment(0), bucket.burst);
        // A quadrillion tokens are owed: not before they have come.
        let seconds = 1e15 / rate;
        assert!(
            promise.is_none_or(|moment| moment == Moment::NEVER
                || moment.seconds_since(self::moment(0)) >= seconds * 0.99),
            "{rate}: {promise:?}"
        );
    }
}

#[test]
fn after_any_rate_single_tokens_still_count() {
    for rate in [1e9, 1e12, 1e15, f64::MAX] {
        let mut bucket = Bucket::new(TICKS, Rate::Shut);
        let lease = |rate| Supply::Lease {
            flow: Flow::leased(Some(rate)),
            ends: Moment::NEVER,
            lapse: Flow::Shut,
            left: None,
        };
        bucket.switch(lease(rate), moment(0));
        let a_day_later = moment(86_400 * TICKS);
        bucket.switch(lease(10.0), a_day_later);
        let admitted = (0..1_000)
            .take_while(|_| {
                let take = bucket.next(TICKS, a_day_later);
                let admitted = bucket.admits(take, a_day_later);
                bucket.spent = take.end();
                admitted
            })
            .count();
        assert_eq!(admitted, 10, "{rate}");
    }
}
