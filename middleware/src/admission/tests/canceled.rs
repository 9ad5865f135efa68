//! A request canceled at any moment leaves no trace: its world equals one in which it never came.

use tower::Service as _;

use super::*;
use crate::{Rate, testing::poll_and_drop};

const PAUSE: Duration = Duration::from_millis(70);

/// A service behind limits, and the receiver of its nudges.
struct World {
    registry: Arc<Registry>,
    service: LimitService<Inner>,
    _nudges: tokio::sync::mpsc::UnboundedReceiver<Nudge>,
}

impl World {
    fn new(limits: &[Limit]) -> Self {
        let (registry, nudges) = leased_registry(10);
        Self {
            service: limited(&registry, limits.to_vec()),
            registry,
            _nudges: nudges,
        }
    }

    /// Tokens left, waiting requests and totals of every limiter.
    fn state(&self) -> Vec<(String, i64, u32, Tally)> {
        let now = clock::now();
        let mut limiters = self.registry.limiters();
        limiters.sort_by_key(|one| one.resource());
        let state = limiters.iter().map(|limiter| {
            let left = limiter.reading(now).left;
            // A release may differ in the last bit.
            let left = (left * 1e6).round() as i64;
            (
                limiter.resource().to_string(),
                left,
                limiter.waiting(),
                limiter.tally(),
            )
        });
        state.collect()
    }
}

/// Starts a future in one of two equal worlds and drops it after 0, 1, 2 … polls, until it
/// completes. `happens` runs between the polls, in both worlds. Returns the number of polls.
async fn leaves_no_trace<F: Future>(
    limits: &[Limit],
    happens: impl Fn(&World, u32),
    begin: impl Fn(&World) -> F,
    end: impl Fn(F::Output),
) -> u32 {
    for polls in 0.. {
        let worlds = [(); 2].map(|()| World::new(limits));
        let happens = |poll| worlds.iter().for_each(|world| happens(world, poll));
        happens(0);
        if let Some(output) = poll_and_drop(begin(&worlds[0]), polls, PAUSE, happens).await {
            end(output);
            return polls;
        }
        assert_eq!(worlds[0].state(), worlds[1].state(), "after {polls} polls");
    }
    unreachable!("the future completes");
}

fn request(world: &World) -> impl Future<Output = u16> + use<> {
    // Decided before the first poll.
    let response = world.service.clone().call(Request::new(()));
    async move { response.await.unwrap().status().as_u16() }
}

fn delayed(name: &'static str) -> Limit {
    Limit::rate(name)
        .burst(Duration::ZERO)
        .on_limit(OnLimit::Delay {
            max_delay: 20 * SECOND,
        })
}

fn drain(world: &World, resource: &str) {
    let rate = Rate::new(Arc::clone(&world.registry), resource);
    while rate.try_acquire(Cost::ONE).is_ok() {}
}

#[tokio::test(start_paused = true)]
async fn canceled_delay_is_released() {
    let happens = |world: &World, poll| {
        if poll == 0 {
            world.registry.publish("api", leased(2.0, MINUTE));
            drain(world, "api");
        }
    };
    let polls = leaves_no_trace(&[delayed("api")], happens, request, |status| {
        assert_eq!(status, 200);
    })
    .await;
    assert!(polls > 5);
}

#[tokio::test(start_paused = true)]
async fn canceled_request_releases_all_limits() {
    let limits = [
        Limit::rate("fleet").cost(Cost::new(4.0).unwrap()),
        delayed("first"),
        Limit::rate("late").wait_for_lease(10 * SECOND),
        delayed("second").cost(Cost::new(2.5).unwrap()),
    ];
    let happens = |world: &World, poll| match poll {
        0 => {
            world.registry.publish("fleet", leased(10.0, MINUTE));
            world.registry.publish("first", leased(2.0, MINUTE));
            world.registry.publish("second", leased(1.5, MINUTE));
            drain(world, "first");
            drain(world, "second");
        }
        3 => world.registry.publish("late", leased(5.0, MINUTE)),
        // Changes while the request waits.
        6 => world.registry.publish("first", leased(1.0, MINUTE)),
        8 => world
            .registry
            .publish("second", no_lease(Some(SafeRate::PerSecond(3.0)))),
        _ => {}
    };
    let polls = leaves_no_trace(&limits, happens, request, |status| assert_eq!(status, 200)).await;
    assert!(polls > 9);
}

#[tokio::test(start_paused = true)]
async fn canceled_refusal_releases_other_limits() {
    let limits = [Limit::rate("fleet"), delayed("api")];
    let happens = |world: &World, poll| match poll {
        0 => {
            world.registry.publish("fleet", leased(10.0, MINUTE));
            world.registry.publish("api", leased(2.0, MINUTE));
            drain(world, "api");
        }
        4 => world.registry.publish("api", leased(0.01, MINUTE)),
        _ => {}
    };
    let polls = leaves_no_trace(&limits, happens, request, |status| assert_eq!(status, 429)).await;
    assert!(polls > 4);
}

fn wait(world: &World) -> impl Future<Output = Result<(), Refusal>> + use<> {
    let rate = Rate::new(Arc::clone(&world.registry), "db");
    async move { rate.wait(Cost::new(1.5).unwrap()).await }
}

#[tokio::test(start_paused = true)]
async fn canceled_wait_is_released() {
    let happens = |world: &World, poll| match poll {
        // Without a lease at first.
        0 => drop(Rate::new(Arc::clone(&world.registry), "db")),
        3 => world.registry.publish("db", leased(2.0, MINUTE)),
        _ => {}
    };
    let polls = leaves_no_trace(&[], happens, wait, |outcome| outcome.unwrap()).await;
    assert!(polls > 3);

    let happens = |world: &World, poll| {
        drop(Rate::new(Arc::clone(&world.registry), "db"));
        if poll == 0 {
            world.registry.publish("db", leased(2.0, MINUTE));
            drain(world, "db");
        }
    };
    let polls = leaves_no_trace(&[], happens, wait, |outcome| outcome.unwrap()).await;
    assert!(polls > 5);
}
