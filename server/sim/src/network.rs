//! Messages between processes, and a network that loses, delays, duplicates and reorders them.

use doorman_core::{
    election::CallId, election::DiskCall, election::Handover, etcd::EtcdAnswer, etcd::EtcdCall,
    ledger::HolderId,
};
use doorman_openapi::{
    CapacityRequest, CapacityResponse, Epoch, HintsResponse, Moment, ReleaseRequest, Seq,
    ServerCapacityRequest, ServerCapacityResponse, ServerReleaseRequest,
};
use fastrand::Rng;
use tower_doorman::lease::Failure;

use super::{data_dir::Snapshot, scenario::NetworkQuality};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Process {
    Client(usize),
    Server(usize),
    /// The etcd of a node.
    Etcd(usize),
}

/// The result of a client's lease request.
pub(super) type Outcome = Result<CapacityResponse, Failure>;

/// The result of a node's lease request.
pub(super) type NodeOutcome = Result<ServerCapacityResponse, Failure>;

/// Identifies a client's request.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientCall {
    /// Counts the restarts of the client.
    pub(super) incarnation: u32,
    pub(super) seq: Seq,
    /// When the request was sent, by the client's clock.
    pub(super) sent: Moment,
    /// Whether it claims what the client does not have.
    pub(super) lies: bool,
}

/// The polls of a process: the number of the last one, and the server that has it while it is open.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Polling {
    number: u64,
    server: Option<usize>,
}

impl Polling {
    /// Opens the next poll, and returns its number.
    pub(super) fn open(&mut self, server: usize) -> u64 {
        self.number += 1;
        self.server = Some(server);
        self.number
    }

    pub(super) fn is_open(&self, number: u64) -> bool {
        self.server.is_some() && self.number == number
    }

    /// Ends the open poll. Returns its server and number.
    pub(super) fn end(&mut self) -> Option<(usize, u64)> {
        Some((self.server.take()?, self.number))
    }
}

/// Identifies the poll of a client or a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PollCall {
    /// Counts the restarts of the process.
    pub(super) incarnation: u32,
    pub(super) number: u64,
}

/// The end of a poll.
#[derive(Debug, Clone)]
pub(super) enum PollEnd {
    Hints(HintsResponse),
    /// The connection is refused or broken, or the poll has timed out.
    Failed,
}

/// Identifies the request of a node's master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeCall {
    /// Counts the restarts of the server.
    pub(super) incarnation: u32,
    /// The epoch of the reign that sent it.
    pub(super) epoch: Epoch,
    pub(super) seq: Seq,
    /// When the request was sent, by the server's clock.
    pub(super) sent: Moment,
}

/// One incarnation of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) server: usize,
    pub(super) incarnation: u32,
}

#[derive(Debug, Clone)]
pub(super) enum Message {
    Request {
        call: ClientCall,
        request: CapacityRequest,
    },
    Response {
        call: ClientCall,
        outcome: Outcome,
    },
    Release(ReleaseRequest),
    Poll {
        call: PollCall,
        poller: HolderId,
        after: u64,
    },
    /// A process closes its poll.
    ClosePoll {
        call: PollCall,
    },
    PollEnd {
        call: PollCall,
        end: PollEnd,
    },
    NodeRequest {
        call: NodeCall,
        request: ServerCapacityRequest,
    },
    NodeResponse {
        call: NodeCall,
        outcome: NodeOutcome,
    },
    NodeRelease(ServerReleaseRequest),
    EtcdCall {
        candidate: Candidate,
        id: CallId,
        call: EtcdCall,
    },
    EtcdReply {
        candidate: Candidate,
        id: CallId,
        /// `None`: an error.
        reply: Option<EtcdAnswer>,
    },
    /// A new master asks the last one for its ledger.
    FetchLedger {
        candidate: Candidate,
        /// The epoch in which it will be used.
        epoch: Epoch,
        offer: Handover,
    },
    /// The first byte of a ledger, or a refusal.
    Ledger {
        candidate: Candidate,
        epoch: Epoch,
        ledger: Option<Box<Transfer>>,
    },
    /// The transfer of a ledger ends; without one it has broken off.
    LedgerEnd {
        candidate: Candidate,
        epoch: Epoch,
        ledger: Option<Box<Snapshot>>,
    },
    /// A server asks its own disk for a ledger.
    ReadLedger {
        candidate: Candidate,
        epoch: Epoch,
        /// The epoch of the ledger.
        last: Epoch,
    },
    /// A write to the own disk ends.
    WriteDisk {
        candidate: Candidate,
        id: CallId,
        call: DiskCall,
    },
}

