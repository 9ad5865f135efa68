//! Globs over identifiers.
//!
//! Crates such as `globset` match paths, with `/` and `**` special. An identifier is opaque text.

mod inclusion;

use std::{borrow::Cow, fmt, str::Chars};

#[cfg(test)]
mod tests;

/// The most bytes of a glob.
const MAX_BYTES: usize = 1024;

/// The most steps of one [`Glob::is_superset_of`]: `?` and classes after a `*` may take
/// exponentially many.
const MAX_STEPS: usize = 1 << 16;

/// A pattern over identifiers.
///
/// `*` matches any run of characters, `/` included. `?` matches one character. `[…]` matches one
/// character of a class (`[a-z]`, negated `[^a-z]` or `[!a-z]`). `\` escapes the next character.
/// Every other character matches itself. A glob matches the whole identifier, character by
/// character, without case folding.
///
/// ```
/// use doorman_openapi::Glob;
///
/// let glob = Glob::new("tenant/*/db-[0-9]")?;
/// assert!(glob.matches("tenant/acme/eu/db-7"));
/// assert!(!glob.matches("tenant/acme/db-10"));
/// # Ok::<(), doorman_openapi::InvalidGlob>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Glob {
    text: Box<str>,
    tokens: Box<[Token]>,
}

/// The text is not a glob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be {0}")]
pub struct InvalidGlob(&'static str);

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
    /// Parses a glob.
    ///
    /// # Errors
    /// [`InvalidGlob`] if the text is empty, longer than 1,024 bytes or has a control character, if
    /// a class is unclosed or has a descending range, or if the last character is an unescaped `\`.
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
            // Adjacent runs match what one run matches.
            if token != Token::AnyRun || tokens.last() != Some(&Token::AnyRun) {
                tokens.push(token);
            }
        }
        Ok(Self {
            text: text.into(),
            tokens: tokens.into(),
        })
    }

    /// The text of the glob.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the glob matches every identifier: it is one or more `*`.
    #[must_use]
    pub fn is_catch_all(&self) -> bool {
        *self.tokens == [Token::AnyRun]
    }

    /// Whether the glob matches the whole text. The worst case takes time proportional to the
    /// product of both lengths.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let mut tokens = self.tokens.iter();
        let mut rest = text.chars();
        // The state after the last run. On a mismatch that run takes one more character. Earlier
        // runs need not grow, because the last one can take the same characters.
        let mut retry = None;
        loop {
            let mut ahead = rest.clone();
            let fits = match (tokens.next(), ahead.next()) {
                (None, None) => return true,
                (Some(Token::AnyRun), _) => {
                    retry = Some((tokens.clone(), rest.clone()));
                    continue;
                }
                (Some(token), Some(char)) => token.matches(char),
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

    /// Whether some text with this prefix may match. Compares only the literal characters at the
    /// start of the glob, so the answer may be a false `true`.
    #[must_use]
    pub fn may_match_prefix(&self, prefix: &str) -> bool {
        self.literal_prefix()
            .zip(prefix.chars())
            .all(|(literal, char)| literal == char)
    }

    /// A lower bound, in byte order, for the matching texts from `text` on; `None` if no later text
    /// matches. Lets a reader of a sorted list skip entries.
    #[must_use]
    pub fn seek<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        let mut chars = text.chars();
        for literal in self.literal_prefix() {
            match chars.next() {
                Some(char) if char == literal => {}
                // Characters have the same order as their UTF-8 bytes.
                Some(char) if char > literal => return None,
                Some(_) | None => return Some(self.literal_prefix().collect()),
            }
        }
        Some(text.into())
    }

    fn literal_prefix(&self) -> impl Iterator<Item = char> {
        self.tokens.iter().map_while(|token| match token {
            Token::Char(char) => Some(*char),
            Token::AnyChar | Token::AnyRun | Token::Class { .. } => None,
        })
    }

    /// Whether this glob matches only its own text: it has no wildcard, class or escape.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        self.literal_prefix().eq(self.text.chars())
    }

    /// The text that every match starts with.
    #[must_use]
    pub fn prefix(&self) -> String {
        self.literal_prefix().collect()
    }

    /// Whether this glob matches every text that `other` matches.
    ///
    /// Exact, unless it takes more than 65,536 steps to decide, which ordinary globs never do. Then
    /// `false` may be wrong where several tokens of this glob together cover one of `other`; `true`
    /// never is.
    ///
    /// ```
    /// use doorman_openapi::Glob;
    ///
    /// let tenant = Glob::new("tenant/acme/*")?;
    /// assert!(tenant.is_superset_of(&Glob::new("tenant/acme/db-?")?));
    /// assert!(!tenant.is_superset_of(&Glob::new("tenant/*")?));
    /// # Ok::<(), doorman_openapi::InvalidGlob>(())
    /// ```
    #[must_use]
    pub fn is_superset_of(&self, other: &Self) -> bool {
        let mut steps = MAX_STEPS;
        self.is_superset_within(&mut steps, other)
    }

    /// [`is_superset_of`](Self::is_superset_of) for many comparisons, which share the remaining
    /// steps. `false` once there are none.
    pub fn is_superset_within(&self, steps: &mut usize, other: &Self) -> bool {
        let granted = MAX_STEPS.min(*steps);
        let mut left = granted;
        let decided = inclusion::includes(&self.tokens, &other.tokens, &mut left);
        *steps = steps.saturating_sub(granted.saturating_sub(left));
        decided.unwrap_or_else(|| *steps > 0 && self.covers_by_token(other))
    }

    /// Whether each token of `other` is covered by one of this glob, in order.
    fn covers_by_token(&self, other: &Self) -> bool {
        // `reached[n]`: the first n tokens of this glob match the part of `other` read so far.
        let mut reached = vec![false; self.tokens.len().saturating_add(1)];
        if let Some(start) = reached.first_mut() {
            *start = true;
        }
        self.skip_runs(&mut reached);
        for token in &other.tokens {
            let mut next = vec![false; reached.len()];
            for (at, own) in self.tokens.iter().enumerate() {
                if !reached.get(at).copied().unwrap_or_default() || !own.is_superset_of(token) {
                    continue;
                }
                let to = if *own == Token::AnyRun { at } else { at + 1 };
                if let Some(next) = next.get_mut(to) {
                    *next = true;
                }
            }
            self.skip_runs(&mut next);
            reached = next;
        }
        reached.last().copied().unwrap_or_default()
    }

    /// A run may match no character.
    fn skip_runs(&self, reached: &mut [bool]) {
        for (at, token) in self.tokens.iter().enumerate() {
            if *token == Token::AnyRun
                && reached.get(at).copied().unwrap_or_default()
                && let Some(next) = reached.get_mut(at + 1)
            {
                *next = true;
            }
        }
    }
}

