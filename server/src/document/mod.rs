//! The active document and its changes: at the start, by its source, and over HTTP. A node below
//! the root has only the rules of its parent.

mod active;
mod described;
mod dry_run;
mod editor;
mod etcd_store;
mod file;
mod opened;
mod parent;
pub(crate) mod warnings;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    active::ActiveDocument,
    editor::{DocumentEditor, DocumentStore, Edit, EditFailed},
    etcd_store::{EtcdFailure, EtcdStore},
    opened::{DocumentFollower, OpenedDocument},
    parent::ParentRules,
};

pub use self::opened::{DocumentState, OpenDocumentError};
