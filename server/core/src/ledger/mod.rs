//! The ledger of all leases, and the decisions about them. No IO, no clock: time is an argument.
//!
//! A request takes this path:
//!
//! 1. `call` is what a client or a node asks. `requests` splits it, a bounded number of
//!    resources at a time.
//! 2. `state` finds the holder and the resource, and adopts a new document.
//! 3. `decide` checks the order of the request, books what the holder claims, computes its share,
//!    limits the grant to what the other holders leave, and covers it. It names the steps.
//! 4. `algorithm` computes the share from all `demands`.
//! 5. `resource::booking` records what the holder may be using, and until when.
//! 6. `resource::decision` has the `Grant` that answers.
//!
//! | folder | topic |
//! |---|---|
//! | `resource` | one resource: its entries, bookings, units and lease of the parent |
//! | `terms` | limits and units, of this document and of earlier ones |
//! | `replace` | processes that replace dead ones |
//! | `feedback` | the law by which the capacity follows the target |
//! | `holders`, `hints` | who leases and polls, and who should refresh now |
//! | `parents` | a node below another one |
//! | `records`, `snapshot` | what a server that stops leaves to its successor |
//! | `view` | what operators see |
//! | `store` | collections |
//!
//! A module imports others by their path, not from here, and none that imports it.
//!
//! The booked amounts of a resource never add up to more than its capacity, unless an operator
//! lowers it: then the sum only falls. "Safety rule" marks the code that ensures this, with its
//! name if `docs/MODEL.md` lists a test that fails without it. A decision takes O(log holders):
//! sums and deadlines are kept in trees.
//!
//! To add an algorithm, extend `AlgorithmKind` (in `doorman-openapi`), its names in
//! `config/src/parse/template.rs` and `algorithm`. The compiler names most other places; `show.rs` of
//! the command line and `scenario/clients.rs` and `limits.rs` of the simulation name algorithms, too.
//! Describe it in `docs/ALGORITHMS.md` and write `openapi.json` anew (`DOORMAN_UPDATE=1`).

mod algorithm;
mod call;
mod decide;
mod demands;
mod feedback;
mod hints;
mod holders;
mod keys;
mod learning_count;
mod parents;
mod records;
mod replace;
mod requests;
mod resource;
mod settings;
mod snapshot;
mod state;
mod stats;
mod store;
mod terms;
mod view;

#[cfg(test)]
mod tests;

pub use self::{
    call::{LeaseCall, ReleaseCall},
    feedback::{control::Cut, record::ControlRecord, rules::FeedbackRule},
    hints::HintBatch,
    holders::poll::{MAX_AFTER, PollTicket},
    holders::{HolderId, Tenant, TenantId},
    parents::ParentUpdate,
    records::{
        DecisionRecord, HoldRecord, HolderRecord, LearningRecord, ParentRecord, RecordedUnit,
        ResourceRecord, SetAsideRecord, SignalRecord, UnitChangeRecord,
    },
    requests::{ReleasePosition, ReleaseProgress, RenewalCheck},
    resource::decision::{Grant, Reporting},
    resource::outcomes::Tally,
    resource::signal::Signal,
    resource::unmet::UnmetResources,
    resource::users::Usage,
    settings::{Predecessor, Settings, UnmatchedPolicy},
    state::Ledger,
    stats::{LedgerEvent, LedgerEvents, LedgerStats, TemplateCounts},
    terms::earlier::{EarlierTemplate, EarlierTerms},
    terms::granting::{GrantingTerms, KnownTerms, Units},
    terms::merged::merge_generations,
    terms::tuning::Tuning,
    view::client_leases::{ClientCursor, ClientListing, ClientNames},
    view::explain::HolderStatus,
    view::listing::{HolderCursor, HolderListing, ListError, PageQuery, ResourceListing},
    view::ranking::{HolderRanking, ResourceRanking},
    view::survey::{FeedbackSurvey, Survey},
};
