//! Bounds on what is admitted, for any costs and corrections.

use std::sync::Mutex;

use doorman_openapi::Moment;
use proptest::prelude::*;
use tokio::{runtime, time::timeout};

use super::*;

/// The charges, in order of time.
struct History {
    supply: TokenSource,
    start: Moment,
    events: Mutex<Vec<Event>>,
}

#[derive(Clone, Copy)]
struct Event {
    /// Tokens issued until then.
    issued: f64,
    bucket: f64,
    /// The largest bucket since it began to wait: what a waiting request is to get does not
    /// overflow when the rate falls.
    largest: f64,
    tokens: f64,
    /// Charged after the admission.
    late: bool,
}

/// A rate that changes, as tokens a second from a time on.
#[derive(Debug, Clone)]
struct TokenSource {
    /// Milliseconds and rates. The first begins at 0.
    rates: Vec<(u64, f64)>,
    burst: Duration,
}

impl TokenSource {
    /// The smallest and the largest bucket in a time.
    fn buckets(&self, since: f64, until: f64) -> (f64, f64) {
        let starts = self
            .rates
            .iter()
            .skip(1)
            .map(|(from, _)| *from as f64 / 1e3);
        let ends = starts.chain([f64::INFINITY]);
        let rates = self.rates.iter().zip(ends);
        let rates = rates.filter(|((from, _), end)| *from as f64 / 1e3 <= until && since <= *end);
        let buckets = rates.map(|((_, rate), _)| (rate * self.burst.as_secs_f64()).max(1.0));
        buckets.fold((f64::INFINITY, 0.0), |(least, most), it| {
            (it.min(least), it.max(most))
        })
    }

    fn issued(&self, seconds: f64) -> f64 {
        let ends = self
            .rates
            .iter()
            .skip(1)
            .map(|(from, _)| *from as f64 / 1e3);
        let ends = ends.chain([f64::INFINITY]);
        let parts = self
            .rates
            .iter()
            .zip(ends)
            .map(|((from, rate), end)| (end.min(seconds) - *from as f64 / 1e3).max(0.0) * rate);
        parts.sum()
    }

    /// A rate of a fixed capacity, or of leases that are published as the rates say.
    fn begin(&self) -> Rate {
        let settings = RateSettings::new("db").burst(self.burst);
        let [(_, rate), rest @ ..] = &*self.rates else {
            panic!("no rate")
        };
        if rest.is_empty() {
            return Doorman::fixed([("db", *rate)]).rate(settings);
        }
        let (registry, nudges) = leased_registry(10);
        let limit = Rate::new(Arc::clone(&registry), settings);
        registry.publish("db", leased(*rate, HOUR));
        let (rest, mut at) = (rest.to_vec(), 0);
        tokio::spawn(async move {
            let _nudges = nudges;
            for (from, rate) in rest {
                sleep(Duration::from_millis(from - at)).await;
                at = from;
                registry.publish("db", leased(rate, HOUR));
            }
            sleep(HOUR).await;
        });
        limit
    }
}

impl History {
    /// Records a charge of a request that came at `since`.
    fn add(&self, since: Moment, tokens: f64, late: bool) {
        let at = |moment: Moment| moment.seconds_since(self.start);
        let (since, now) = (at(since), at(clock::now()));
        self.events.lock().unwrap().push(Event {
            issued: self.supply.issued(now),
            bucket: self.supply.buckets(now, now).0,
            largest: self.supply.buckets(since, now).1,
            tokens,
            late,
        });
    }

    /// No time has more than the rate, one bucket, and the debt that begins with its last
    /// admission: what that costs beyond a bucket, and what is charged late afterwards.
    fn check(&self) {
        self.check_debt(|debt, event| {
            if event.late {
                debt + event.tokens
            } else {
                (event.tokens - event.bucket).max(0.0)
            }
        });
    }

    /// No time has more than the rate, one bucket, and the largest late charge.
    fn check_by_largest(&self) {
        self.check_debt(|debt, event| {
            if event.late {
                debt.max(event.tokens)
            } else {
                debt
            }
        });
    }

