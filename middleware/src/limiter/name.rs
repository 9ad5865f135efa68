//! Names of resources as words, as the records hold them.
//!
//! The last eight bytes are the first word; the word with the first bytes is padded with zeros,
//! which no name contains. So most words of the value that a name ends with are eight bytes of the
//! request as they are.

use crate::key::is_unreserved;

/// Words of a name that a record holds.
pub(super) const NAME_WORDS: usize = 6;
/// The longest name that fits into a record, in bytes.
const NAME_BYTES: usize = NAME_WORDS * 8;
/// The last word of a longer name begins with this byte, which no text has, and ends with the
/// number of its [`Rest`].
const CONTINUES: u64 = 0xFF << 56;
/// Words of the longest name that do not fit into its record.
pub(super) const REST_WORDS: usize = 256 / 8 - (NAME_WORDS - 1);

pub(super) type Words = [u64; NAME_WORDS];
pub(super) type Rest = [u64; REST_WORDS];

/// A name as its record holds it.
pub(super) struct Name<'n> {
    pub(super) text: &'n [u8],
    /// All words of a name that fits. Of a longer one the last word is that of its record.
    pub(super) words: Words,
}

impl<'n> Name<'n> {
    pub(super) fn new(text: &'n [u8]) -> Self {
        let mut words = first_words(text);
        if text.len() > NAME_BYTES {
            let [.., last] = &mut words;
            *last = CONTINUES;
        }
        Self { text, words }
    }

    pub(super) fn fits(&self) -> bool {
        self.text.len() <= NAME_BYTES
    }

    /// The words of a longer name that do not fit.
    pub(super) fn rest(&self) -> Rest {
        let mut rest = [0; REST_WORDS];
        for (word, bytes) in rest
            .iter_mut()
            .zip(self.text.rchunks(8).skip(NAME_WORDS - 1))
        {
            *word = to_word(bytes);
        }
        rest
    }

    /// From which byte on all are unreserved.
    pub(super) fn unreserved_from(&self) -> usize {
        let last_reserved = self.text.iter().rposition(|byte| !is_unreserved(*byte));
        last_reserved.map_or(0, |last| last.saturating_add(1))
    }
}

/// The words of a longer name, whose rest has this number.
pub(super) fn continued([first @ .., _]: Words, rest: u32) -> Words {
    let [a, b, c, d, e] = first;
    [a, b, c, d, e, CONTINUES | u64::from(rest)]
}

/// The number of the rest of a name with these words; `None` if it has none.
pub(super) fn rest_number([.., last]: Words) -> Option<u32> {
    (last & CONTINUES == CONTINUES).then_some(last as u32)
}

/// The text of a name, whose last words come first.
pub(super) fn to_text(words: Words, rest: Option<Rest>) -> Vec<u8> {
    let (words, rest) = match &rest {
        Some(rest) => (&words[..NAME_WORDS - 1], rest.as_slice()),
        None => (words.as_slice(), [].as_slice()),
    };
    let mut text = Vec::with_capacity(8 * (words.len() + rest.len()));
    for word in rest.iter().rev().chain(words.iter().rev()) {
        // The padding; all bytes of a word of zeros.
        let zeros = (word.trailing_zeros() / 8) as usize;
        let bytes = word.to_le_bytes();
        text.extend_from_slice(bytes.get(zeros..).unwrap_or_default());
    }
    text
}

/// As many words of a text as a record holds, the last bytes first.
fn first_words(text: &[u8]) -> Words {
    let mut words = Words::default();
    for (word, bytes) in words.iter_mut().zip(text.rchunks(8)) {
        *word = to_word(bytes);
    }
    words
}

/// At most eight bytes, at the upper end.
fn to_word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => few_to_word(bytes),
    }
}

