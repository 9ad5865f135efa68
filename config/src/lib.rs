//! Configuration of the control plane: the document with templates and rules, and the grants of
//! tokens.
//!
//! A document is YAML or JSON, from a file, a store or an HTTP request. The files of the original
//! Doorman are valid. An invalid document is rejected with all of its errors.
//!
//! ```
//! use doorman_config::Document;
//! use doorman_openapi::ResourceId;
//!
//! let document = Document::parse(
//!     r#"
//! resources:
//!   - identifier_glob: "tenant/*"
//!     capacity: 100
//!   - identifier_glob: "*"
//!     capacity: 1000
//!     algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}
//! "#,
//! )?;
//! let template = document.lookup(&ResourceId::new("tenant/acme").unwrap()).unwrap();
//! assert_eq!(template.capacity().get(), 100.0);
//!
//! let errors = Document::parse("resources: [{identifier_glob: db, capacity: -3}]").unwrap_err();
//! assert_eq!(
//!     errors.list()[0].to_string(),
//!     r#"1:13: resources[0] "db": algorithm: is missing; must be here or in the template for "*""#,
//! );
//! assert_eq!(
//!     errors.list()[1].to_string(),
//!     r#"1:45: resources[0] "db": capacity: must be a number from 0 to 1e15, not -3"#,
//! );
//! # Ok::<(), doorman_config::ValidationErrors>(())
//! ```
//!
//! `yaml` and `json` parse text to a `tree`, `parse` checks the tree, `document` answers lookups.

mod diagnostic;
mod diff;
mod document;
mod edit;
mod grants;
mod json;
mod parse;
mod restrictions;
mod rule;
mod source;
mod store;
mod stored;
mod template;
mod tree;
mod version;
mod words;
mod yaml;

pub use diagnostic::{Diagnostic, Position, ValidationErrors};
pub use diff::{DocumentDiff, EntryChange, EntryDiff, changed_fields};
pub use document::Document;
pub use edit::{EditError, EditNotes, Edited, EntryKind};
pub use grants::{Grant, Grants};
pub use parse::suggestion;
pub use restrictions::{MaxCapacity, Restrictions};
pub use rule::Rule;
pub use source::{FileSource, InvalidSource, LastGoodFile, LoadError, RawDocument, Source};
pub use store::{
    Appended, NewChange, OpenError, OpenedStore, RevisionError, Store, StoreError, StoreErrorKind,
    StoredDocument,
};
pub use template::{Template, default_algorithm};

/// The most bytes of a document: 4 MiB.
pub const MAX_DOCUMENT_BYTES: usize = 4 * 1024 * 1024;
