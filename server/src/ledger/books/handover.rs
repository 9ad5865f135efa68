//! The books as one server hands them over to the next.

use doorman_openapi::{ClientId, HolderKind, InvalidId, Moment, NodeId};

use super::{HolderId, Ledger, Predecessor};
use crate::ledger::{LearningRecord, ResourceRecord};

/// How many holders one record has at most.
const HOLDERS_A_RECORD: usize = 1000;

impl Ledger {
    /// All that is in the books, with what is left of it at `now`; a resource with many holders comes in several records, so that no
    /// record is large.
    pub fn snapshot(&self, now: Moment) -> impl Iterator<Item = ResourceRecord> {
        let live = self.by_id.iter().filter_map(|(id, key)| {
            let live = self.live.get(*key as usize)?;
            Some((id, &live.resource))
        });
        live.flat_map(move |(id, resource)| {
            let name = |holder| {
                let id = self.holders.id(holder)?;
                Some((id.kind(), id.as_str().to_owned()))
            };
            let mut rest = resource.hand_over(name, now);
            let mut undivided = resource.feedback_snapshot(now);
            std::iter::from_fn(move || {
                let holders: Vec<_> = rest.by_ref().take(HOLDERS_A_RECORD).collect();
                // What is owed outlives the holders, so that there may be none.
                let undivided = undivided.take();
                (!holders.is_empty() || undivided.is_some()).then(|| ResourceRecord {
                    resource_id: id.clone(),
                    holders,
                    undivided,
                })
            })
        })
    }

    /// What this server still had to learn of its own predecessor.
    #[must_use]
    pub fn learning_snapshot(&self, now: Moment) -> Option<LearningRecord> {
        match self.settings.predecessor {
            Predecessor::None => None,
            Predecessor::Until(outstanding) => Some(LearningRecord {
                ago: now.as_nanos().saturating_sub(self.started.as_nanos()),
                left: outstanding.as_nanos().saturating_sub(now.as_nanos()),
            }),
        }
    }

    /// Takes over what a predecessor left of a resource. Its lengths count from `stopped`, which may lie before this server's start.
    ///
    /// # Errors
    /// [`InvalidId`] when a holder's identifier is none; what came before it has been taken over.
    pub fn restore(&mut self, record: &ResourceRecord, stopped: Moment) -> Result<(), InvalidId> {
        let key = self.find_or_add(&record.resource_id, stopped);
        if let Some(undivided) = &record.undivided
            && let Some(live) = self.live.get_mut(key as usize)
        {
            live.resource.restore_feedback(undivided, stopped);
        }
        for holder in &record.holders {
            let id = match holder.kind {
                HolderKind::Client => HolderId::Client(ClientId::new(&*holder.id)?),
                HolderKind::Node => HolderId::Node(NodeId::new(&*holder.id)?),
            };
            let holder_key = self.holders.find_or_add(&id);
            let Some(live) = self.live.get_mut(key as usize) else {
                continue;
            };
            if live.resource.take_over(holder_key, holder, stopped) {
                self.holders.joined(holder_key, key);
                self.counts.leases = self.counts.leases.saturating_add(1);
            }
        }
        self.wake(key);
        self.forget_if_empty(key, stopped);
        Ok(())
    }

    /// Goes on learning where a predecessor stopped.
    pub fn restore_learning(&mut self, learning: LearningRecord, stopped: Moment) {
        let stopped = stopped.as_nanos();
        self.started = Moment::from_nanos(stopped.saturating_sub(learning.ago));
        let outstanding = Moment::from_nanos(stopped.saturating_add(learning.left));
        self.settings.predecessor = Predecessor::Until(outstanding);
    }
}
