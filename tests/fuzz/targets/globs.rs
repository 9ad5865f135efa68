//! GlobSet over identifiers, beside a matcher that is plain and slow.

use doorman_openapi::Glob;

/// Longer ones would keep the plain matcher busy for ever.
const MOST_CHARS: usize = 24;

/// Takes the first line for a glob, and the rest for what may match it.
///
/// # Panics
/// When the two disagree on what a glob is, or on what it matches.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (glob, text) = text.split_once('\n').unwrap_or((&text, ""));
    let made = Glob::new(glob);
    let control = glob.chars().any(char::is_control);
    let parts = parts(&glob.chars().collect::<Vec<_>>());
    let expected = !glob.is_empty() && glob.len() <= 1024 && !control && parts.is_some();
    assert_eq!(made.is_ok(), expected, "{glob:?}");
    let (Ok(made), Some(parts)) = (made, parts) else {
        return;
    };
    assert_eq!(made.as_str(), glob);
    let every = made.is_catch_all();
    assert_eq!(every, glob.chars().all(|c| c == '*'), "{glob:?}");
    // However long, it ends.
    let matches = made.matches(text);
    let text: Vec<char> = text.chars().collect();
    if parts.len() <= MOST_CHARS && text.len() <= MOST_CHARS {
        assert_eq!(matches, fits(&parts, &text), "{glob:?} {text:?}");
    }
}

/// What a glob is made of.
#[derive(Debug)]
enum Part {
    Run,
    /// One character within one of these ranges, or within none.
    One(bool, Vec<(char, char)>),
}

/// Reads a glob from its first character on; `None` when it is none.
fn parts(glob: &[char]) -> Option<Vec<Part>> {
    let (part, rest) = match glob {
        [] => return Some(Vec::new()),
        ['*', rest @ ..] => (Part::Run, rest),
        ['?', rest @ ..] => (Part::One(false, Vec::new()), rest),
        ['[', '^' | '!', rest @ ..] => class(rest, false)?,
        ['[', rest @ ..] => class(rest, true)?,
        ['\\', c, rest @ ..] => (Part::One(true, vec![(*c, *c)]), rest),
        ['\\'] => return None,
        [c, rest @ ..] => (Part::One(true, vec![(*c, *c)]), rest),
    };
    let mut all = vec![part];
    all.extend(parts(rest)?);
    Some(all)
}

/// Reads a class behind its `[`; what follows it is left.
fn class(mut rest: &[char], within: bool) -> Option<(Part, &[char])> {
    let mut ranges = Vec::new();
    loop {
        let from = match rest {
            [']', after @ ..] if !ranges.is_empty() => {
                return Some((Part::One(within, ranges), after));
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

/// Takes one character of a class off the front.
fn character(rest: &mut &[char]) -> Option<char> {
    let (c, after) = match *rest {
        ['\\', c, after @ ..] => (*c, after),
        ['\\'] | [] => return None,
        [c, after @ ..] => (*c, after),
    };
    *rest = after;
    Some(c)
}

/// Tries everything that a run can take.
fn fits(parts: &[Part], text: &[char]) -> bool {
    match (parts, text) {
        ([], []) => true,
        ([Part::Run, after @ ..], _) => {
            fits(after, text)
                || text
                    .split_first()
                    .is_some_and(|(_, text)| fits(parts, text))
        }
        ([Part::One(within, ranges), parts @ ..], [c, text @ ..]) => {
            let found = ranges.iter().any(|(from, to)| from <= c && c <= to);
            found == *within && fits(parts, text)
        }
        ([Part::One(..), ..], []) | ([], [_, ..]) => false,
    }
}
