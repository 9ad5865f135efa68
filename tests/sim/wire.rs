//! What goes over the network, and what becomes of it there.

use doorman_openapi::{
    CapacityRequest, CapacityResponse, Moment, ReleaseRequest, Seq, ServerCapacityRequest,
};
use fastrand::Rng;
use tower_doorman::lease::Failure;

/// Whoever sends and receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    Client(usize),
    Node,
    Server(usize),
    Etcd,
}

/// Leases, or why there are none.
pub(super) type Outcome = Result<CapacityResponse, Failure>;

/// A message. `life` tells one run of a process from the next; `sent` is the sender's own clock.
#[derive(Debug, Clone)]
pub(super) enum Message {
    Ask {
        life: u32,
        seq: Seq,
        sent: Moment,
        request: CapacityRequest,
    },
    Answer {
        life: u32,
        seq: Seq,
        sent: Moment,
        outcome: Outcome,
    },
    Release(ReleaseRequest),
    NodeAsk {
        epoch: u64,
        seq: u64,
        request: ServerCapacityRequest,
    },
    NodeAnswer {
        epoch: u64,
        seq: u64,
        outcome: Outcome,
    },
    /// A server renews its election lease, or stands for election.
    Campaign {
        server: usize,
        life: u32,
        sent: Moment,
        /// The seconds for which leases may last.
        longest: f64,
    },
    Elected {
        life: u32,
        sent: Moment,
        election: Option<Election>,
    },
}

/// What a master is told of its reign.
#[derive(Debug, Clone, Copy)]
pub(super) struct Election {
    pub(super) epoch: u64,
    /// For how many seconds leases of a predecessor may last, if they do.
    pub(super) learn: Option<f64>,
}

/// Nothing gets from one party to another, or to anyone, until then.
#[derive(Debug, Clone, Copy)]
struct Cut {
    from: Party,
    to: Option<Party>,
    until: Moment,
}

/// A network that loses, delays, doubles and so reorders.
#[derive(Debug, Default)]
pub(super) struct Network {
    cuts: Vec<Cut>,
    /// Nothing goes wrong any more.
    pub(super) calm: bool,
}

impl Network {
    /// Lets nothing through from one party to another, or to anyone.
    pub(super) fn cut(&mut self, from: Party, to: Option<Party>, until: Moment) {
        self.cuts.push(Cut { from, to, until });
    }

    /// Nothing goes wrong from now on.
    pub(super) fn calm_down(&mut self) {
        self.calm = true;
        self.cuts.clear();
    }

    /// After how many seconds each copy of a message arrives: none, one or two.
    pub(super) fn carry(
        &mut self,
        from: Party,
        to: Party,
        now: Moment,
        chance: &mut Rng,
    ) -> [Option<f64>; 2] {
        if self.calm {
            return [Some(0.000_2 + 0.01 * chance.f64()), None];
        }
        self.cuts.retain(|cut| now < cut.until);
        let is_cut = |cut: &Cut| cut.from == from && cut.to.is_none_or(|other| other == to);
        if self.cuts.iter().any(is_cut) || chance.f64() < 0.03 {
            return [None, None];
        }
        let copy = (chance.f64() < 0.05).then(|| delay(chance) + 10.0 * chance.f64());
        [Some(delay(chance)), copy]
    }
}

fn delay(chance: &mut Rng) -> f64 {
    let most = match chance.u8(..100) {
        0..80 => 0.02,
        80..95 => 1.0,
        95..98 => 3.0,
        _ => 40.0,
    };
    0.000_2 + most * chance.f64()
}
