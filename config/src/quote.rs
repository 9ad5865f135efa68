//! Repeating a stranger's text, in a line that he does not control.

use std::fmt;

/// The most characters of a text that are repeated.
const MOST_QUOTED: usize = 60;

/// The text in quotes, [`shortened`].
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", shortened(self.0))
    }
}

/// The beginning of the text, on [`one_line`].
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_QUOTED) {
        Some((end, _)) => {
            let beginning = text.get(..end).unwrap_or_default();
            format!("{}…", one_line(beginning))
        }
        None => one_line(text),
    }
}

/// The text without characters that would break the line or steer a terminal.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            // Harmless, and globs and messages are full of them.
            '\'' | '\\' => line.push(char),
            _ => line.extend(char.escape_debug()),
        }
    }
    line
}
