//! New inputs from known ones, by chance alone.
//!
//! Ours, because the libraries for it need a newer compiler than the workspace, or a derive on every type: what the targets take is
//! bytes.

use fastrand::Rng;

/// No input grows longer.
const MOST_BYTES: usize = 4096;

/// What readers stumble over.
const WORDS: &[&[u8]] = &[
    b"null",
    b"true",
    b"-0",
    b"-1",
    b"0.1",
    b"1e15",
    b"1e16",
    b"1e308",
    b"1e999",
    b"-1e999",
    b"NaN",
    b"inf",
    b"9007199254740991",
    b"9007199254740992",
    b"18446744073709551616",
    b"\"\"",
    b"\"*\"",
    b"{}",
    b"[]",
    b"[[[[[[[[",
    b"\\u0000",
    b"\\ud800",
    b"\\\"",
    b"\0",
    b"\r\n",
    b"\n",
    b"\t",
    b"\x7f",
    b"\xc2\x85",
    b"\xff",
    b"\xe2\x80\xa8",
    b"\xf0\x9f\x9a\xaa",
    b"%2F",
    b"%00",
    b"..",
    b"/",
    b"*",
    b"?",
    b"[!a-z]",
    b"\\",
    b"&a ",
    b"*a",
    b"<<: ",
    b"!!binary ",
    b"---\n",
    b"# ",
    b"|",
    b">-\n",
    b"~",
    b"=",
    b";",
    b":",
    b",",
    b"{header:x-a}",
    b"{peer}",
    b"\x1e",
];

/// A source of inputs: the same seed and corpus always make the same.
#[derive(Debug)]
pub struct Mutator {
    chance: Rng,
}

impl Mutator {
    /// Chance begins here.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            chance: Rng::with_seed(seed),
        }
    }

    /// One of the known inputs, changed in one to eight places.
    pub fn next(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = self.one_of(corpus);
        for _ in 0..self.chance.usize(1..=8) {
            self.change(&mut input, corpus);
        }
        input.truncate(MOST_BYTES);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let (from, to) = self.piece(input.len());
        match self.chance.u8(..7) {
            // A bit, a byte, a piece less, a piece twice, a word, a piece of another input, its digits.
            0 => {
                let bit = 1 << self.chance.u8(..8);
                input
                    .iter_mut()
                    .skip(from)
                    .take(1)
                    .for_each(|byte| *byte ^= bit);
            }
            1 => {
                let other = self.chance.u8(..);
                input
                    .iter_mut()
                    .skip(from)
                    .take(1)
                    .for_each(|byte| *byte = other);
            }
            2 => drop(input.drain(from..to)),
            3 => {
                let piece: Vec<u8> = input.drain(from..to).collect();
                input.splice(from..from, piece.repeat(2));
            }
            4 => {
                let word = self.chance.choice(WORDS).copied().unwrap_or_default();
                let end = if self.chance.bool() { from } else { to };
                input.splice(from..end, word.iter().copied());
            }
            5 => {
                let other = self.one_of(corpus);
                let (start, end) = self.piece(other.len());
                input.splice(from..to, other.into_iter().take(end).skip(start));
            }
            _ => {
                let digits = input
                    .iter_mut()
                    .skip(from)
                    .filter(|byte| byte.is_ascii_digit());
                digits
                    .take(1)
                    .for_each(|byte| *byte = self.chance.u8(b'0'..=b'9'));
            }
        }
    }

    fn one_of(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        self.chance.choice(corpus).cloned().unwrap_or_default()
    }

    /// Where a piece begins and ends; short ones are likelier.
    fn piece(&mut self, len: usize) -> (usize, usize) {
        let from = self.chance.usize(..=len);
        let most = if self.chance.bool() { 8 } else { len };
        let to = from.saturating_add(self.chance.usize(..=most)).min(len);
        (from, to)
    }
}
