//! Holders by the clients that they replace.

use doorman_openapi::ClientId;
use smallvec::SmallVec;

use crate::ledger::{holders::Holders, keys::HolderKey};

/// The most holders that a holder replaces for one name: the newest runs of the client, then the
/// newest holders that gave the name. Others keep their leases to the end.
const MAX_REPLACED: usize = 16;

/// A holder, ordered from the newest registration to the oldest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct NewestFirst(pub(super) u64, pub(super) HolderKey);

impl Holders {
    /// The holders that one replaces by naming these clients: the runs of the clients, and those
    /// that have named one of them before.
    ///
    /// Safety rule: all are older than the holder. Otherwise two processes that live and share a
    /// name would end each other's leases.
    pub(in crate::ledger) fn replaced_by(
        &mut self,
        holder: HolderKey,
        replaces: &[ClientId],
    ) -> SmallVec<[HolderKey; 2]> {
        self.set_replaced(holder, replaces);
        let Some(own) = self.newest(holder) else {
            return SmallVec::new();
        };
        let mut replaced = SmallVec::new();
        for name in replaces {
            let older = own.0.saturating_add(1);
            let runs = self.runs_of(name.as_str(), older).map(|(_, key)| key);
            let older = NewestFirst(older, HolderKey::default());
            let others = self.by_replaced.from(name, older);
            let others = others.map(|NewestFirst(_, key)| key);
            let others = others.filter(|key| {
                let is_run = self.id(*key).is_some_and(|id| id.as_str() == name.as_str());
                !is_run && self.replaces(*key).contains(name)
            });
            replaced.extend(runs.chain(others).take(MAX_REPLACED));
        }
        replaced
    }

    #[cfg(test)]
    pub(in crate::ledger) fn replaces_nobody(&self) -> bool {
        self.by_replaced.is_empty()
    }

    pub(super) fn newest(&self, holder: HolderKey) -> Option<NewestFirst> {
        let registration = self.holders.get(holder.index())?;
        Some(NewestFirst(registration.rank, holder))
    }

    fn replaces(&self, holder: HolderKey) -> &[ClientId] {
        let registration = self.holders.get(holder.index());
        registration.map_or(&[], |it| &it.replaces)
    }

    /// Notes the clients that a holder replaces, instead of those before.
    pub(super) fn set_replaced(&mut self, holder: HolderKey, replaces: &[ClientId]) {
        let Some(newest) = self.newest(holder) else {
            return;
        };
        let Some(registration) = self.holders.get_mut(holder.index()) else {
            return;
        };
        if *registration.replaces == *replaces {
            return;
        }
        for name in std::mem::replace(&mut registration.replaces, replaces.into()) {
            self.by_replaced.remove(&name, newest);
        }
        for name in replaces {
            self.by_replaced.insert(name, newest);
        }
    }
}
