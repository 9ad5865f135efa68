//! Writes answers as JSON: byte for byte what `serde_json` writes, but faster where numbers are whole, as lengths and limits mostly are.

use std::io;

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

/// Writes a value into a buffer that has so much room from the start.
pub(super) fn write<T: Serialize>(value: &T, room: usize) -> serde_json::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(room);
    append(&mut text, value)?;
    Ok(text)
}

/// Writes a value behind what is there.
pub(super) fn append<T: Serialize + ?Sized>(
    text: &mut Vec<u8>,
    value: &T,
) -> serde_json::Result<()> {
    value.serialize(&mut Serializer::with_formatter(text, Brisk))
}

struct Brisk;

impl Formatter for Brisk {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        /// From 1e16 on `serde_json` writes an exponent.
        const WHOLE: f64 = 1e15;

        // A float-to-integer cast saturates, and takes NaN to zero.
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

    proptest! {
        #[test]
        fn writes_what_serde_json_writes(
            any in any::<f64>(), amount in -2.0f64..1e17, whole in 0u64..1 << 60, text in ".*"
        ) {
            let value = (any, amount, whole as f64, -(whole as f64), amount.trunc(), text);
            prop_assert_eq!(write(&value, 0).unwrap(), serde_json::to_vec(&value).unwrap());
        }
    }

    #[test]
    fn writes_the_edges_as_serde_json_does() {
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
            assert_eq!(
                write(&value, 0).unwrap(),
                serde_json::to_vec(&value).unwrap()
            );
        }
    }
}
