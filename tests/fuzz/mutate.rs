//! Random mutations of known inputs.
//!
//! The libraries for this need a newer compiler than the workspace, or a derive on every type.

use fastrand::Rng;

/// The longest input.
const MAX_BYTES: usize = 4096;

/// Tokens that parsers often get wrong.
const TOKENS: &[&[u8]] = &[
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

/// A source of inputs. The same seed and corpus produce the same inputs.
#[derive(Debug)]
pub struct Mutator {
    rng: Rng,
}

impl Mutator {
    /// A mutator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
        }
    }

    /// An input of the corpus, changed in one to eight places.
    pub fn next(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = self.choose(corpus);
        for _ in 0..self.rng.usize(1..=8) {
            self.change(&mut input, corpus);
        }
        input.truncate(MAX_BYTES);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let (from, to) = self.range(input.len());
        match self.rng.u8(..7) {
            // Flips a bit.
            0 => {
                let bit = 1 << self.rng.u8(..8);
                input
                    .iter_mut()
                    .skip(from)
                    .take(1)
                    .for_each(|byte| *byte ^= bit);
            }
            // Replaces a byte.
            1 => {
                let other = self.rng.u8(..);
                input
                    .iter_mut()
                    .skip(from)
                    .take(1)
                    .for_each(|byte| *byte = other);
            }
            // Removes a range.
            2 => drop(input.drain(from..to)),
            // Duplicates a range.
            3 => {
                let range: Vec<u8> = input.drain(from..to).collect();
                input.splice(from..from, range.repeat(2));
            }
            // Inserts a token, or replaces a range with it.
            4 => {
                let token = self.rng.choice(TOKENS).copied().unwrap_or_default();
                let end = if self.rng.bool() { from } else { to };
                input.splice(from..end, token.iter().copied());
            }
            // Replaces a range with one of another input.
            5 => {
                let other = self.choose(corpus);
                let (start, end) = self.range(other.len());
                input.splice(from..to, other.into_iter().take(end).skip(start));
            }
            // Replaces a digit.
            _ => {
                let digits = input
                    .iter_mut()
                    .skip(from)
                    .filter(|byte| byte.is_ascii_digit());
                digits
                    .take(1)
                    .for_each(|byte| *byte = self.rng.u8(b'0'..=b'9'));
            }
        }
    }

    fn choose(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        self.rng.choice(corpus).cloned().unwrap_or_default()
    }

    /// A random range; short ones are likelier.
    fn range(&mut self, len: usize) -> (usize, usize) {
        let from = self.rng.usize(..=len);
        let longest = if self.rng.bool() { 8 } else { len };
        let to = from.saturating_add(self.rng.usize(..=longest)).min(len);
        (from, to)
    }
}
