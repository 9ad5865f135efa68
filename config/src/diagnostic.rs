//! Errors and warnings with their location in a document.

use std::{cell::RefCell, fmt};

/// The most errors that are listed; further ones are counted.
const MAX_LISTED: usize = 1000;

/// The most characters of a quoted text.
const MAX_QUOTED: usize = 60;

/// A position in the text of a document; line and column count from 1.
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

/// A location in the tree of a document: an entry of one of its lists, and a field of that.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Location {
    entry: Option<Entry>,
    field: String,
    pointer: String,
}

/// An entry of a list, with its name if that is readable.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    list: &'static str,
    index: usize,
    name: Option<String>,
}

impl Location {
    /// The whole document.
    pub(crate) fn document() -> Self {
        Self::default()
    }

    /// An entry of a list at the top level.
    pub(crate) fn entry(list: &'static str, index: usize, name: Option<&str>) -> Self {
        Self {
            entry: Some(Entry {
                list,
                index,
                name: name.map(str::to_owned),
            }),
            field: String::new(),
            pointer: format!("/{list}/{index}"),
        }
    }

    /// A field of the map at this location.
    pub(crate) fn field(&self, name: &str) -> Self {
        let dot = if self.field.is_empty() { "" } else { "." };
        let escaped = name.replace('~', "~0").replace('/', "~1");
        Self {
            entry: self.entry.clone(),
            field: format!("{}{dot}{}", self.field, shortened(name)),
            pointer: format!("{}/{escaped}", self.pointer),
        }
    }

    /// An element of the list at this location.
    pub(crate) fn element(&self, index: usize) -> Self {
        Self {
            entry: self.entry.clone(),
            field: format!("{}[{index}]", self.field),
            pointer: format!("{}/{index}", self.pointer),
        }
    }
}

/// One error or warning. `Display` is one line: the position if known, the location, the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    position: Option<Position>,
    location: Location,
    message: String,
}

impl Diagnostic {
    pub(crate) fn new(
        position: Option<Position>,
        location: Location,
        message: impl Into<String>,
    ) -> Self {
        Self {
            position,
            location,
            message: message.into(),
        }
    }

    /// The position in the text; `None` if the document was read as JSON.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// The location as a JSON Pointer (RFC 6901), such as `/resources/0/algorithm/lease_length`.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.location.pointer
    }

    /// The problem, and what would be right.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The line with the name of the file, as compilers write it: `limits.yaml:7:5: …`.
    #[must_use]
    pub fn in_file(&self, name: &str) -> String {
        let space = if self.position.is_some() { "" } else { " " };
        format!("{name}:{space}{self}")
    }

    /// The line without the position and the numbers of entries: the same for an entry that has
    /// moved.
    #[must_use]
    pub fn unnumbered(&self) -> String {
        let line = Self {
            position: None,
            ..self.clone()
        };
        let line = line.to_string();
        let mut parts = line.split('[');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| {
            let is_entry = text.ends_with("resources") || text.ends_with("rules");
            let part = if is_entry {
                part.trim_start_matches(|it: char| it.is_ascii_digit())
            } else {
                part
            };
            text + "[" + part
        })
    }

    /// Whether it is about the whole document, and so quotes no entry of it.
    #[must_use]
    pub fn is_of_whole_document(&self) -> bool {
        self.location.entry.is_none()
    }

    /// Whether it is in this entry of a list.
    pub(crate) fn is_in(&self, list: &str, index: usize) -> bool {
        let entry = self.location.entry.as_ref();
        entry.is_some_and(|entry| entry.list == list && entry.index == index)
    }

    /// The diagnostic with its location relative to its entry of a list.
    pub(crate) fn relative_to_entry(&self) -> Self {
        let prefix = self.location.entry.as_ref();
        let prefix = prefix.map(|entry| format!("/{}/{}", entry.list, entry.index));
        let pointer = &self.location.pointer;
        let pointer = prefix.and_then(|prefix| pointer.strip_prefix(&prefix));
        Self {
            location: Location {
                entry: None,
                field: self.location.field.clone(),
                pointer: pointer.unwrap_or(&self.location.pointer).to_owned(),
            },
            ..self.clone()
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = self.position {
            write!(f, "{position}: ")?;
        }
        if let Some(Entry { list, index, name }) = &self.location.entry {
            write!(f, "{list}[{index}]")?;
            if let Some(name) = name {
                write!(f, " {}", Quoted(name))?;
            }
            f.write_str(": ")?;
        }
        if !self.location.field.is_empty() {
            write!(f, "{}: ", self.location.field)?;
        }
        f.write_str(&self.message)
    }
}

