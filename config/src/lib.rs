//! The document that operators write: from untrusted text to checked values.
//!
//! A document says how much there is of what, in resource templates, and which requests spend it, in rules. It comes as YAML or JSON, from a file or over the wire, and
//! the files of the original Doorman load unchanged. Whatever is wrong with it is found at once and named by template or rule, field and
//! line; a wrong document is refused whole, so that it never replaces a good one.
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
//! let faults = Document::parse("resources: [{identifier_glob: db, capacity: -3}]").unwrap_err();
//! assert_eq!(
//!     faults.list()[0].to_string(),
//!     r#"1:13: resources[0] "db": algorithm: is missing; must be here, or in a template for "*" to be taken from"#,
//! );
//! assert_eq!(
//!     faults.list()[1].to_string(),
//!     r#"1:45: resources[0] "db": capacity: must be a number from 0 to 1e15, not -3"#,
//! );
//! # Ok::<(), doorman_config::ValidationErrors>(())
//! ```
//!
//! The way of a text: `yaml` makes a bounded tree of it that keeps places and repetitions, `read` makes templates and rules of the tree
//! and lists the faults, `document` answers which template a resource falls under, and which rules are for a service. `grants` is another
//! text of operators, which goes the same way: what tokens let their bearers do, within which `restrictions`. Nothing here keeps time or a connection.

mod diff;
mod document;
mod edit;
mod fault;
mod grants;
mod json;
mod kept;
mod nearest;
mod node;
mod plain;
mod quote;
mod read;
mod restrictions;
mod rule;
mod source;
mod store;
mod template;
mod version;
mod yaml;

use doorman_openapi::{Glob, GlobSet, InvalidGlob};

pub use diff::{DocumentDiff, EntryChange, EntryDiff};
pub use document::Document;
pub use edit::EditError;
pub use fault::{Diagnostic, Position, ValidationErrors};
pub use grants::{Grant, Grants};
pub use restrictions::Restrictions;
pub use rule::Rule;
pub use source::{FileSource, InvalidSource, LastGoodFile, LoadError, RawDocument, Source};
pub use store::{
    Appended, NewChange, OpenError, OpenedStore, Store, StoreError, StoreErrorKind, StoreReader,
};
pub use template::{SafeCapacityRule, Template, default_algorithm};

/// The most bytes that a document may have: 4 MiB.
pub const MAX_DOCUMENT_BYTES: usize = 4 * 1024 * 1024;
