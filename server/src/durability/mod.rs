//! The data directory: state that survives a restart or a crash.
//!
//! After a crash, `bound` says until when leases may be outstanding, so how long to learn, and
//! `terms.json` in which units. After a clean stop, `ledger.json` holds all leases, and the next
//! start learns nothing. In an election the same text is handed to the next master over HTTP.

mod bound_file;
mod data_dir;
mod identity;
mod ledger_file;
mod ledger_text;
mod start;
mod terms_file;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use self::bound_file::StoredBound;
pub use self::data_dir::DataDirError;
pub(crate) use self::{
    data_dir::{Boot, DataDirLock, create_dir},
    identity::{Identity, random_node},
    ledger_text::{LedgerReader, LedgerTextError, write_text},
    start::{DataDir, log_outstanding},
};

/// Meaning of an empty data directory. On a loopback address it always means a first start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EmptyDirectory {
    /// Another data directory may be lost, with leases outstanding: new clients wait.
    #[default]
    MayBeLost,
    /// The operator says that no server of this node has run before.
    FirstStart,
}
