//! GlobSet over identifiers.
//!
//! Matched here rather than by a library, because the libraries match *paths*: there `*` stops at `/`, `**` and `{a,b}` mean
//! something, and `?` and classes see bytes. An identifier is opaque text.

mod covers;

use std::{borrow::Cow, fmt, str::Chars};

#[cfg(test)]
pub(crate) mod tests;

/// The most bytes that a glob may have.
const MAX_BYTES: usize = 1024;

/// A pattern over identifiers: `*` matches any run of characters, `/` included, `?` one character, `[…]` one character of a
/// class (`[a-z]`, negated `[^a-z]` or `[!a-z]`), and `\` takes the meaning from the character after it. Everything else, `{`,
/// `}` and `,` too, stands for itself. Matching is by character, with no case folding, and covers the whole identifier.
///
/// ```
/// use doorman_config::Glob;
///
/// let glob = Glob::new("tenant/*/db-[0-9]")?;
/// assert!(glob.matches("tenant/acme/eu/db-7"));
/// assert!(!glob.matches("tenant/acme/db-10"));
/// # Ok::<(), doorman_config::InvalidGlob>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Glob {
    text: Box<str>,
    tokens: Box<[Token]>,
}

/// Why a text is not a glob; says what would be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be {0}")]
pub struct InvalidGlob(pub(crate) &'static str);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Token {
    Char(char),
    AnyChar,
    AnyRun,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Glob {
    /// Checks a text and takes it as a glob.
    ///
    /// # Errors
    /// [`InvalidGlob`] when it is empty, longer than 1,024 bytes or has a control character (no identifier has one), or when a
    /// class is not closed or runs backwards, or a `\` is the last character.
    pub fn new(text: &str) -> Result<Self, InvalidGlob> {
        if text.is_empty() || text.len() > MAX_BYTES || text.chars().any(char::is_control) {
            return Err(InvalidGlob(
                "a glob of 1 to 1024 bytes of UTF-8 without control characters",
            ));
        }
        let mut tokens = Vec::new();
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            let token = match char {
                '*' => Token::AnyRun,
                '?' => Token::AnyChar,
                '[' => class(&mut chars)?,
                '\\' => Token::Char(escaped(&mut chars)?),
                _ => Token::Char(char),
            };
            // Two runs in a row match what one does, and would only be tried twice.
            if token != Token::AnyRun || tokens.last() != Some(&Token::AnyRun) {
                tokens.push(token);
            }
        }
        Ok(Self {
            text: text.into(),
            tokens: tokens.into(),
        })
    }

    /// The glob as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether every identifier matches: the glob is `*`, however often repeated.
    #[must_use]
    pub fn is_catch_all(&self) -> bool {
        *self.tokens == [Token::AnyRun]
    }

    /// Whether anything that begins with `beginning` can match, by the characters before the first that stands for others: it may say
    /// so where nothing does.
    pub(crate) fn may_match_beginning(&self, beginning: &str) -> bool {
        self.beginning()
            .zip(beginning.chars())
            .all(|(wanted, char)| wanted == char)
    }

    /// The first text from this one on, byte by byte, that begins as all do that match: where to go on in a list that is in this order.
    /// It may say too early a one; `None` when none follows.
    pub(crate) fn seek<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        let mut chars = text.chars();
        for wanted in self.beginning() {
            match chars.next() {
                Some(char) if char == wanted => {}
                // The order of characters is that of their bytes.
                Some(char) if char > wanted => return None,
                Some(_) | None => return Some(self.beginning().collect()),
            }
        }
        Some(text.into())
    }

    /// The characters before the first that stands for others.
    fn beginning(&self) -> impl Iterator<Item = char> {
        self.tokens.iter().map_while(|token| match token {
            Token::Char(char) => Some(*char),
            Token::AnyChar | Token::AnyRun | Token::Class { .. } => None,
        })
    }

    /// Whether the whole of `text` matches. At worst in time proportional to the product of both lengths.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let mut tokens = self.tokens.iter();
        let mut rest = text.chars();
        // Where to go on when the current attempt fails: behind the last run, which then takes one character more. An earlier
        // run never needs to grow: the last one can take whatever that would have taken.
        let mut retry = None;
        loop {
            let mut ahead = rest.clone();
            let fits = match (tokens.next(), ahead.next()) {
                (None, None) => return true,
                (Some(Token::AnyRun), _) => {
                    retry = Some((tokens.clone(), rest.clone()));
                    continue;
                }
                (Some(token), Some(char)) => token.takes(char),
                (Some(_), None) | (None, Some(_)) => false,
            };
            if fits {
                rest = ahead;
                continue;
            }
            let Some((after_run, start)) = &mut retry else {
                return false;
            };
            if start.next().is_none() {
                return false;
            }
            tokens = after_run.clone();
            rest = start.clone();
        }
    }
}

impl Token {
    fn takes(&self, char: char) -> bool {
        match self {
            Self::Char(wanted) => *wanted == char,
            Self::AnyChar | Self::AnyRun => true,
            Self::Class { negated, ranges } => {
                let within = ranges.iter().any(|(from, to)| (from..=to).contains(&&char));
                within != *negated
            }
        }
    }
}

const UNCLOSED: InvalidGlob = InvalidGlob("a glob whose every `[` is closed by a `]`");

/// Reads a class behind its `[`.
fn class(chars: &mut Chars<'_>) -> Result<Token, InvalidGlob> {
    let mut ahead = chars.clone();
    let negated = matches!(ahead.next(), Some('^' | '!'));
    if negated {
        *chars = ahead;
    }
    let mut ranges = Vec::new();
    loop {
        let from = match chars.next().ok_or(UNCLOSED)? {
            // First in its class, a `]` stands for itself: a class has at least one character.
            ']' if !ranges.is_empty() => return Ok(Token::Class { negated, ranges }),
            '\\' => escaped(chars)?,
            char => char,
        };
        let to = range_end(chars)?.unwrap_or(from);
        if to < from {
            return Err(InvalidGlob(
                "a glob whose ranges run upwards, such as `[a-z]`",
            ));
        }
        ranges.push((from, to));
    }
}

/// Reads the end of a range, if a `-` follows that is not the last character of its class.
fn range_end(chars: &mut Chars<'_>) -> Result<Option<char>, InvalidGlob> {
    let mut ahead = chars.clone();
    match (ahead.next(), ahead.next()) {
        (Some('-'), Some(']') | None) => Ok(None),
        (Some('-'), Some(to)) => {
            *chars = ahead;
            if to == '\\' {
                escaped(chars).map(Some)
            } else {
                Ok(Some(to))
            }
        }
        _ => Ok(None),
    }
}

/// Reads the character behind a `\`.
fn escaped(chars: &mut Chars<'_>) -> Result<char, InvalidGlob> {
    chars.next().ok_or(InvalidGlob(
        "a glob without a `\\` at its end; write `\\\\` for the character itself",
    ))
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}