impl Token {
    fn matches(&self, char: char) -> bool {
        match self {
            Self::Char(literal) => *literal == char,
            Self::AnyChar | Self::AnyRun => true,
            Self::Class { negated, ranges } => {
                let within = ranges.iter().any(|(from, to)| (from..=to).contains(&&char));
                within != *negated
            }
        }
    }

    fn is_superset_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::AnyRun, _) => true,
            (_, Self::AnyRun) => false,
            (Self::AnyChar, _) => true,
            (_, Self::Char(char)) => self.matches(*char),
            (_, Self::AnyChar) => false,
            (own, Self::Class { .. }) => own == other,
        }
    }
}

const UNCLOSED: InvalidGlob = InvalidGlob("a glob whose every `[` is closed by a `]`");

fn class(chars: &mut Chars<'_>) -> Result<Token, InvalidGlob> {
    let mut ahead = chars.clone();
    let negated = matches!(ahead.next(), Some('^' | '!'));
    if negated {
        *chars = ahead;
    }
    let mut ranges = Vec::new();
    loop {
        let from = match chars.next().ok_or(UNCLOSED)? {
            // The first `]` of a class is a literal: a class has at least one character.
            ']' if !ranges.is_empty() => return Ok(Token::Class { negated, ranges }),
            '\\' => escaped(chars)?,
            char => char,
        };
        let to = range_end(chars)?.unwrap_or(from);
        if to < from {
            return Err(InvalidGlob("a glob with ascending ranges, such as `[a-z]`"));
        }
        ranges.push((from, to));
    }
}

/// Parses the end of a range if a `-` follows. A `-` at the end of the class is a literal.
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

fn escaped(chars: &mut Chars<'_>) -> Result<char, InvalidGlob> {
    chars.next().ok_or(InvalidGlob(
        "a glob without a `\\` at its end; write `\\\\` for the character itself",
    ))
}

#[cfg(feature = "schema")]
impl utoipa::PartialSchema for Glob {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        String::schema()
    }
}

#[cfg(feature = "schema")]
impl utoipa::ToSchema for Glob {}

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

/// A set of globs. It matches a text if one of its globs does; the empty set matches nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct GlobSet(Box<[Glob]>);

impl GlobSet {
    /// The most globs of a set: each decision compares all of them.
    pub const MAX_LEN: usize = 64;

    /// Parses a set of globs.
    ///
    /// # Errors
    /// [`InvalidGlob`] if a text is not a glob, or there are more than [`MAX_LEN`](Self::MAX_LEN).
    pub fn new(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, InvalidGlob> {
        let globs = texts.into_iter().map(|text| Glob::new(text.as_ref()));
        Self::from_globs(globs.collect::<Result<_, _>>()?)
    }

    /// Makes a set of globs.
    ///
    /// # Errors
    /// [`InvalidGlob`] if there are more than [`MAX_LEN`](Self::MAX_LEN).
    pub fn from_globs(globs: Vec<Glob>) -> Result<Self, InvalidGlob> {
        if globs.len() > Self::MAX_LEN {
            return Err(InvalidGlob("at most 64 globs"));
        }
        let mut globs = globs;
        globs.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        globs.dedup();
        Ok(Self(globs.into()))
    }

    /// The globs in the order of their texts, each once.
    pub fn iter(&self) -> impl Iterator<Item = &Glob> {
        self.0.iter()
    }

    /// The number of globs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set has no globs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a glob of the set matches the whole text.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|glob| glob.matches(text))
    }

    /// A lower bound, in byte order, for the matching texts from `text` on; see [`Glob::seek`].
    #[must_use]
    pub fn seek<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        self.0.iter().filter_map(|glob| glob.seek(text)).min()
    }

    /// Whether the set [covers](Self::covers) each glob of another one.
    #[must_use]
    pub fn covers_all(&self, others: &Self) -> bool {
        others.0.iter().all(|glob| self.covers(glob))
    }

    /// Whether one glob of the set is a [superset](Glob::is_superset_of) of `glob`.
    #[must_use]
    pub fn covers(&self, glob: &Glob) -> bool {
        self.0.iter().any(|own| own.is_superset_of(glob))
    }
}
