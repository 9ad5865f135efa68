//! Guesses what a misspelt word was meant to be.

/// Longer words are not worth comparing: nothing known is half as long.
const LONGEST_COMPARED: usize = 64;

/// The known word that `word` is most likely a slip of: the same but for case, `-` and `_`, or at most a third of it wrong.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    if word.len() > LONGEST_COMPARED {
        return None;
    }
    let word = folded(word);
    known
        .iter()
        .map(|candidate| (distance(&word, &folded(candidate)), *candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len() / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn folded(word: &str) -> Vec<char> {
    word.chars()
        .filter(|char| !matches!(char, '_' | '-' | ' '))
        .flat_map(char::to_lowercase)
        .collect()
}

/// How many characters must be put in, left out, replaced, or swapped with their neighbour (optimal string alignment).
fn distance(from: &[char], to: &[char]) -> usize {
    // Three rows of the table of distances between prefixes: the one being made and the two before it.
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    let mut previous_from = None;
    for (row, from_char) in from.iter().enumerate() {
        let mut current = Vec::with_capacity(last.len());
        let mut left = row + 1;
        current.push(left);
        let mut previous_to = None;
        for (column, to_char) in to.iter().enumerate() {
            let at = |row: &[usize], column: usize| row.get(column).copied().unwrap_or(usize::MAX);
            let replaced = at(&last, column).saturating_add(usize::from(from_char != to_char));
            let left_out = at(&last, column + 1).saturating_add(1);
            let mut best = replaced.min(left_out).min(left + 1);
            if previous_from == Some(to_char) && previous_to == Some(from_char) {
                let swapped = column
                    .checked_sub(1)
                    .map_or(usize::MAX, |column| at(&before_last, column));
                best = best.min(swapped.saturating_add(1));
            }
            current.push(best);
            left = best;
            previous_to = Some(to_char);
        }
        previous_from = Some(from_char);
        before_last = std::mem::replace(&mut last, current);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    const KNOWN: &[&str] = &[
        "identifier_glob",
        "capacity",
        "safe_capacity",
        "per",
        "unit",
    ];

    #[test]
    fn finds_slips_and_other_spellings() {
        for (word, meant) in [
            ("capcity", "capacity"),
            ("capactiy", "capacity"),
            ("Capacity", "capacity"),
            ("safeCapacity", "safe_capacity"),
            ("safe-capacity", "safe_capacity"),
            ("identifierGlob", "identifier_glob"),
            ("indentifier_glob", "identifier_glob"),
            ("pre", "per"),
            ("units", "unit"),
        ] {
            assert_eq!(nearest(word, KNOWN), Some(meant), "{word}");
        }
    }

    #[test]
    fn guesses_nothing_when_nothing_is_close() {
        for word in ["", "x", "limit", "burst", &"capacity".repeat(1_000)] {
            assert_eq!(nearest(word, KNOWN), None, "{word}");
        }
    }
}
