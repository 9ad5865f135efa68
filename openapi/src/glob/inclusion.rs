//! Inclusion of globs: whether one matches every text that another matches.
//!
//! A search for a text that only the inner glob matches. Both globs read it character by character:
//! the inner one is at one token, the outer one at several [`Positions`].

use std::iter;

use super::Token;

/// Whether `outer` matches every text that `inner` matches; `None` if it takes more than `steps`.
pub(super) fn includes(outer: &[Token], inner: &[Token], steps: &mut usize) -> Option<bool> {
    let outer = Outer(outer);
    let mut seen: Vec<Vec<Positions>> = Vec::new();
    let mut pending = vec![(0, outer.start())];
    while let Some((at, positions)) = pending.pop() {
        *steps = steps.checked_sub(1)?;
        if outer.accepts_everything(&positions) {
            continue;
        }
        // Every token matches some character, so the inner glob matches some text from here.
        if positions.is_empty() {
            return Some(false);
        }
        let Some(token) = inner.get(at) else {
            if outer.is_at_end(&positions) {
                continue;
            }
            return Some(false);
        };
        if seen.len() <= at {
            seen.resize_with(at.saturating_add(1), Vec::new);
        }
        let known = seen.get_mut(at)?;
        *steps = steps.checked_sub(known.len())?;
        if known.iter().any(|it| outer.accepts_less(it, &positions)) {
            continue;
        }
        let next = at.saturating_add(1);
        let to = if *token == Token::AnyRun {
            pending.push((next, positions.clone()));
            at
        } else {
            next
        };
        for char in outer.distinct_chars(token, &positions) {
            *steps = steps.checked_sub(positions.len())?;
            pending.push((to, outer.step(&positions, char)));
        }
        known.push(positions);
    }
    Some(true)
}

/// The tokens that the outer glob may match next, ascending; its length is its end. The positions
/// before the last run are left out: that run matches what they would.
type Positions = Vec<usize>;

#[derive(Clone, Copy)]
struct Outer<'t>(&'t [Token]);

impl Outer<'_> {
    fn start(self) -> Positions {
        self.closed(vec![0])
    }

    fn step(self, positions: &[usize], char: char) -> Positions {
        let next = positions.iter().filter_map(|&at| match self.0.get(at)? {
            Token::AnyRun => Some(at),
            token => token.matches(char).then(|| at.saturating_add(1)),
        });
        self.closed(next.collect())
    }

    /// Adds the position after the last run, which may match no character.
    fn closed(self, mut positions: Positions) -> Positions {
        let last_run = positions.iter().rposition(|&at| self.is_run(at));
        if let Some(index) = last_run {
            positions.drain(..index);
            if let Some(&run) = positions.first() {
                let after = run.saturating_add(1);
                if positions.get(1) != Some(&after) {
                    positions.insert(1, after);
                }
            }
        }
        positions
    }

    fn is_run(self, at: usize) -> bool {
        self.0.get(at) == Some(&Token::AnyRun)
    }

    fn run(self, positions: &[usize]) -> Option<usize> {
        positions.first().copied().filter(|at| self.is_run(*at))
    }

    fn is_at_end(self, positions: &[usize]) -> bool {
        positions.last() == Some(&self.0.len())
    }

    fn accepts_everything(self, positions: &[usize]) -> bool {
        self.run(positions)
            .is_some_and(|run| run.saturating_add(1) == self.0.len())
    }

    /// Whether `positions` surely accept every text that `fewer` accept.
    fn accepts_less(self, fewer: &[usize], positions: &[usize]) -> bool {
        let run = self.run(positions);
        fewer
            .iter()
            .all(|at| run.is_some_and(|run| *at <= run) || positions.binary_search(at).is_ok())
    }

    /// A character of each kind that `token` matches and `positions` tell apart. The last one is in
    /// no class and no literal if possible: it most likely refutes.
    fn distinct_chars(self, token: &Token, positions: &[usize]) -> Vec<char> {
        if let Token::Char(char) = token {
            return vec![*char];
        }
        let mut chars = vec!['\0'];
        let active = positions.iter().filter_map(|&at| self.0.get(at));
        for token in iter::once(token).chain(active) {
            match token {
                Token::Char(char) => add_range(&mut chars, *char, *char),
                Token::Class { ranges, .. } => {
                    for (from, to) in ranges {
                        add_range(&mut chars, *from, *to);
                    }
                }
                Token::AnyChar | Token::AnyRun => {}
            }
        }
        chars.retain(|char| token.matches(*char));
        chars.sort_unstable_by(|a, b| b.cmp(a));
        chars.dedup();
        chars
    }
}

/// Adds the first character of the range, and the first one after it.
fn add_range(chars: &mut Vec<char>, from: char, to: char) {
    chars.push(from);
    chars.extend((to..=char::MAX).nth(1));
}
