//! Processes that use one client id, told apart by their runs.

use doorman_openapi::{Balance, Reason, Run};

use super::*;
use crate::ledger::{
    ClientCursor, ClientNames, HolderId, ReleasePosition, requests::ReleaseProgress,
};

const NO_RUN: Option<u64> = None;

fn run(number: u64) -> Run {
    Run::new(number).unwrap()
}

fn client() -> ClientId {
    ClientId::new("a").unwrap()
}

/// The request of a run of the client `a` for all of `db`.
fn asking(run: Option<u64>, seq: u64, has: Option<f64>) -> CapacityRequest {
    CapacityRequest {
        run: run.map(self::run),
        heard_epoch: Some(SETTINGS.epoch),
        ..request("a", Some(seq), 100.0, has)
    }
}

fn release_of(run: Option<u64>, seq: Option<u64>) -> ReleaseRequest {
    ReleaseRequest {
        client_id: client(),
        run: run.map(self::run),
        seq: seq.map(|seq| Seq::new(seq).unwrap()),
        heard_epoch: Some(SETTINGS.epoch),
        resource_ids: None,
        tokens: BTreeMap::new(),
    }
}

fn world() -> World {
    World::new(document("FAIR_SHARE", 100.0))
}

impl World {
    fn duplicates(&self) -> u64 {
        self.ledger.stats().duplicate_clients
    }

    /// The lease of each run on `db`, in the order of the runs.
    fn by_run(&self) -> Vec<(Option<u64>, f64)> {
        let holders = self.holders().into_iter();
        let mut by_run: Vec<_> = holders
            .filter(|it| it.booked > 0.0)
            .map(|it| (it.run.map(Run::get), it.booked))
            .collect();
        by_run.sort_by_key(|(run, _)| *run);
        by_run
    }

    fn poll_of(&mut self, run: u64) -> crate::ledger::PollTicket {
        let holder = HolderId::Client(client(), Some(self::run(run)));
        self.ledger.open_poll(&holder, 0, self.now)
    }
}

/// The capacities of two processes of one client: the second one sends an older `seq` without
/// `has`.
fn capacities(runs: [Option<u64>; 2]) -> ([f64; 2], u64) {
    let mut world = world();
    let first = world.send(&asking(runs[0], 9, None));
    let second = world.send(&asking(runs[1], 1, None));
    let capacities = [first, second].map(|it| it.capacity.get());
    (capacities, world.duplicates())
}

#[test]
fn second_process_of_a_client_gets_no_lease_of_the_first() {
    // Earlier versions told no processes apart: together they used 200 of 100.
    assert_eq!(capacities([None, None]), ([100.0, 100.0], 0));
    for runs in [[Some(1), Some(2)], [None, Some(2)], [Some(1), None]] {
        assert_eq!(capacities(runs), ([100.0, 0.0], 1), "{runs:?}");
    }
}

#[test]
fn runs_of_a_client_share_as_other_clients_do() {
    let mut world = world();
    world.send(&asking(Some(1), 1, None));
    let second = world.send(&asking(Some(2), 1, Some(100.0)));
    assert_eq!(
        (second.capacity.get(), second.reason),
        (0.0, Reason::Pending)
    );
    let first = world.send(&asking(Some(1), 2, Some(100.0)));
    assert_eq!((first.capacity.get(), first.reason), (50.0, Reason::Share));
    world.send(&asking(Some(1), 3, Some(50.0)));
    let second = world.send(&asking(Some(2), 2, None));
    assert_eq!(second.capacity.get(), 50.0);
    assert_eq!(world.by_run(), [(Some(1), 50.0), (Some(2), 50.0)]);
    // The order of one run is none of the other.
    assert_eq!(world.send(&asking(Some(2), 2, None)).capacity.get(), 50.0);
    assert_eq!(world.duplicates(), 1);
    let events = world.ledger.take_events().events;
    let excess_claim = LedgerEvent::ExcessClaimOfClient(db(), client());
    assert_eq!(
        events,
        [LedgerEvent::DuplicateClient(client()), excess_claim]
    );
}

#[test]
fn duplicate_that_gets_no_room_is_counted_once() {
    let settings = Settings {
        max_leases: 1,
        ..SETTINGS
    };
    let mut world = World::with(document("FAIR_SHARE", 100.0), settings);
    world.send(&asking(Some(0), 1, None));
    for seq in 1..=3 {
        for run in 1..=500 {
            let rejected = world.send(&asking(Some(run), seq, None));
            assert_eq!(rejected.reason, Reason::Full);
        }
    }
    assert_eq!(world.duplicates(), 500);
}