/// Less than eight bytes, at the upper end.
#[inline]
fn few_to_word(bytes: &[u8]) -> u64 {
    let shifts = [56, 48, 40, 32, 24, 16, 8];
    let bytes = bytes.iter().rev().zip(shifts);
    bytes.fold(0, |word, (byte, shift)| word | (u64::from(*byte) << shift))
}

/// The text before the value of a key.
#[derive(Debug)]
pub(crate) struct NamePrefix {
    len: usize,
    /// The longest value that fits behind it.
    room: usize,
    /// Its words behind a value, by how many bytes of the value fill no word. The first is the one
    /// in which both meet.
    rows: [Words; 8],
}

impl NamePrefix {
    pub(crate) fn new(text: &str) -> Self {
        let row = |more: usize| {
            let mut text = text.as_bytes().to_vec();
            text.resize(text.len().saturating_add(more), 0);
            first_words(&text)
        };
        Self {
            len: text.len(),
            room: NAME_BYTES.saturating_sub(text.len()),
            rows: std::array::from_fn(row),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The words of this and a value; `None` if they do not fit, or the value is empty.
    ///
    /// They never lie in memory: words that are stored one by one and loaded two by two would be
    /// waited for.
    #[expect(
        clippy::inline_always,
        reason = "measured: the words stay in registers"
    )]
    #[inline(always)]
    pub(super) fn with(&self, value: &[u8]) -> Option<Words> {
        if value.is_empty() || value.len() > self.room {
            return None;
        }
        let (few, whole) = value.as_rchunks::<8>();
        let [row, p, q, r, s, t] = self.rows.get(few.len())?;
        let meet = row
            | match value.first_chunk() {
                _ if few.is_empty() => 0,
                // Of the first eight bytes, those that are not in the next word.
                Some(first) => u64::from_le_bytes(*first) << (64 - 8 * few.len()),
                None => few_to_word(few),
            };
        let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        Some(match whole {
            [] => [meet, *p, *q, *r, *s, *t],
            [a] => [word(a), meet, *p, *q, *r, *s],
            [b, a] => [word(a), word(b), meet, *p, *q, *r],
            [c, b, a] => [word(a), word(b), word(c), meet, *p, *q],
            [d, c, b, a] => [word(a), word(b), word(c), word(d), meet, *p],
            [e, d, c, b, a] => [word(a), word(b), word(c), word(d), word(e), meet],
            [.., f, e, d, c, b, a] => [word(a), word(b), word(c), word(d), word(e), word(f)],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(len: usize, first: u8) -> String {
        (first..).take(len).map(char::from).collect()
    }

    #[test]
    fn prefix_and_value_have_the_words_of_the_whole_name() {
        for (prefix, value) in (0..50).flat_map(|prefix| (0..56).map(move |value| (prefix, value)))
        {
            let (prefix, value) = (text(prefix, b'@'), text(value, b'!'));
            let whole = format!("{prefix}{value}");
            let words = NamePrefix::new(&prefix).with(value.as_bytes());
            let name = Name::new(whole.as_bytes());
            assert_eq!(
                words,
                (name.fits() && !value.is_empty()).then_some(name.words),
                "{whole}"
            );
        }
    }

    #[test]
    fn words_are_turned_back_into_the_text() {
        for len in 1..=256 {
            let text = "0123456789abcdef".repeat(16);
            let text = text.get(..len).unwrap().as_bytes();
            let name = Name::new(text);
            let rest = (!name.fits()).then(|| name.rest());
            assert_eq!(to_text(name.words, rest), text);
            assert_eq!(rest_number(name.words), (!name.fits()).then_some(0));
        }
    }

    #[test]
    fn reserved_bytes_are_looked_for_from_the_end() {
        let from = |text: &str| Name::new(text.as_bytes()).unreserved_from();
        assert_eq!(from("plain"), 0);
        assert_eq!(from("x-tenant/acme"), 9);
        assert_eq!(from("x-tenant/a%20b"), 11);
        assert_eq!(from("x-tenant/(missing)"), 18);
    }
}
