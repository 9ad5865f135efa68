//! The demand for long buckets, as operators see it.

use doorman_openapi::{Balance, Bucket, HeldBackBy, Seconds};

use super::{World, periodic, request};
use crate::ledger::Grant;

const HOUR: f64 = 3600.0;
const INTERVAL: f64 = 5.0;

/// A client of a limit of six an hour, with a bucket of an hour, which measures as the layer does.
#[derive(Debug)]
struct Client {
    id: String,
    rate: Option<f64>,
    tokens: f64,
    /// Requests that were admitted before the first lease.
    owed: f64,
    /// The number and the time of the last requests.
    last: Option<(f64, f64)>,
    time: f64,
}

impl Client {
    fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            rate: None,
            tokens: 0.0,
            owed: 0.0,
            last: None,
            time: 0.0,
        }
    }

    /// Makes requests at one moment, of which it rejects those without a token.
    fn request(&mut self, requests: f64) {
        self.last = Some((requests, self.time));
        if self.rate.is_some() {
            self.tokens -= requests.min(self.tokens.floor());
        } else {
            self.owed += requests;
        }
    }

    fn wants(&self) -> f64 {
        self.last
            .map_or(0.0, |(requests, at)| match self.time - at {
                quiet if quiet <= 2.0 * INTERVAL => requests / quiet.max(1.0),
                quiet => 1.0 / quiet,
            })
    }

    fn refresh(&mut self, world: &mut World) -> Grant {
        let mut request = request(&self.id, None, self.wants() * HOUR, self.rate);
        request.resources[0].per = Some(Seconds::saturating(HOUR));
        request.resources[0].bucket = Some(Bucket {
            burst: Seconds::saturating(HOUR),
            tokens: self.rate.map(|_| Balance::saturating(self.tokens)),
        });
        let grant = world.send(&request);
        self.tokens += grant.tokens.map_or(0.0, Balance::get);
        self.rate = Some(grant.capacity.get());
        let owed = std::mem::take(&mut self.owed);
        self.tokens -= owed.min(self.tokens.floor());
        grant
    }

    /// Refreshes until so many seconds later.
    fn run(&mut self, world: &mut World, seconds: f64) {
        for _ in 0..(seconds / INTERVAL) as usize {
            world.wait(INTERVAL);
            self.time += INTERVAL;
            let size = self.rate.unwrap_or_default().max(1.0);
            let refilled = self.rate.unwrap_or_default() / HOUR * INTERVAL;
            self.tokens = (self.tokens + refilled).min(size);
            self.refresh(world);
        }
    }
}

#[track_caller]
fn between(got: f64, least: f64, most: f64) {
    assert!(
        (least..=most).contains(&got),
        "{got} is not in {least}..={most}"
    );
}

#[test]
fn burst_that_a_long_bucket_admits_is_no_overload() {
    let mut world = World::new(periodic(6.0, HOUR));
    let mut client = Client::new("c");
    client.request(3.0);
    client.refresh(&mut world);
    for step in 0..200 {
        client.run(&mut world, INTERVAL);
        let view = world.view().unwrap();
        assert_eq!((view.unmet, view.fill_level), (0.0, None), "step {step}");
        assert_eq!(view.warning, None, "step {step}");
        between(view.sum_wants, 2.2, 3.0);
        let holder = world.holder("c");
        assert_eq!(holder.held_back_by, None, "step {step}");
        between(holder.wants.get(), 2.2, 3.0);
    }
    assert_eq!(world.ledger.take_events().events, vec![]);
}

#[test]
fn steady_demand_within_a_long_bucket_is_its_mean() {
    let mut world = World::new(periodic(6.0, HOUR));
    let mut client = Client::new("c");
    // One request in twelve minutes: five an hour.
    for _ in 0..30 {
        client.request(1.0);
        client.run(&mut world, 720.0);
        assert_eq!(world.view().unwrap().unmet, 0.0);
    }
    between(world.view().unwrap().sum_wants, 4.0, 5.5);
}

#[test]
fn rejected_requests_of_a_long_bucket_count() {
    for earlier in [0.0, 1.0] {
        let mut world = World::new(periodic(6.0, HOUR));
        let mut client = Client::new("c");
        if earlier > 0.0 {
            client.request(earlier);
            client.refresh(&mut world);
            client.run(&mut world, 600.0);
        }
        client.request(10.0);
        client.refresh(&mut world);
        client.run(&mut world, 60.0);
        let view = world.view().unwrap();
        between(view.sum_wants, 9.5, 10.5);
        between(view.unmet, 3.5, 4.5);
        let holder = world.holder("c");
        assert_eq!(holder.held_back_by, Some(HeldBackBy::Share));
        between(holder.wants.get(), 9.5, 11.0);
        client.run(&mut world, 1.25 * HOUR);
        assert_eq!(world.view().unwrap().unmet, 0.0);
    }
}