#[test]
fn process_that_follows_one_without_leases_is_no_duplicate() {
    let mut world = world();
    world.poll_of(5);
    world.send(&asking(Some(1), 1, None));
    let release = release_of(Some(1), Some(2));
    world.ledger.release(&release.into(), world.now);
    let next = world.send(&asking(Some(2), 1, None));
    assert_eq!(next.capacity.get(), 100.0);
    // The first one is retained for its order.
    assert_eq!((world.duplicates(), world.ledger.stats().leases), (0, 2));
}

#[test]
fn restarted_process_waits_for_the_end_of_its_old_lease() {
    let mut world = world();
    world.send(&asking(Some(1), 1, None));
    assert_eq!(world.send(&asking(Some(2), 1, None)).capacity.get(), 0.0);
    world.wait(21.0);
    assert_eq!(world.send(&asking(Some(2), 2, None)).capacity.get(), 100.0);
    assert_eq!(world.duplicates(), 1);
}

#[test]
fn release_is_of_its_run_and_of_all_runs_by_an_operator() {
    let all = [(None, 30.0), (Some(1), 30.0), (Some(2), 30.0)];
    let left = |release: ReleaseRequest| {
        let mut world = world();
        for run in [None, Some(1), Some(2)] {
            let mut request = asking(run, 5, None);
            request.resources[0].wants = Capacity::new(30.0).unwrap();
            world.send(&request);
        }
        assert_eq!(world.by_run(), all);
        world.ledger.release(&release.into(), world.now);
        world.by_run()
    };
    assert_eq!(left(release_of(Some(1), Some(6))), [all[0], all[2]]);
    assert_eq!(left(release_of(Some(2), None)), [all[0], all[1]]);
    assert_eq!(left(release_of(Some(3), Some(6))), all);
    // An earlier version of the layer.
    assert_eq!(left(release_of(None, Some(6))), [all[1], all[2]]);
    assert_eq!(left(release_of(None, Some(5))), all);
    let with_tokens = ReleaseRequest {
        tokens: BTreeMap::from([(db(), Balance::new(1.0).unwrap())]),
        ..release_of(None, None)
    };
    assert_eq!(left(with_tokens), [all[1], all[2]]);
    for resource_ids in [None, Some(vec![db()])] {
        let by_operator = ReleaseRequest {
            heard_epoch: None,
            resource_ids,
            ..release_of(None, None)
        };
        assert_eq!(left(by_operator), []);
    }
}

