//! Long buckets of holders, which are together one bucket for the whole capacity.

use std::collections::BTreeMap;

use doorman_openapi::{Balance, Bucket, ClientId, ReleaseRequest, Seconds};
use fastrand::Rng;

use super::{World, close, db, parse, request};
use crate::ledger::{Grant, Ledger, tests::SETTINGS};

const RATE: f64 = 10.0;
const BURST: f64 = 600.0;
const FULL: f64 = RATE * BURST;
const DOCUMENT: &str = "resources: [{identifier_glob: '*', capacity: 10, algorithm: {kind: \
                        FAIR_SHARE, lease_length: 60, refresh_interval: 5}}]";

/// A client with a bucket, as the layer has it.
#[derive(Debug)]
struct Client {
    id: String,
    rate: Option<f64>,
    has_bucket: bool,
    tokens: f64,
}

impl Client {
    fn new(id: usize) -> Self {
        Self {
            id: format!("c{id}"),
            rate: None,
            has_bucket: false,
            tokens: 0.0,
        }
    }

    fn size(&self) -> f64 {
        (self.rate.unwrap_or_default() * BURST).max(1.0)
    }

    fn refill(&mut self, seconds: f64) {
        if let Some(rate) = self.rate {
            self.tokens = self.size().min(self.tokens + rate * seconds);
        }
    }

    fn refresh(&mut self, world: &mut World, wants: f64) {
        let grant = self.ask(world, wants);
        self.rate = Some(grant.capacity.get());
        self.has_bucket = true;
        self.tokens += grant.tokens.map_or(0.0, Balance::get);
        self.tokens = self.tokens.min(self.size());
    }

    /// A request whose response is lost, unless the caller takes it.
    fn ask(&self, world: &mut World, wants: f64) -> Grant {
        let mut request = request(&self.id, None, wants, self.rate);
        request.resources[0].bucket = Some(Bucket {
            burst: Seconds::saturating(BURST),
            tokens: self.has_bucket.then(|| Balance::saturating(self.tokens)),
        });
        world.send(&request)
    }

    fn release(self, world: &mut World) {
        let release = ReleaseRequest {
            client_id: ClientId::new(&*self.id).unwrap(),
            run: None,
            seq: None,
            heard_epoch: None,
            resource_ids: None,
            tokens: BTreeMap::from([(db(), Balance::saturating(self.tokens))]),
        };
        world.ledger.release(&release.into(), world.now);
    }

    fn spend(&mut self, most: f64) -> f64 {
        let most = if self.rate.is_some() { most } else { 0.0 };
        let spent = most.min(self.tokens).max(0.0);
        self.tokens -= spent;
        spent
    }
}

/// The same leases and buckets in a successor.
fn restart(world: &mut World) {
    let records: Vec<_> = world.ledger.snapshot(world.now).collect();
    world.ledger = Ledger::new(parse(DOCUMENT), SETTINGS, world.now);
    for record in records {
        world.ledger.restore(&record, world.now).unwrap();
    }
}

#[test]
fn buckets_of_all_holders_are_one() {
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let mut world = World::new(parse(DOCUMENT));
        let mut clients: Vec<_> = (0..4).map(Client::new).collect();
        let (mut ids, mut spent, mut elapsed) = (clients.len(), 0.0, 0.0);
        for _ in 0..600 {
            let seconds = 4.0 * rng.f64();
            world.wait(seconds);
            elapsed += seconds;
            let which = rng.usize(..clients.len());
            let wants = if rng.bool() { 20.0 * rng.f64() } else { 0.0 };
            for (index, client) in clients.iter_mut().enumerate() {
                client.refill(seconds);
                if index == which {
                    spent += client.spend(FULL * rng.f64() * rng.f64());
                }
                client.refresh(&mut world, if index == which { wants } else { 3.0 });
            }
            match rng.u32(..40) {
                0 => {
                    clients.swap_remove(which).release(&mut world);
                    clients.push(Client::new(ids));
                    ids += 1;
                }
                1 => {
                    // Without a release. Its lease ends.
                    clients[which] = Client::new(ids);
                    ids += 1;
                }
                2 => restart(&mut world),
                3 => {
                    // Cut off until its lease has ended. It keeps its tokens.
                    clients[which].rate = None;
                    let others = clients.iter_mut().enumerate();
                    let others = others.filter(|(index, _)| *index != which);
                    let mut others: Vec<_> = others.map(|(_, client)| client).collect();
                    for _ in 0..20 {
                        world.wait(4.0);
                        elapsed += 4.0;
                        for client in &mut others {
                            client.refill(4.0);
                            spent += client.spend(100.0);
                            client.refresh(&mut world, 20.0);
                        }
                    }
                    drop(clients[which].ask(&mut world, 20.0));
                }
                4..8 => drop(clients[which].ask(&mut world, 20.0 * rng.f64())),
                _ => {}
            }
            let most = FULL + RATE * elapsed + 1e-3;
            assert!(
                spent <= most,
                "seed {seed}: {spent} of {most} after {elapsed} s"
            );
        }
        assert!(spent > RATE * elapsed * 0.5, "seed {seed}: {spent}");
    }
}

