//! JSON serializer: the output of `serde_json`, with a faster path for whole numbers.

use std::io;

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

/// Appends a value to the text.
pub(crate) fn append<T: Serialize + ?Sized>(
    text: &mut Vec<u8>,
    value: &T,
) -> serde_json::Result<()> {
    value.serialize(&mut Serializer::with_formatter(text, WholeNumbers))
}

struct WholeNumbers;

impl Formatter for WholeNumbers {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        /// From 1e16 on `serde_json` writes an exponent.
        const WHOLE: f64 = 1e15;

        // The cast saturates, and turns NaN into zero.
        let whole = value as u64;
        if whole as f64 == value && value < WHOLE && value.is_sign_positive() {
            writer.write_all(itoa::Buffer::new().format(whole).as_bytes())?;
            writer.write_all(b".0")
        } else {
            CompactFormatter.write_f64(writer, value)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(value: &impl Serialize) -> Vec<u8> {
        let mut text = Vec::new();
        append(&mut text, value).unwrap();
        text
    }

    proptest! {
        #[test]
        fn output_equals_serde_json(
            any in any::<f64>(), amount in -2.0f64..1e17, whole in 0u64..1 << 60, string in ".*"
        ) {
            let value = (any, amount, whole as f64, -(whole as f64), amount.trunc(), string);
            prop_assert_eq!(text(&value), serde_json::to_vec(&value).unwrap());
        }
    }

    #[test]
    fn edge_cases_equal_serde_json() {
        for value in [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1e15,
            1e15 - 1.0,
            1e16,
            f64::NAN,
            f64::INFINITY,
        ] {
            assert_eq!(text(&value), serde_json::to_vec(&value).unwrap());
        }
    }
}
