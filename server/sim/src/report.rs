//! Results of a run: event counts, or the violated invariant.

use std::{fmt, ops::AddAssign};

use super::{ablation::Rule, extras::Extras};

/// Options of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Length of the run in simulated seconds.
    pub seconds: f64,
    /// The safety rule to disable.
    pub without: Option<Rule>,
    /// Kinds of faults and holders beside the usual ones. Each run has some of them.
    pub extras: Extras,
    /// Whether a violation contains the events before it.
    pub trace: bool,
}

/// Event counts of one or more runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lease requests that reached a server, from clients and nodes.
    pub requests: u64,
    /// Responses that reached a holder and carry leases.
    pub responses: u64,
    /// Hints that servers sent.
    pub hints: u64,
    /// Injected faults, restarts and reloads.
    pub faults: u64,
    /// Those at the end of a lease, a bound, an election, a learning mode or a hand-over.
    pub aimed_faults: u64,
    /// Times that a server became master.
    pub masterships: u64,
    /// Those at nodes below the root.
    pub node_masterships: u64,
    /// Those that began with the ledger of the last master.
    pub handovers: u64,
    /// Nodes below the root.
    pub nodes: u64,
    /// Those below another one of them.
    pub third_level_nodes: u64,
    /// Nodes below the root all of whose servers crashed together.
    pub node_crashes: u64,
    /// Nodes below the root that were cut off from their parent.
    pub cut_offs: u64,
    /// Capacities that an operator lowered.
    pub capacity_cuts: u64,
    /// Checks with more usable capacity than exists, as documented after a cut.
    pub above_capacity: u64,
    /// Nodes whose clients could use capacity when that was compared with the parent's booking.
    pub node_checks: u64,
    /// Leaders of etcd that were deposed and still answered.
    pub etcd_depositions: u64,
    /// Documents that changed while servers were down, or not on all at once.
    pub document_changes: u64,
    /// Changes between one server of a node and several.
    pub server_counts: u64,
    /// Lease requests that claimed what their sender did not have.
    pub lies: u64,
    /// Reports of operations in flight beyond the lease of their holder.
    pub overlong_operations: u64,
    /// Starts of clients whose client id another client uses.
    pub clones: u64,
    /// Effective capacities that masters of the root lowered, and raised.
    pub effective_cuts: u64,
    /// Those that they raised.
    pub effective_raises: u64,
    /// Those that were 0 for a while.
    pub feedback_pauses: u64,
    /// Faults and changes of targets at the moment of a cut.
    pub faults_at_cuts: u64,
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        let Self {
            requests,
            responses,
            hints,
            faults,
            aimed_faults,
            masterships,
            node_masterships,
            handovers,
            nodes,
            third_level_nodes,
            node_crashes,
            cut_offs,
            capacity_cuts,
            above_capacity,
            node_checks,
            etcd_depositions,
            document_changes,
            server_counts,
            lies,
            overlong_operations,
            clones,
            effective_cuts,
            effective_raises,
            feedback_pauses,
            faults_at_cuts,
        } = other;
        self.requests += requests;
        self.responses += responses;
        self.hints += hints;
        self.faults += faults;
        self.aimed_faults += aimed_faults;
        self.masterships += masterships;
        self.node_masterships += node_masterships;
        self.handovers += handovers;
        self.nodes += nodes;
        self.third_level_nodes += third_level_nodes;
        self.node_crashes += node_crashes;
        self.cut_offs += cut_offs;
        self.capacity_cuts += capacity_cuts;
        self.above_capacity += above_capacity;
        self.node_checks += node_checks;
        self.etcd_depositions += etcd_depositions;
        self.document_changes += document_changes;
        self.server_counts += server_counts;
        self.lies += lies;
        self.overlong_operations += overlong_operations;
        self.clones += clones;
        self.effective_cuts += effective_cuts;
        self.effective_raises += effective_raises;
        self.feedback_pauses += feedback_pauses;
        self.faults_at_cuts += faults_at_cuts;
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests, {} responses, {} hints, {} faults ({} aimed), {} masterships, {} hand-overs, \
             {} nodes below the root ({} at the third level) with {} masterships, {} crashes and \
             {} cut-offs, {} checks of their clients, {} capacity cuts, {} checks above a capacity \
             that was cut, {} deposed leaders of etcd, {} changes of the document while servers \
             were down, {} of the number of servers, {} lies, {} reports of operations beyond the \
             lease, {} starts of clones, {} cuts of effective capacities ({} with a fault), \
             {} raises, {} pauses",
            self.requests,
            self.responses,
            self.hints,
            self.faults,
            self.aimed_faults,
            self.masterships,
            self.handovers,
            self.nodes,
            self.third_level_nodes,
            self.node_masterships,
            self.node_crashes,
            self.cut_offs,
            self.node_checks,
            self.capacity_cuts,
            self.above_capacity,
            self.etcd_depositions,
            self.document_changes,
            self.server_counts,
            self.lies,
            self.overlong_operations,
            self.clones,
            self.effective_cuts,
            self.faults_at_cuts,
            self.effective_raises,
            self.feedback_pauses,
        )
    }
}

/// A property that every run must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invariant {
    /// All holders of a resource may together use no more than its capacity.
    Capacity,
    /// A holder of a resource that is not divided may use no more than the capacity, unless nothing
    /// limits it.
    HolderCapacity,
    /// First confirmed claims that sum to more than the capacity are counted as false.
    CountedLies,
    /// The clients of a node, and of the nodes below it, may use no more than the parent has booked
    /// for it.
    NodeCapacity,
    /// A response never takes all capacity from a holder that could keep a part.
    PartialGrant,
    /// Without faults and with constant demand, every holder gets its exact share.
    Shares,
    /// A server spaces the hints of a client, and states no later transmission than the newest.
    Hints,
    /// The effective capacity is at most that of the document.
    EffectiveCapacity,
    /// The effective capacity is at least the floor, unless the target asks for a pause or states
    /// its own limit.
    EffectiveFloor,
    /// Without `feedback` in the document the whole capacity can be leased.
    NothingHeldBack,
}

/// A broken invariant, and how to reproduce it.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// The options of the run.
    pub plan: Plan,
    /// Simulated seconds since the start of the run.
    pub at: f64,
    /// The broken invariant.
    pub invariant: Invariant,
    /// The processes and amounts involved.
    pub detail: String,
    /// The events before the violation, if [`Plan::trace`] is set.
    pub trace: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        let Self {
            seed, at, detail, ..
        } = self;
        write!(f, "seed {seed}, second {at:.3}: {detail}")
    }
}

impl std::error::Error for Violation {}