#[test]
fn leases_of_many_runs_are_released_in_parts() {
    const RUNS: u64 = 1_000;
    let unknown = (0..500).map(|number| ResourceId::new(format!("unknown/{number}")).unwrap());
    let many = unknown.chain([db()]).collect();
    for resource_ids in [None, Some(vec![db()]), Some(many)] {
        let mut world = world();
        for run in 0..RUNS {
            world.send(&asking(Some(run), 1, None));
            // Those without leases are work, too.
            world.poll_of(RUNS + run);
        }
        let release = ReleaseRequest {
            resource_ids,
            ..release_of(NO_RUN, None)
        };
        let (mut from, mut parts, mut released) = (ReleasePosition::default(), 0, 0);
        loop {
            let ledger = &mut world.ledger;
            let part = ledger.release_part(&release.clone().into(), &|_| true, from, world.now);
            let ReleaseProgress { scanned, next, .. } = part;
            assert!(scanned <= 64, "{scanned}");
            (parts, released) = (parts + 1, released + part.released);
            // A run that comes later is left alone, so the release ends.
            world.send(&asking(Some(2 * RUNS + parts), 1, None));
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
        assert_eq!((released as u64, parts), (RUNS, 2 * RUNS / 64 + 1));
        assert!(world.by_run().iter().all(|(run, _)| *run >= Some(2 * RUNS)));
    }
}

#[test]
fn run_that_names_its_client_replaces_its_silent_runs() {
    let mut world = world();
    let replacing = |run, seq, has| CapacityRequest {
        replaces: vec![client()],
        ..asking(Some(run), seq, has)
    };
    world.send(&replacing(1, 1, None));
    world.send(&replacing(1, 2, Some(100.0)));
    let capacity = |world: &mut World, seq| world.send(&replacing(2, seq, None)).capacity.get();
    assert_eq!(capacity(&mut world, 1), 0.0);
    world.wait(12.9);
    assert_eq!(capacity(&mut world, 2), 0.0);
    world.wait(0.1);
    assert_eq!(capacity(&mut world, 3), 100.0);
    // It names itself, too.
    world.wait(15.0);
    let again = world.send(&replacing(2, 4, Some(100.0)));
    assert_eq!(again.capacity.get(), 100.0);
    assert_eq!(world.ledger.stats().replaced, 1);
    // An older run that lives on does not end the lease of the newer one.
    world.send(&replacing(1, 3, None));
    world.wait(19.0);
    world.send(&replacing(1, 4, None));
    world.send(&replacing(1, 5, None));
    assert_eq!(world.ledger.stats().replaced, 1);
}

#[test]
fn each_run_has_a_poll_of_its_own() {
    let mut world = world();
    let polls = [1, 2].map(|run| world.poll_of(run));
    world.send(&asking(Some(1), 1, None));
    world.send(&asking(Some(2), 7, None));
    world.wait(0.3);
    let hinted = world.ledger.take_hints(world.now);
    let tickets: Vec<_> = hinted.iter().map(|(ticket, _)| *ticket).collect();
    // The second one waits for the first one.
    assert_eq!(tickets, [polls[0]]);
    assert_eq!(hinted[0].1.refresh[0].seq, Seq::new(1).ok());
}

#[test]
fn successor_tells_runs_apart() {
    let mut world = world();
    world.send(&asking(Some(1), 9, None));
    world.send(&asking(Some(2), 4, None));
    let records: Vec<_> = world.ledger.snapshot(world.now).collect();
    let text = serde_json::to_string(&records).unwrap();
    let mut next = self::world();
    for record in serde_json::from_str::<Vec<_>>(&text).unwrap() {
        next.ledger.restore(&record, next.now).unwrap();
    }
    assert_eq!(next.by_run(), [(Some(1), 100.0)]);
    assert_eq!(next.send(&asking(Some(2), 5, None)).capacity.get(), 0.0);
    assert_eq!(next.send(&asking(Some(1), 9, None)).capacity.get(), 100.0);
}

#[test]
fn each_run_confirms_its_claim_to_a_new_master() {
    let settings = Settings {
        predecessor: Predecessor::Until(Moment::ORIGIN.after_seconds(3660.0)),
        ..SETTINGS
    };
    let mut world = World::with(document("FAIR_SHARE", 100.0), settings);
    let has = |world: &mut World, run| {
        world.send(&CapacityRequest {
            heard_epoch: None,
            ..asking(Some(run), 7, Some(50.0))
        });
        let confirmed = world.send(&asking(Some(run), 8, Some(50.0)));
        confirmed.capacity.get()
    };
    assert_eq!([1, 2].map(|run| has(&mut world, run)), [50.0, 50.0]);
    assert_eq!(world.by_run(), [(Some(1), 50.0), (Some(2), 50.0)]);
}

#[test]
fn views_show_runs_and_mark_duplicates() {
    let mut world = world();
    world.send(&request("alone", Some(1), 1.0, None));
    world.send(&asking(Some(1), 1, None));
    let shown = |world: &World| {
        let mut shown: Vec<_> = world.holders().into_iter().collect();
        shown.sort_by_key(|it| (it.client_id.clone(), it.run));
        let shown = shown.iter().map(|it| (it.run, it.duplicate_client));
        shown.collect::<Vec<_>>()
    };
    assert_eq!(shown(&world), [(Some(run(1)), false), (None, false)]);
    world.send(&asking(Some(2), 1, None));
    let both = [(Some(run(1)), true), (Some(run(2)), true), (None, false)];
    assert_eq!(shown(&world), both);
    let named = world.ledger.holders_named(&db(), &client(), world.now);
    let named = named.unwrap().holders.into_iter();
    let runs: Vec<_> = named.map(|it| it.view.run.map(Run::get)).collect();
    assert_eq!(runs, [Some(2), Some(1)]);
}

#[test]
fn leases_of_all_runs_are_listed_in_pages() {
    let mut world = world();
    for run in 0..300 {
        world.send(&asking(Some(run), 1, None));
    }
    let (client, mut from, mut runs) = (client(), Some(ClientCursor::default()), Vec::new());
    while let Some(position) = from {
        let query = PageQuery::unfiltered(7);
        let names = ClientNames::One(&client);
        let page = (world.ledger).leases_of_clients(names, &query, position, world.now);
        let listed = page.leases.iter().map(|(_, it)| it.view.run.unwrap().get());
        let before = runs.len();
        runs.extend(listed);
        assert!(runs.len() <= before + 7);
        // The last one that was listed goes, and a newer one comes.
        if let Some(last) = runs.last() {
            let release = release_of(Some(*last), None);
            world.ledger.release(&release.into(), world.now);
            world.send(&asking(Some(1_000 + last), 1, None));
        }
        from = page.next;
    }
    assert_eq!(runs, (0..300).rev().collect::<Vec<_>>());
}