    fn check_debt(&self, next: impl Fn(f64, &Event) -> f64) {
        let events = self.events.lock().unwrap();
        for (index, first) in events.iter().enumerate() {
            let (mut total, mut debt) = (0.0, 0.0);
            for event in &events[index..] {
                total += event.tokens;
                debt = next(debt, event);
                // A timer has a resolution of a millisecond.
                let bound = (event.issued - first.issued) * 1.000_1 + 0.2;
                let bound = bound + first.largest + debt;
                assert!(total <= bound, "{total} of {bound} from event {index} on");
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Request {
    start: u64,
    estimate: f64,
    actual: f64,
    lasts: u64,
    /// How long it waits.
    patience: u64,
}

fn request() -> impl Strategy<Value = Request> {
    let costs = (
        prop_oneof![0.1..3.0, 0.1..40.0],
        prop_oneof![Just(0.0), 0.0..2.0, 0.0..60.0],
    );
    let times = (
        0..20_000_u64,
        prop_oneof![0..50_u64, 0..6_000_u64],
        prop_oneof![Just(0), 0..3_000_u64],
    );
    (costs, times).prop_map(|((estimate, actual), (start, lasts, patience))| Request {
        start,
        estimate,
        actual,
        lasts,
        patience,
    })
}

fn rates() -> impl Strategy<Value = Vec<(u64, f64)>> {
    let changes = prop::collection::vec((1..5_000_u64, 5.0..50.0), 0..6);
    (5.0..50.0, changes).prop_map(|(first, changes)| {
        let mut at = 0;
        let changes = changes.into_iter().map(|(after, rate)| {
            at += after;
            (at, rate)
        });
        [(0, first)]
            .into_iter()
            .chain(changes.collect::<Vec<_>>())
            .collect()
    })
}

fn run(test: impl Future<Output = ()>) {
    let mut builder = runtime::Builder::new_current_thread();
    builder
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(test);
}

async fn send(request: Request, rate: Rate, history: Arc<History>) {
    let Request {
        estimate,
        actual,
        lasts,
        patience,
        ..
    } = request;
    sleep(Duration::from_millis(request.start)).await;
    let start = clock::now();
    let charge = if patience == 0 {
        rate.try_charge(cost(estimate)).ok()
    } else {
        let patience = Duration::from_millis(patience);
        let charge = timeout(patience, rate.charge(cost(estimate))).await;
        charge.ok().map(Result::unwrap)
    };
    let Some(charge) = charge else { return };
    // A refund counts from the beginning.
    history.add(start, estimate.min(actual), false);
    sleep(Duration::from_millis(lasts)).await;
    if actual > estimate {
        history.add(clock::now(), actual - estimate, true);
    }
    charge.settle(actual);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_time_has_more_than_rate_burst_and_late_charges(
        requests in prop::collection::vec(request(), 1..150),
        rates in rates(),
        burst in 200..3_000_u64,
    ) {
        let supply = TokenSource { rates, burst: Duration::from_millis(burst) };
        run(async {
            let rate = supply.begin();
            let history = Arc::new(History { supply, start: clock::now(), events: Mutex::default() });
            let tasks: Vec<_> = requests
                .into_iter()
                .map(|it| tokio::spawn(send(it, rate.clone(), Arc::clone(&history))))
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            history.check();
        });
    }

    #[test]
    fn one_request_in_flight_exceeds_by_the_largest_late_charge(
        requests in prop::collection::vec(request(), 1..60),
        rates in rates(),
        burst in 200..3_000_u64,
    ) {
        let supply = TokenSource { rates, burst: Duration::from_millis(burst) };
        run(async {
            let rate = supply.begin();
            // Each fits into a bucket.
            let largest = supply.buckets(0.0, f64::INFINITY).0;
            let history = Arc::new(History { supply, start: clock::now(), events: Mutex::default() });
            for mut request in requests {
                request.start %= 500;
                request.estimate = request.estimate.min(largest);
                send(request, rate.clone(), Arc::clone(&history)).await;
            }
            history.check_by_largest();
        });
    }

    #[test]
    fn rate_under_load_is_the_limit(
        requests in prop::collection::vec((0.5..10.0, 0.25..4.0, 0..2_000_u64), 1..60),
        mut rates in rates(),
    ) {
        for (_, rate) in &mut rates {
            *rate *= 4.0;
        }
        // It holds the estimates of the requests in flight: at most four times their cost.
        let supply = TokenSource { rates, burst: Duration::from_secs(20) };
        run(async {
            let (rate, charged) = (supply.begin(), Arc::new(Mutex::new(0.0)));
            let start = clock::now();
            let mut begun = None;
            for (estimate, factor, lasts) in requests.into_iter().cycle() {
                let charge = rate.charge(cost(estimate)).await.unwrap();
                *charged.lock().unwrap() += estimate;
                let passed = clock::now().seconds_since(start);
                let now = (passed, supply.issued(passed), *charged.lock().unwrap());
                let (began, issued, spent) = *begun.get_or_insert(now);
                if passed < 10.0 {
                    // The first bucket is being spent.
                    begun = None;
                } else if passed > began + 120.0 {
                    let part = (now.2 - spent) / (now.1 - issued);
                    assert!((0.99..1.01).contains(&part), "{part} of the rate");
                    break;
                }
                let charged = Arc::clone(&charged);
                tokio::spawn(async move {
                    sleep(Duration::from_millis(lasts)).await;
                    *charged.lock().unwrap() += estimate * (factor - 1.0);
                    charge.settle(estimate * factor);
                });
            }
        });
    }
}
