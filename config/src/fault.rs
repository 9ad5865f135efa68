//! What is wrong with a document, where, and what would be right.

use std::fmt;

use crate::quote::{Quoted, shortened};

/// The most faults that are kept. A document of a few megabytes can have a million, which nobody reads; the rest are counted.
const MOST_LISTED: usize = 1000;

/// A place in the text of a document; both count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A place in the tree of a document: which template or rule, and which field of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Place {
    entry: Option<Entry>,
    field: String,
    pointer: String,
}

/// An entry of a list, which names itself when it has a readable name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    list: Listed,
    index: usize,
    name: Option<String>,
}

/// A list that entries stand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    Document(List),
    Grants,
}

impl Listed {
    fn name(self) -> &'static str {
        match self {
            Self::Document(list) => list.name(),
            Self::Grants => "grants",
        }
    }
}

/// One of the document's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Resources,
    Rules,
}

impl List {
    /// The field that it is.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Resources => "resources",
            Self::Rules => "rules",
        }
    }
}

impl Place {
    /// The document as a whole.
    pub(crate) fn document() -> Self {
        Self::default()
    }

    /// The template with this index, which names itself by `identifier_glob` when it has a readable one.
    pub(crate) fn template(index: usize, identifier_glob: Option<&str>) -> Self {
        Self::in_list(Listed::Document(List::Resources), index, identifier_glob)
    }

    /// The rule with this index.
    pub(crate) fn rule(index: usize, name: Option<&str>) -> Self {
        Self::in_list(Listed::Document(List::Rules), index, name)
    }

    /// The grant with this index, which names itself by `sub` when it has a readable one.
    pub(crate) fn grant(index: usize, sub: Option<&str>) -> Self {
        Self::in_list(Listed::Grants, index, sub)
    }

    fn in_list(list: Listed, index: usize, name: Option<&str>) -> Self {
        Self {
            entry: Some(Entry {
                list,
                index,
                name: name.map(str::to_owned),
            }),
            field: String::new(),
            pointer: format!("/{}/{index}", list.name()),
        }
    }

    /// A field of the map at this place.
    pub(crate) fn field(&self, name: &str) -> Self {
        let dot = if self.field.is_empty() { "" } else { "." };
        let escaped = name.replace('~', "~0").replace('/', "~1");
        Self {
            entry: self.entry.clone(),
            field: format!("{}{dot}{}", self.field, shortened(name)),
            pointer: format!("{}/{escaped}", self.pointer),
        }
    }

    /// An entry of the list at this place.
    pub(crate) fn entry(&self, index: usize) -> Self {
        Self {
            entry: self.entry.clone(),
            field: format!("{}[{index}]", self.field),
            pointer: format!("{}/{index}", self.pointer),
        }
    }
}

/// One thing that is wrong, or that an operator should know. `Display` is one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    position: Option<Position>,
    place: Place,
    message: String,
}

impl Diagnostic {
    pub(crate) fn new(
        position: Option<Position>,
        place: Place,
        message: impl Into<String>,
    ) -> Self {
        Self {
            position,
            place,
            message: message.into(),
        }
    }

    /// Where it stands in the text, when that is known.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// The index of the template that it is in, from 0; `None` when it is in none.
    #[must_use]
    pub fn template_index(&self) -> Option<usize> {
        self.entry_of(List::Resources).map(|entry| entry.index)
    }

    /// The `identifier_glob` of the template that it is in, when it has one.
    #[must_use]
    pub fn identifier_glob(&self) -> Option<&str> {
        self.entry_of(List::Resources)?.name.as_deref()
    }

    /// The index of the rule that it is in, from 0; `None` when it is in none.
    #[must_use]
    pub fn rule_index(&self) -> Option<usize> {
        self.entry_of(List::Rules).map(|entry| entry.index)
    }

    /// The `name` of the rule that it is in, when it has one.
    #[must_use]
    pub fn rule_name(&self) -> Option<&str> {
        self.entry_of(List::Rules)?.name.as_deref()
    }

    /// The same fault as seen from an entry of a list, whose fields it names as if that were all; `None` when it is elsewhere.
    pub(crate) fn within(&self, list: List, index: usize) -> Option<Self> {
        let entry = self.entry_of(list)?;
        let lead = format!("/{}/{index}", list.name());
        let pointer = self.place.pointer.strip_prefix(&lead)?;
        (entry.index == index).then(|| Self {
            position: self.position,
            place: Place {
                entry: None,
                field: self.place.field.clone(),
                pointer: pointer.to_owned(),
            },
            message: self.message.clone(),
        })
    }

