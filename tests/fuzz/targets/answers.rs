//! Answers of a hostile control plane, read by the state machine that holds the leases.

use std::{collections::BTreeMap, time::Duration};

use doorman_openapi::{Capacity, CapacityResponse, ClientId, Moment, ResourceId, Seconds, Seq};
use tower_doorman::lease::{Demand, Effect, Event, Failure, Holder, HolderSettings, Holding};

/// The byte between two answers; JSON has no place for it.
const SEPARATOR: u8 = 0x1e;
/// The most answers of one input.
const MOST_ANSWERS: usize = 16;
/// The most ticks at one moment: one for each request that may be under way, and some to spare.
const MOST_TICKS: usize = 64;

/// Takes the bytes for answers in a row, each to the next request for `db` and `tenant/a`. What is no answer is a failure, by its
/// first byte.
///
/// # Panics
/// When an answer lengthens a lease, makes one of what is no amount, repeats a number, or keeps the holder busy without rest.
pub fn run(data: &[u8]) {
    let mut world = World::new();
    for answer in data.split(|byte| *byte == SEPARATOR).take(MOST_ANSWERS) {
        let Some(seq) = world.next_request() else {
            break;
        };
        let event = match serde_json::from_slice(answer) {
            Ok(response) => Event::Answered { seq, response },
            Err(_) => Event::Failed {
                seq,
                failure: failure(answer),
            },
        };
        world.handle(event);
    }
    world.handle(Event::Stop);
    assert!(
        world.open.is_empty(),
        "one that has stopped asks for something"
    );
    assert_eq!(world.holder.wake_at(), Moment::NEVER);
}

fn failure(answer: &[u8]) -> Failure {
    // The last bytes count.
    let rest = answer.iter().skip(1);
    let number = rest.fold(0, |number, byte| (number << 8) | u64::from(*byte));
    let position = usize::try_from(number).unwrap_or(usize::MAX);
    match answer.first() {
        Some(b'0') => Failure::Unavailable {
            retry_after: Some(Duration::from_secs(number)),
        },
        Some(b'1') => Failure::Redirected { to: Some(position) },
        Some(b'2') => Failure::Redirected { to: None },
        Some(b'3') => Failure::Rejected {
            positions: vec![position, 0],
        },
        Some(b'4') => Failure::Rejected {
            positions: Vec::new(),
        },
        Some(b'5') => Failure::TooLarge,
        _ => Failure::Unavailable { retry_after: None },
    }
}

/// A holder, and its time.
struct World {
    holder: Holder,
    now: Moment,
    last: Option<Seq>,
    /// Requests that have not been answered, and when they were sent.
    open: BTreeMap<Seq, Moment>,
}

impl World {
    fn new() -> Self {
        let settings = HolderSettings {
            client_id: ClientId::new("fuzz").expect("a good name"),
            endpoints: 3,
            seed: 7,
        };
        let now = Moment::ORIGIN.after_seconds(3600.0);
        let mut world = Self {
            holder: Holder::new(settings),
            now,
            last: None,
            open: BTreeMap::new(),
        };
        for resource in ["db", "tenant/a"] {
            let resource = ResourceId::new(resource).expect("a good name");
            let wants = Capacity::saturating(50.0);
            world.handle(Event::Demand {
                resource,
                demand: Demand {
                    wants,
                    ..Demand::default()
                },
            });
        }
        world
    }

    /// Lets time pass until something is asked.
    fn next_request(&mut self) -> Option<Seq> {
        for _ in 0..MOST_TICKS {
            if let Some((seq, _)) = self.open.first_key_value() {
                return Some(*seq);
            }
            let wake = self.holder.wake_at();
            if wake == Moment::NEVER {
                return None;
            }
            self.now = self.now.max(wake);
            self.handle(Event::Tick);
        }
        panic!("the holder is kept busy at {:?}", self.now);
    }

    fn handle(&mut self, event: Event) {
        let (sent, response) = match &event {
            Event::Answered { seq, response } => (self.open.remove(seq), Some(response.clone())),
            Event::Failed { seq, .. } => (self.open.remove(seq), None),
            Event::Stop => {
                self.open.clear();
                (None, None)
            }
            Event::Demand { .. } | Event::Forget { .. } | Event::Tick => (None, None),
        };
        for effect in self.holder.handle(event, self.now) {
            match effect {
                Effect::Send {
                    seq,
                    timeout,
                    endpoint,
                    ..
                } => {
                    self.numbered(seq);
                    assert!(timeout > Duration::ZERO && endpoint < 3);
                    self.open.insert(seq, self.now);
                }
                Effect::SendRelease { seq, endpoint, .. } => {
                    self.numbered(seq);
                    assert!(endpoint < 3);
                }
                Effect::Changed { resource, holding } => {
                    is_sound(&holding);
                    if let (Some(sent), Some(response)) = (sent, &response) {
                        was_told(&resource, &holding, sent, response);
                    }
                }
                Effect::Warn(_) => {}
            }
        }
    }

    fn numbered(&mut self, seq: Seq) {
        assert!(self.last < Some(seq), "{seq} after {:?}", self.last);
        self.last = Some(seq);
    }
}

fn is_sound(holding: &Holding) {
    assert!(
        holding
            .lease
            .is_none_or(|lease| lease.capacity.get().is_finite()),
        "{holding:?}"
    );
    let told = holding.terms.as_ref();
    assert!(
        told.is_none_or(|told| told.per > Seconds::ZERO),
        "{holding:?}"
    );
    assert!(told.is_none_or(|told| told.limit.is_none_or(|limit| limit.get().is_finite())));
}

/// A lease that came with this answer is one that stands in it, counted from the sending.
fn was_told(resource: &ResourceId, holding: &Holding, sent: Moment, response: &CapacityResponse) {
    let Some(lease) = holding.lease else { return };
    let of_resource = response
        .resources
        .iter()
        .filter(|answer| answer.resource_id == *resource);
    let mut told = of_resource.map(|answer| answer.gets);
    assert!(
        told.any(|gets| gets.capacity == lease.capacity
            && sent.after(gets.lease_length.duration()) == lease.ends),
        "{lease:?} {response:?}"
    );
}
