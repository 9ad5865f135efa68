//! The sum of what holders believe they may use never exceeds the capacity: with messages lost,
//! late, duplicated and reordered, slow clocks, releases, expirations and cuts.

use proptest::prelude::*;

use super::*;

const HOLDERS: usize = 5;
const CAPACITY: f64 = 100.0;

#[derive(Debug, Clone)]
enum Step {
    /// A holder sends a request with this demand.
    Send(usize, f64),
    /// A holder sends a release and stops using its lease.
    Release(usize),
    /// A message in flight arrives; it may arrive again later.
    Arrive {
        index: prop::sample::Index,
        again: bool,
    },
    /// A message in flight is lost.
    Lose(prop::sample::Index),
    Wait(f64),
    /// The operator lowers the capacity.
    Cut(f64),
}

fn step() -> impl Strategy<Value = Step> {
    let index = || any::<prop::sample::Index>();
    prop_oneof![
        6 => (0..HOLDERS, 0.0..150.0f64).prop_map(|(holder, wants)| Step::Send(holder, wants)),
        1 => (0..HOLDERS).prop_map(Step::Release),
        10 => (index(), prop::bool::weighted(0.2)).prop_map(|(index, again)| Step::Arrive { index, again }),
        1 => index().prop_map(Step::Lose),
        3 => (0.0..12.0f64).prop_map(Step::Wait),
    ]
}

fn step_or_cut() -> impl Strategy<Value = Step> {
    prop_oneof![30 => step(), 1 => (0.0..CAPACITY).prop_map(Step::Cut)]
}

#[derive(Debug, Clone, Copy)]
enum Message {
    Request {
        holder: usize,
        seq: u64,
        wants: f64,
        has: Option<f64>,
        sent: Moment,
    },
    Release {
        holder: usize,
        seq: u64,
    },
    Response {
        holder: usize,
        seq: u64,
        capacity: f64,
        length: f64,
        sent: Moment,
    },
}

/// A holder that follows the protocol. Its clock runs up to 1.05 times slower than the server's.
#[derive(Debug, Clone, Copy, Default)]
struct Holder {
    seq: u64,
    believes: f64,
    until: Moment,
}

impl Holder {
    fn drift(index: usize) -> f64 {
        [1.0, 1.05, 1.02, 1.0, 1.05][index]
    }

    fn believes(&self, now: Moment) -> f64 {
        if now < self.until { self.believes } else { 0.0 }
    }
}

struct Fleet {
    world: World,
    holders: [Holder; HOLDERS],
    wire: Vec<Message>,
    capacity: f64,
}

impl Fleet {
    fn new() -> Self {
        let world = World::new(document("FAIR_SHARE", CAPACITY));
        Self {
            world,
            holders: Default::default(),
            wire: Vec::new(),
            capacity: CAPACITY,
        }
    }

    fn sum(&self) -> f64 {
        self.holders
            .iter()
            .map(|holder| holder.believes(self.world.now))
            .sum()
    }

    fn take(&mut self, step: &Step) {
        let now = self.world.now;
        match step {
            Step::Send(index, wants) => {
                let holder = &mut self.holders[*index];
                holder.seq += 1;
                let has = Some(holder.believes(now)).filter(|has| *has > 0.0);
                self.wire.push(Message::Request {
                    holder: *index,
                    seq: holder.seq,
                    wants: *wants,
                    has,
                    sent: now,
                });
            }
            Step::Release(index) => {
                let holder = &mut self.holders[*index];
                holder.seq += 1;
                holder.until = Moment::ORIGIN;
                self.wire.push(Message::Release {
                    holder: *index,
                    seq: holder.seq,
                });
            }
            Step::Arrive { .. } | Step::Lose(_) if self.wire.is_empty() => {}
            Step::Arrive { index, again } => {
                let at = index.index(self.wire.len());
                let message = if *again {
                    self.wire[at]
                } else {
                    self.wire.remove(at)
                };
                self.deliver(message);
            }
            Step::Lose(index) => {
                self.wire.swap_remove(index.index(self.wire.len()));
            }
            Step::Wait(seconds) => self.world.wait(*seconds),
            Step::Cut(capacity) => {
                self.capacity = *capacity;
                self.world
                    .ledger
                    .reconfigure(document("FAIR_SHARE", *capacity));
            }
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Request {
                holder,
                seq,
                wants,
                has,
                sent,
            } => {
                let granted = self
                    .world
                    .send(&request(&holder.to_string(), Some(seq), wants, has));
                let (capacity, length) = (granted.capacity.get(), granted.lease_length.get());
                self.wire.push(Message::Response {
                    holder,
                    seq,
                    capacity,
                    length,
                    sent,
                });
            }
            Message::Release { holder, seq } => self.world.release(&holder.to_string(), Some(seq)),
            Message::Response {
                holder: index,
                seq,
                capacity,
                length,
                sent,
            } => {
                let holder = &mut self.holders[index];
                // A holder ignores responses to older requests.
                if seq == holder.seq {
                    holder.believes = capacity;
                    holder.until = sent.after_seconds(length * Holder::drift(index));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn believed_leases_never_exceed_the_capacity(steps in prop::collection::vec(step(), 1..300)) {
        let mut fleet = Fleet::new();
        for step in &steps {
            fleet.take(step);
            let (believed, booked) = (fleet.sum(), fleet.world.view().map_or(0.0, |view| view.sum_has));
            prop_assert!(believed <= CAPACITY * (1.0 + 1e-9), "{believed} are believed after {step:?}");
            prop_assert!(booked <= CAPACITY * (1.0 + 1e-9), "{booked} is booked after {step:?}");
            prop_assert!(believed <= booked * (1.0 + 1e-9), "{believed} are believed but {booked} booked after {step:?}");
        }
    }

    #[test]
    fn believed_leases_only_fall_after_a_cut(
        steps in prop::collection::vec(step_or_cut(), 1..300)
    ) {
        let mut fleet = Fleet::new();
        let mut most = CAPACITY;
        for step in &steps {
            fleet.take(step);
            // The booked sum may rise only up to the current capacity.
            let booked = fleet.world.view().map_or(0.0, |view| view.sum_has);
            most = most.max(fleet.capacity);
            prop_assert!(booked <= most * (1.0 + 1e-9), "{booked} of {most} after {step:?}");
            prop_assert!(fleet.sum() <= booked * (1.0 + 1e-9), "after {step:?}");
            most = booked.max(fleet.capacity);
        }
    }
}