    /// The same fault without a place in a text that nobody has seen.
    pub(crate) fn without_position(&self) -> Self {
        Self {
            position: None,
            ..self.clone()
        }
    }

    fn entry_of(&self, list: List) -> Option<&Entry> {
        self.place
            .entry
            .as_ref()
            .filter(|entry| entry.list == Listed::Document(list))
    }

    /// The field, such as `algorithm.lease_length`; empty when it is the template, the rule or the document as a whole.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.place.field
    }

    /// The field as a JSON Pointer (RFC 6901) into the document, such as `/resources/0/algorithm/lease_length`.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.place.pointer
    }

    /// What would be right, and what is there instead.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = self.position {
            write!(f, "{position}: ")?;
        }
        if let Some(Entry { list, index, name }) = &self.place.entry {
            write!(f, "{}[{index}]", list.name())?;
            if let Some(name) = name {
                write!(f, " {}", Quoted(name))?;
            }
            f.write_str(": ")?;
        }
        if !self.place.field.is_empty() {
            write!(f, "{}: ", self.place.field)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a document: at least one fault, in no document that loads.
///
/// `Display` is one line a fault. At most 1,000 are kept; further ones are only counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationErrors {
    listed: Vec<Diagnostic>,
    omitted: usize,
}

impl ValidationErrors {
    /// The faults, in the order of the text as far as that is known.
    #[must_use]
    pub fn list(&self) -> &[Diagnostic] {
        &self.listed
    }

    /// How many more there are than are listed.
    #[must_use]
    pub fn omitted(&self) -> usize {
        self.omitted
    }

    /// The same lines, each led by the name of the file: `limits.yaml:7:5: …`, as compilers and editors write it.
    #[must_use]
    pub fn in_file<'a>(&'a self, name: &'a str) -> impl fmt::Display + 'a {
        Lines {
            faults: self,
            name: Some(name),
        }
    }
}

impl ValidationErrors {
    /// These faults; `None` when there are none.
    pub(crate) fn of(listed: Vec<Diagnostic>, omitted: usize) -> Option<Self> {
        (!listed.is_empty()).then_some(Self { listed, omitted })
    }
}

impl From<Diagnostic> for ValidationErrors {
    fn from(fault: Diagnostic) -> Self {
        Self {
            listed: vec![fault],
            omitted: 0,
        }
    }
}

impl fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = Lines {
            faults: self,
            name: None,
        };
        lines.fmt(f)
    }
}

impl std::error::Error for ValidationErrors {}

struct Lines<'a> {
    faults: &'a ValidationErrors,
    name: Option<&'a str>,
}

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lead = |f: &mut fmt::Formatter<'_>, separator: &str| match self.name {
            Some(name) => write!(f, "{name}:{separator}"),
            None => Ok(()),
        };
        for (index, fault) in self.faults.listed.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            let separator = if fault.position.is_some() { "" } else { " " };
            lead(f, separator)?;
            fault.fmt(f)?;
        }
        if self.faults.omitted > 0 {
            f.write_str("\n")?;
            lead(f, " ")?;
            write!(f, "and {} more faults", self.faults.omitted)?;
        }
        Ok(())
    }
}

/// A value could not be had, and why is already on the list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reported(());

/// The list while a document is being read.
#[derive(Debug, Default)]
pub(crate) struct FaultList {
    listed: Vec<Diagnostic>,
    omitted: usize,
}

impl FaultList {
    pub(crate) fn add(
        &mut self,
        position: Position,
        place: Place,
        message: impl Into<String>,
    ) -> Reported {
        if self.listed.len() < MOST_LISTED {
            self.listed
                .push(Diagnostic::new(Some(position), place, message));
        } else {
            self.omitted = self.omitted.saturating_add(1);
        }
        Reported(())
    }

    /// What was read, unless anything at all was wrong: a wrong document never half-loads.
    pub(crate) fn finish<T>(mut self, read: Result<T, Reported>) -> Result<T, ValidationErrors> {
        match read {
            Ok(read) if self.listed.is_empty() => Ok(read),
            Ok(_) | Err(Reported(())) => {
                // Rules that span templates are checked last; the reader of the list goes from top to bottom.
                self.listed.sort_by_key(|fault| fault.position);
                Err(ValidationErrors {
                    listed: self.listed,
                    omitted: self.omitted,
                })
            }
        }
    }
}
