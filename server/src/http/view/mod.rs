//! The state of the server: live resources, their leases, and the server itself.

pub(super) mod client_leases;
pub(super) mod cursor;
pub(super) mod leases;
pub(super) mod resources;
pub(super) mod status;

use doorman_openapi::{HolderView, ResourceView};

use super::{error::ApiError, state::AppParts};
use crate::{
    leasing::SharedLedger,
    quota::{ReadKind, ReadPermit},
    util::clock,
};

/// How many elements one lock of the ledger covers.
const CHUNK: usize = 32;

/// How many chunks one page may take: a restricted token may see few of very many.
const MAX_CHUNKS: usize = 64;

/// How many chunks of up to 1024 entries a sorted page may take: it reads the whole list.
const MAX_SORT_CHUNKS: usize = 4096;

/// Adds why the parent does not renew leases to views of a node's ledger, which does not know it.
struct ParentNote(Option<String>);

impl ParentNote {
    fn new(app: &AppParts) -> Self {
        Self(app.server.parent_problem(clock::now()))
    }

    fn on_resource(&self, mut view: ResourceView) -> ResourceView {
        if let Some(parent) = &mut view.parent {
            parent.problem.clone_from(&self.0);
        }
        view
    }

    fn on_holder(&self, mut view: HolderView) -> HolderView {
        if let (Some(problem), Some(_)) = (&self.0, view.held_back_by) {
            view.why = format!("{}; {problem}", view.why);
        }
        view
    }
}

/// A read of the ledger in short turns, between which others may lock it.
struct PagedRead<'a> {
    ledger: &'a SharedLedger,
    permit: ReadPermit<'a>,
    note: ParentNote,
}

impl<'a> PagedRead<'a> {
    /// # Errors
    /// 429 if too many others read.
    async fn begin(app: &'a AppParts) -> Result<Self, ApiError> {
        Ok(Self {
            ledger: &app.ledger,
            permit: app.quotas.begin_read(ReadKind::Page).await?,
            note: ParentNote::new(app),
        })
    }

    /// Waits for the next turn.
    async fn turn(&self) -> &SharedLedger {
        let delay = self.permit.delay(clock::now());
        self.ledger.yield_to_waiters(delay).await;
        self.ledger
    }

    /// Reads a whole list to sort it. `rank` reads the chunk of this number, and returns whether
    /// more follow.
    async fn rank(
        &self,
        mut rank: impl FnMut(&SharedLedger, usize) -> Result<bool, ApiError>,
    ) -> Result<(), ApiError> {
        for chunk in 0..MAX_SORT_CHUNKS {
            if !rank(self.turn().await, chunk)? {
                return Ok(());
            }
        }
        Err(ApiError::malformed(
            "too many entries to sort for this token; narrow them down by `prefix`",
        ))
    }
}
