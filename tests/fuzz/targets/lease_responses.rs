//! Lease responses of a hostile control plane, handled by the state machine of the holder.

use std::{collections::BTreeMap, time::Duration};

use doorman_openapi::{Capacity, CapacityResponse, ClientId, Moment, ResourceId, Seconds, Seq};
use tower_doorman::lease::{Demand, Effect, Event, Failure, Holder, HolderSettings, LeaseStatus};

/// Separates two responses; it never occurs in JSON.
const SEPARATOR: u8 = 0x1e;
/// The most responses of one input.
const MAX_RESPONSES: usize = 16;
/// More ticks than the holder needs before it sends a request.
const MAX_TICKS: usize = 64;

/// Reads the bytes as a sequence of responses, each to the next request for `db` and `tenant/a`.
/// Bytes that do not parse are a failure, selected by the first byte.
///
/// # Panics
/// When a lease outlasts its grant or has an invalid capacity, a sequence number does not increase,
/// or the holder ticks without end.
pub fn run(data: &[u8]) {
    let mut world = World::new();
    for bytes in data.split(|byte| *byte == SEPARATOR).take(MAX_RESPONSES) {
        let Some(seq) = world.next_request() else {
            break;
        };
        let event = match serde_json::from_slice(bytes) {
            Ok(response) => Event::Answered { seq, response },
            Err(_) => Event::Failed {
                seq,
                failure: failure(bytes),
            },
        };
        world.handle(event);
    }
    world.handle(Event::Stop);
    assert!(
        world.unanswered.is_empty(),
        "a stopped holder sends a request"
    );
    assert_eq!(world.holder.wake_at(), Moment::NEVER);
}

fn failure(bytes: &[u8]) -> Failure {
    let rest = bytes.iter().skip(1);
    let number = rest.fold(0, |number, byte| (number << 8) | u64::from(*byte));
    let position = usize::try_from(number).unwrap_or(usize::MAX);
    match bytes.first() {
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

/// A holder with its clock and network.
struct World {
    holder: Holder,
    now: Moment,
    last_seq: Option<Seq>,
    /// When each unanswered request was sent.
    unanswered: BTreeMap<Seq, Moment>,
}

impl World {
    fn new() -> Self {
        let settings = HolderSettings {
            client_id: ClientId::new("fuzz").expect("a valid identifier"),
            run: None,
            replaces: Vec::new(),
            endpoints: 3,
            seed: 7,
        };
        let now = Moment::ORIGIN.after_seconds(3600.0);
        let mut world = Self {
            holder: Holder::new(settings).polling(true),
            now,
            last_seq: None,
            unanswered: BTreeMap::new(),
        };
        for resource in ["db", "tenant/a"] {
            let resource = ResourceId::new(resource).expect("a valid identifier");
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

    /// Advances time to the next request.
    fn next_request(&mut self) -> Option<Seq> {
        for _ in 0..MAX_TICKS {
            if let Some((seq, _)) = self.unanswered.first_key_value() {
                return Some(*seq);
            }
            let wake = self.holder.wake_at();
            if wake == Moment::NEVER {
                return None;
            }
            self.now = self.now.max(wake);
            self.handle(Event::Tick);
        }
        panic!("no end of ticks at {:?}", self.now);
    }

    fn handle(&mut self, event: Event) {
        let (sent, response) = match &event {
            Event::Answered { seq, response } => {
                (self.unanswered.remove(seq), Some(response.clone()))
            }
            Event::Failed { seq, .. } => (self.unanswered.remove(seq), None),
            Event::Stop => {
                self.unanswered.clear();
                (None, None)
            }
            Event::Demand { .. }
            | Event::Report { .. }
            | Event::Overloaded { .. }
            | Event::Forget { .. }
            | Event::Hinted { .. }
            | Event::PollFailed { .. }
            | Event::PollUnsupported
            | Event::Tick => (None, None),
        };
        for effect in self.holder.handle(event, self.now) {
            match effect {
                Effect::Send {
                    seq,
                    timeout,
                    endpoint,
                    ..
                } => {
                    self.check_seq(seq);
                    assert!(timeout > Duration::ZERO && endpoint < 3);
                    self.unanswered.insert(seq, self.now);
                }
                Effect::SendRelease { seq, endpoint, .. } => {
                    self.check_seq(seq);
                    assert!(endpoint < 3);
                }
                Effect::Changed { resource, status } => {
                    check_holding(&status);
                    if let (Some(sent), Some(response)) = (sent, &response) {
                        check_granted(&resource, &status, sent, response);
                    }
                }
                Effect::OpenPoll { .. } | Effect::ClosePoll | Effect::Warn(_) => {}
            }
        }
    }

    fn check_seq(&mut self, seq: Seq) {
        assert!(self.last_seq < Some(seq), "{seq} after {:?}", self.last_seq);
        self.last_seq = Some(seq);
    }
}

fn check_holding(status: &LeaseStatus) {
    assert!(
        status
            .lease
            .is_none_or(|lease| lease.capacity.get().is_finite()),
        "{status:?}"
    );
    let terms = status.terms.as_ref();
    assert!(
        terms.is_none_or(|terms| terms.per > Seconds::ZERO),
        "{status:?}"
    );
    assert!(terms.is_none_or(|terms| terms.limit.is_none_or(|limit| limit.get().is_finite())));
}

/// The lease was granted by this response, and lasts from the moment of sending.
fn check_granted(
    resource: &ResourceId,
    status: &LeaseStatus,
    sent: Moment,
    response: &CapacityResponse,
) {
    let Some(lease) = status.lease else { return };
    let of_resource = response
        .resources
        .iter()
        .filter(|response| response.resource_id == *resource);
    let mut grants = of_resource.map(|response| response.gets);
    assert!(
        grants.any(|gets| gets.capacity == lease.capacity
            && sent.after(gets.lease_length.duration()) == lease.ends),
        "{lease:?} {response:?}"
    );
}