/// The errors of an invalid document: at least one.
///
/// `Display` is one line per error. At most 1,000 are listed; further ones are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationErrors {
    list: Vec<Diagnostic>,
    omitted: usize,
}

impl ValidationErrors {
    /// `None` if the list is empty.
    pub(crate) fn new(list: Vec<Diagnostic>, omitted: usize) -> Option<Self> {
        (!list.is_empty()).then_some(Self { list, omitted })
    }

    /// The errors, in the order of the text.
    #[must_use]
    pub fn list(&self) -> &[Diagnostic] {
        &self.list
    }

    /// The number of errors beyond those listed.
    #[must_use]
    pub fn omitted(&self) -> usize {
        self.omitted
    }

    /// The lines, each with the name of the file: `limits.yaml:7:5: …`.
    #[must_use]
    pub fn in_file(&self, name: &str) -> String {
        let lines = self.list.iter().map(|error| error.in_file(name));
        let omitted = self.omitted_line().map(|line| format!("{name}: {line}"));
        lines.chain(omitted).collect::<Vec<_>>().join("\n")
    }

    fn omitted_line(&self) -> Option<String> {
        (self.omitted > 0).then(|| format!("and {} more errors", self.omitted))
    }
}

impl From<Diagnostic> for ValidationErrors {
    fn from(error: Diagnostic) -> Self {
        Self {
            list: vec![error],
            omitted: 0,
        }
    }
}

impl fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.list.iter().map(ToString::to_string);
        let lines: Vec<_> = lines.chain(self.omitted_line()).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ValidationErrors {}

/// Proof that an error was added to an [`ErrorCollector`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reported(());

/// The errors found while a document is read.
#[derive(Debug)]
pub(crate) struct ErrorCollector(RefCell<ValidationErrors>);

impl ErrorCollector {
    pub(crate) fn new() -> Self {
        Self(RefCell::new(ValidationErrors {
            list: Vec::new(),
            omitted: 0,
        }))
    }

    pub(crate) fn add(&self, error: Diagnostic) -> Reported {
        let ValidationErrors { list, omitted } = &mut *self.0.borrow_mut();
        if list.len() < MAX_LISTED {
            list.push(error);
        } else {
            *omitted = omitted.saturating_add(1);
        }
        Reported(())
    }

    /// The value, if there was no error at all.
    pub(crate) fn finish<T>(self, value: Result<T, Reported>) -> Result<T, ValidationErrors> {
        let mut errors = self.0.into_inner();
        match value {
            Ok(value) if errors.list.is_empty() => Ok(value),
            Ok(_) | Err(Reported(())) => {
                // Checks that span entries come last.
                errors.list.sort_by_key(|error| error.position);
                Err(errors)
            }
        }
    }
}

/// An untrusted text in quotes, [`shortened`].
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", shortened(self.0))
    }
}

/// The start of an untrusted text, on [`one_line`].
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}…", one_line(text.get(..end).unwrap_or_default())),
        None => one_line(text),
    }
}

/// The text with line breaks and terminal control characters escaped.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            // Harmless, and frequent in globs and messages.
            '\'' | '\\' => line.push(char),
            _ => line.extend(char.escape_debug()),
        }
    }
    line
}