#[test]
fn released_bucket_refills_while_nobody_has_a_lease() {
    let mut world = World::new(parse(DOCUMENT));
    let mut first = Client::new(1);
    first.refresh(&mut world, 10.0);
    close(first.tokens, FULL);
    assert_eq!(first.spend(4000.0), 4000.0);
    first.release(&mut world);
    world.wait(300.0);
    let mut second = Client::new(2);
    second.refresh(&mut world, 10.0);
    close(second.tokens, 2000.0 + 3000.0);
    second.release(&mut world);
    world.wait(100.0);
    // Nothing is spent any more: the resource is forgotten.
    assert!(world.view().is_none());
}

#[test]
fn growing_lease_brings_its_part_of_the_bucket() {
    let mut world = World::new(parse(DOCUMENT));
    let mut client = Client::new(1);
    for wants in [1.0, 4.0, 10.0] {
        client.refresh(&mut world, wants);
        close(client.tokens, client.size());
    }
    close(client.tokens, FULL);
}

#[test]
fn client_that_lost_a_response_gets_its_bucket_again() {
    let mut world = World::new(parse(DOCUMENT));
    let mut client = Client::new(1);
    client.refresh(&mut world, 1.0);
    for _ in 0..3 {
        drop(client.ask(&mut world, 10.0));
    }
    client.refresh(&mut world, 10.0);
    close(client.tokens, FULL);
}

#[test]
fn token_without_a_lease_outlives_a_crash_of_the_server() {
    for first in [0, 1] {
        let mut world = World::new(parse(DOCUMENT));
        let mut clients = [Client::new(0), Client::new(1)];
        clients[0].refresh(&mut world, 4.0);
        for _ in 0..3 {
            clients[1].refresh(&mut world, 10.0);
            clients[0].refresh(&mut world, 0.0);
        }
        assert_eq!((clients[0].rate, clients[0].tokens), (Some(0.0), 1.0));
        close(clients[1].tokens, FULL - 1.0);
        world.ledger = Ledger::new(parse(DOCUMENT), SETTINGS, world.now);
        for which in [first, 1 - first] {
            clients[which].refresh(&mut world, if which == 0 { 0.0 } else { 10.0 });
        }
        close(clients[1].tokens, FULL - 1.0);
        // The server knows of no token that is free once the other one has the whole bucket.
        assert_eq!(clients[0].tokens, if first == 0 { 1.0 } else { 0.0 });
    }
}

#[test]
fn token_beyond_a_part_returns_with_its_release() {
    let mut world = World::new(parse(DOCUMENT));
    let [mut idle, mut busy] = [Client::new(0), Client::new(1)];
    idle.refresh(&mut world, 4.0);
    for _ in 0..3 {
        busy.refresh(&mut world, 10.0);
        idle.refresh(&mut world, 0.0);
    }
    assert_eq!((idle.rate, idle.tokens), (Some(0.0), 1.0));
    busy.refresh(&mut world, 4.0);
    idle.release(&mut world);
    busy.refresh(&mut world, 10.0);
    close(busy.tokens, FULL);
}

#[test]
fn copy_of_a_request_gets_the_same_tokens() {
    let mut world = World::new(parse(DOCUMENT));
    let mut request = request("c1", Some(1), 10.0, None);
    request.resources[0].bucket = Some(Bucket {
        burst: Seconds::saturating(BURST),
        tokens: None,
    });
    let tokens = world.send(&request).tokens;
    assert_eq!(tokens, Some(Balance::saturating(FULL)));
    assert_eq!(world.send(&request).tokens, tokens);
}

#[test]
fn stated_tokens_cannot_void_the_quota_of_others() {
    let mut world = World::new(parse(DOCUMENT));
    let mut hostile = Client::new(1);
    hostile.rate = Some(1e15);
    hostile.has_bucket = true;
    hostile.tokens = -1e15;
    hostile.refresh(&mut world, 10.0);
    hostile.tokens = -1e15;
    hostile.release(&mut world);
    // The debt of a holder is one bucket at most.
    world.wait(2.0 * BURST);
    let mut client = Client::new(2);
    client.refresh(&mut world, 10.0);
    close(client.tokens, FULL);
}