#[test]
fn overload_of_a_long_bucket_is_its_rate() {
    let mut world = World::new(periodic(6.0, HOUR));
    let mut client = Client::new("c");
    client.refresh(&mut world);
    // One request each five seconds for six hours.
    for _ in 0..4320 {
        client.request(1.0);
        client.run(&mut world, INTERVAL);
    }
    let view = world.view().unwrap();
    between(view.sum_wants, 600.0, 800.0);
    between(view.unmet, 594.0, 794.0);
    let holder = world.holder("c");
    assert_eq!(holder.held_back_by, Some(HeldBackBy::Share));
}

#[test]
fn overload_of_a_long_bucket_ends_after_its_time() {
    for (wants, reports) in [(1000.0, 12), (1e15 / HOUR, 1)] {
        let mut world = World::new(periodic(6.0, HOUR));
        let mut client = Client::new("c");
        client.refresh(&mut world);
        for _ in 0..reports {
            world.wait(INTERVAL);
            client.time += INTERVAL;
            send(&mut world, "c", wants, 6.0, HOUR, 0.0);
        }
        assert!(world.view().unwrap().unmet > 4000.0, "{wants}");
        client.tokens = 0.0;
        client.run(&mut world, 1.25 * HOUR);
        let view = world.view().unwrap();
        assert_eq!((view.unmet, view.sum_wants), (0.0, 0.0), "{wants}");
    }
}

/// A report of a client, with its demand per second, its lease and what its bucket has.
fn send(world: &mut World, id: &str, wants: f64, has: f64, burst: f64, tokens: f64) {
    let mut request = request(id, None, wants * HOUR, Some(has));
    request.resources[0].per = Some(Seconds::saturating(HOUR));
    request.resources[0].bucket = Some(Bucket {
        burst: Seconds::saturating(burst),
        tokens: Some(Balance::saturating(tokens)),
    });
    world.send(&request);
}

#[test]
fn only_long_buckets_have_a_recent_demand() {
    for burst in [0.0, 1.0, 10.0] {
        let mut world = World::new(periodic(100.0, 1.0));
        for _ in 0..4 {
            send(&mut world, "c", 150.0, 100.0 * HOUR, burst, 0.0);
            let view = world.view().unwrap();
            assert_eq!((view.sum_wants, view.unmet), (150.0, 50.0), "{burst}");
            world.wait(INTERVAL);
        }
    }
}

#[test]
fn client_without_its_long_bucket_has_its_measured_demand() {
    let mut world = World::new(periodic(6.0, HOUR));
    send(&mut world, "c", 0.0, 6.0, HOUR, 6.0);
    assert_eq!(world.view().unwrap().sum_wants, 0.0);
    world.wait(INTERVAL);
    let mut request = request("c", None, HOUR, Some(6.0));
    request.resources[0].per = Some(Seconds::saturating(HOUR));
    world.send(&request);
    assert_eq!(world.view().unwrap().sum_wants, HOUR);
}

/// A bucket of one token is long if the token takes long.
#[test]
fn bucket_of_a_slow_limit_is_long_whatever_it_states() {
    for burst in [0.0, 1.0] {
        let mut world = World::new(periodic(6.0, HOUR));
        send(&mut world, "c", 1.0, 6.0, burst, 1.0);
        between(world.view().unwrap().sum_wants, 0.0, 6.0);
    }
}

#[test]
fn largest_bucket_is_the_time_of_the_demand() {
    for order in [["a", "b"], ["b", "a"]] {
        let mut world = World::new(periodic(60.0, 60.0));
        for id in order {
            let burst = if id == "a" { HOUR } else { 60.0 };
            send(&mut world, id, 3600.0, 0.0, burst, 0.0);
        }
        // 3600 requests of each client in a second, in an hour.
        between(world.view().unwrap().sum_wants, 119.0, 121.0);
        world.release("a", None);
        between(world.view().unwrap().sum_wants, 7190.0, 7210.0);
    }
}

#[test]
fn request_for_more_than_a_long_bucket_has_is_rejected() {
    let mut world = World::new(periodic(6000.0, HOUR));
    send(&mut world, "c", 0.0, 6000.0, HOUR, 4000.0);
    world.wait(INTERVAL);
    send(&mut world, "c", 5000.0, 6000.0, HOUR, 4000.0);
    world.wait(INTERVAL);
    send(&mut world, "c", 5000.0, 6000.0, HOUR, 4000.0);
    assert!(world.view().unwrap().unmet > 0.0);
    assert_eq!(world.holder("c").held_back_by, Some(HeldBackBy::Share));
}

#[test]
fn share_below_the_demand_is_explained_by_tokens() {
    let mut world = World::new(periodic(6.0, HOUR));
    send(&mut world, "c", 9.0 / HOUR, 6.0, HOUR, 6.0);
    world.wait(INTERVAL);
    send(&mut world, "c", 9.0, 6.0, HOUR, 0.0);
    world.wait(INTERVAL);
    send(&mut world, "c", 9.0 / HOUR, 6.0, HOUR, 1.0);
    let holder = world.holder("c");
    assert_eq!(holder.held_back_by, None);
    assert_eq!(holder.why, "its share is 6, and its bucket has tokens");
}
