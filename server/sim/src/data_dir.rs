//! Contents of a data directory, which survive a crash.

use doorman_core::{
    election::FoundBound, ledger::LearningRecord, ledger::Ledger, ledger::ResourceRecord,
    reign::Reign, reign::TermsGeneration,
};
use doorman_openapi::{Epoch, Moment};

#[derive(Debug)]
pub(super) struct DataDir {
    pub(super) last_epoch: Option<Epoch>,
    pub(super) bound: FoundBound,
    /// The longest booking of any lease of the node that it has heard of, in nanoseconds.
    pub(super) longest: Option<u64>,
    pub(super) had_election: bool,
    /// The terms of leases.
    pub(super) terms: Vec<TermsGeneration>,
    /// The ledger of a server that shut down cleanly.
    pub(super) ledger: Option<Snapshot>,
}

impl Default for DataDir {
    fn default() -> Self {
        Self {
            last_epoch: None,
            bound: FoundBound::Missing,
            longest: None,
            had_election: false,
            terms: Vec::new(),
            ledger: None,
        }
    }
}

impl DataDir {
    /// The clock of the machine began anew.
    pub(super) fn reboot(&mut self) {
        if let FoundBound::ThisBoot { longest, .. } = self.bound {
            self.bound = FoundBound::OtherBoot { longest };
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.taken = Taken::InOtherBoot;
        }
    }
}

/// The ledger of a reign that ended.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(super) epoch: Epoch,
    resources: Vec<ResourceRecord>,
    learning: Option<LearningRecord>,
    taken: Taken,
}

/// When a snapshot was taken. A ledger's text says the same.
#[derive(Debug, Clone, Copy)]
enum Taken {
    /// On the clock of this boot.
    At(Moment),
    /// Any time before.
    InOtherBoot,
    /// By another machine, after it was requested.
    Elsewhere,
}

impl Snapshot {
    pub(super) fn new(reign: Reign, now: Moment) -> Self {
        let epoch = reign.epoch();
        let ledger = reign.into_ledger();
        Self {
            epoch,
            resources: ledger.snapshot(now).collect(),
            learning: ledger.learning_snapshot(now),
            taken: Taken::At(now),
        }
    }

    /// As another machine receives it.
    pub(super) fn sent(self) -> Self {
        let taken = Taken::Elsewhere;
        Self { taken, ..self }
    }

    /// Restores into an empty ledger. It was requested at `requested`. Returns the end of the last
    /// lease.
    pub(super) fn restore(&self, ledger: &mut Ledger, requested: Moment, now: Moment) -> Moment {
        let (stopped, earliest) = match self.taken {
            Taken::At(stopped) => (stopped, Some(stopped)),
            Taken::InOtherBoot => (now, None),
            Taken::Elsewhere => (now, Some(requested)),
        };
        if let Some(learning) = self.learning {
            ledger.restore_learning(learning, stopped);
        }
        for record in &self.resources {
            let mut record = record.clone();
            record.shorten_parent(earliest, stopped);
            ledger
                .restore(&record, stopped)
                .expect("the names are valid");
        }
        let holders = self.resources.iter().flat_map(|it| &it.holders);
        let left = holders
            .map(doorman_core::ledger::HolderRecord::left)
            .chain(self.learning.map(|it| it.left))
            .max();
        Moment::from_nanos(stopped.as_nanos() + left.unwrap_or(0))
    }
}
