//! Globs, compared with a simple and slow matcher.

use doorman_openapi::Glob;

/// The simple matcher takes too long for longer texts.
const MAX_CHARS: usize = 24;

/// Reads the first line as a glob, and the rest as text to match.
///
/// # Panics
/// When the two disagree on whether the glob is valid or whether it matches.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (pattern, text) = text.split_once('\n').unwrap_or((&text, ""));
    let parsed = Glob::new(pattern);
    let control = pattern.chars().any(char::is_control);
    let parts = parse(&pattern.chars().collect::<Vec<_>>());
    let expected = !pattern.is_empty() && pattern.len() <= 1024 && !control && parts.is_some();
    assert_eq!(parsed.is_ok(), expected, "{pattern:?}");
    let (Ok(glob), Some(parts)) = (parsed, parts) else {
        return;
    };
    assert_eq!(glob.as_str(), pattern);
    let catch_all = glob.is_catch_all();
    assert_eq!(catch_all, pattern.chars().all(|c| c == '*'), "{pattern:?}");
    // It must end for texts of any length.
    let matched = glob.matches(text);
    let text: Vec<char> = text.chars().collect();
    if parts.len() <= MAX_CHARS && text.len() <= MAX_CHARS {
        assert_eq!(matched, matches(&parts, &text), "{pattern:?} {text:?}");
    }
}

#[derive(Debug)]
enum Part {
    /// `*`
    Star,
    /// One character that is, or is not, within one of these ranges.
    Char(bool, Vec<(char, char)>),
}

/// Parses a glob; `None` when it is invalid.
fn parse(glob: &[char]) -> Option<Vec<Part>> {
    let (part, rest) = match glob {
        [] => return Some(Vec::new()),
        ['*', rest @ ..] => (Part::Star, rest),
        ['?', rest @ ..] => (Part::Char(false, Vec::new()), rest),
        ['[', '^' | '!', rest @ ..] => parse_class(rest, false)?,
        ['[', rest @ ..] => parse_class(rest, true)?,
        ['\\', c, rest @ ..] => (Part::Char(true, vec![(*c, *c)]), rest),
        ['\\'] => return None,
        [c, rest @ ..] => (Part::Char(true, vec![(*c, *c)]), rest),
    };
    let mut all = vec![part];
    all.extend(parse(rest)?);
    Some(all)
}

/// Parses a class after its `[`; returns it and the rest.
fn parse_class(mut rest: &[char], within: bool) -> Option<(Part, &[char])> {
    let mut ranges = Vec::new();
    loop {
        let from = match rest {
            [']', after @ ..] if !ranges.is_empty() => {
                return Some((Part::Char(within, ranges), after));
            }
            _ => character(&mut rest)?,
        };
        let to = match rest {
            ['-', next, ..] if *next != ']' => {
                rest = rest.get(1..)?;
                character(&mut rest)?
            }
            _ => from,
        };
        if from > to {
            return None;
        }
        ranges.push((from, to));
    }
}

/// Takes a character of a class off the front.
fn character(rest: &mut &[char]) -> Option<char> {
    let (c, after) = match *rest {
        ['\\', c, after @ ..] => (*c, after),
        ['\\'] | [] => return None,
        [c, after @ ..] => (*c, after),
    };
    *rest = after;
    Some(c)
}

/// Matches by trying every length of a star.
fn matches(parts: &[Part], text: &[char]) -> bool {
    match (parts, text) {
        ([], []) => true,
        ([Part::Star, after @ ..], _) => {
            matches(after, text)
                || text
                    .split_first()
                    .is_some_and(|(_, text)| matches(parts, text))
        }
        ([Part::Char(within, ranges), parts @ ..], [c, text @ ..]) => {
            let found = ranges.iter().any(|(from, to)| from <= c && c <= to);
            found == *within && matches(parts, text)
        }
        ([Part::Char(..), ..], []) | ([], [_, ..]) => false,
    }
}
