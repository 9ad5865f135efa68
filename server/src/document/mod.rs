//! The active document and its changes: at the start, by its file, and over HTTP.

mod active;
mod dry_run;
mod editor;
mod file;
mod opened;
pub(crate) mod warnings;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    active::ActiveDocument,
    editor::{DocumentEditor, Edit, EditFailed, StoreWrites},
    file::DocumentFile,
    opened::OpenedDocument,
};

pub use self::opened::DocumentState;