/// A ledger on its way to the next master.
#[derive(Debug, Clone)]
pub(super) struct Transfer {
    /// `None`: the transfer breaks off at its end.
    pub(super) ledger: Option<Box<Snapshot>>,
    /// The time from the first byte to the end.
    pub(super) seconds: f64,
}

/// A one-way partition, from one process to another or to all.
#[derive(Debug, Clone, Copy)]
struct Partition {
    from: Process,
    to: Option<Process>,
    until: Moment,
}

/// Messages from one process to another, or to all, are late.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delay {
    pub(super) from: Process,
    pub(super) to: Option<Process>,
    pub(super) until: Moment,
    /// In seconds.
    pub(super) by: f64,
    /// Whether they also arrive in time.
    pub(super) is_repeated: bool,
}

/// How messages are delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Quality {
    /// Messages are lost, duplicated and reordered.
    #[default]
    Hostile,
    /// As the scenario says, and partitions lose messages.
    Scripted(NetworkQuality),
}

/// Seconds until a lost packet is sent again: the least of Linux for a single packet.
pub(super) const RETRANSMISSION: f64 = 0.2;

#[derive(Debug, Default)]
pub(super) struct Network {
    partitions: Vec<Partition>,
    delays: Vec<Delay>,
    quality: Quality,
    /// Lost packets that were sent again.
    pub(super) lost_packets: u64,
}

impl Network {
    pub(super) fn scripted(quality: NetworkQuality) -> Self {
        Self {
            quality: Quality::Scripted(quality),
            ..Self::default()
        }
    }

    /// Loses all messages from one process to another, or to all.
    pub(super) fn partition(&mut self, from: Process, to: Option<Process>, until: Moment) {
        self.partitions.push(Partition { from, to, until });
    }

    /// Delays or repeats messages.
    pub(super) fn delay(&mut self, delay: Delay) {
        self.delays.push(delay);
    }

    /// Loses and duplicates no message from now on.
    pub(super) fn make_reliable(&mut self) {
        self.quality = Quality::Scripted(NetworkQuality {
            delay: 0.000_2,
            jitter: 0.01,
            ..NetworkQuality::default()
        });
        self.partitions.clear();
    }

    pub(super) fn is_hostile(&self) -> bool {
        self.quality == Quality::Hostile
    }

    /// The delay of each delivered copy of a message, in seconds: no, one or two copies.
    pub(super) fn delays(
        &mut self,
        from: Process,
        to: Process,
        time: Moment,
        rng: &mut Rng,
    ) -> [Option<f64>; 2] {
        match self.quality {
            Quality::Hostile => {
                if self.is_partitioned(from, to, time) || rng.f64() < 0.03 {
                    return [None, None];
                }
                let copy = (rng.f64() < 0.05).then(|| delay(rng) + 10.0 * rng.f64());
                [Some(delay(rng)), copy]
            }
            Quality::Scripted(quality) => {
                if self.is_partitioned(from, to, time) {
                    return [None, None];
                }
                let mut resent = 0.0;
                while rng.f64() < quality.loss {
                    let Some(pause) = quality.retransmission else {
                        return [None, None];
                    };
                    resent += pause;
                    self.lost_packets += 1;
                }
                let mut delay = || resent + quality.delay + quality.jitter * rng.f64();
                let (first, second) = (delay(), delay());
                let is_doubled = rng.f64() < quality.duplication;
                let second = is_doubled.then_some(second);
                match self.find_delay(from, to, time) {
                    Some(late) if late.is_repeated => [Some(first), Some(first + late.by)],
                    Some(late) => [Some(first + late.by), second],
                    None => [Some(first), second],
                }
            }
        }
    }

    fn find_delay(&mut self, from: Process, to: Process, time: Moment) -> Option<Delay> {
        self.delays.retain(|it| time < it.until);
        let affects = |it: &&Delay| it.from == from && it.to.is_none_or(|other| other == to);
        self.delays.iter().find(affects).copied()
    }

    fn is_partitioned(&mut self, from: Process, to: Process, time: Moment) -> bool {
        self.partitions.retain(|it| time < it.until);
        let blocks = |it: &Partition| it.from == from && it.to.is_none_or(|other| other == to);
        self.partitions.iter().any(blocks)
    }
}

fn delay(rng: &mut Rng) -> f64 {
    let longest = match rng.u8(..100) {
        0..80 => 0.02,
        80..95 => 1.0,
        95..98 => 3.0,
        _ => 40.0,
    };
    0.000_2 + longest * rng.f64()
}
