//! Whole numbers, however they are written: to JSON Schema `1.0` is an integer as `1` is (2020-12, section 4.2.2), and many languages write
//! all of their numbers with a point.

use std::fmt;

use serde::{Deserializer, de};

/// Up to here, 2⁴⁹, a whole number with a point and a zero behind it is read as what it is. `serde_json` reads the digits as one number, and
/// may be wrong in the last place where that is beyond 2⁵³.
const EXACT: f64 = 562_949_953_421_312.0;

/// Reads a whole number that is not negative.
pub(crate) fn unsigned<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer
        .deserialize_u64(Whole)?
        .try_into()
        .map_err(|_| de::Error::custom("must be a whole number from 0 on"))
}

/// Reads a priority: a whole number of 32 bits.
///
/// # Errors
/// Where it is something else.
pub fn deserialize_priority<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    deserializer
        .deserialize_i64(Whole)?
        .try_into()
        .map_err(|_| de::Error::custom("must be an integer from -2147483648 to 2147483647"))
}

struct Whole;

impl de::Visitor<'_> for Whole {
    type Value = i128;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<i128, E> {
        Ok(number.into())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<i128, E> {
        Ok(number.into())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<i128, E> {
        if number.fract() == 0.0 && number.abs() <= EXACT {
            Ok(number as i128)
        } else {
            Err(E::invalid_type(de::Unexpected::Float(number), &self))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Priority(#[serde(deserialize_with = "deserialize_priority")] i32);

    #[derive(Debug, PartialEq, Deserialize)]
    struct Count(#[serde(deserialize_with = "unsigned")] u64);

    #[test]
    fn reads_whole_numbers_however_they_are_written() {
        for (text, is) in [
            ("7", 7),
            ("7.0", 7),
            ("0.7e1", 7),
            ("-7.0", -7),
            ("-0.0", 0),
            ("-2147483648.0", i32::MIN),
        ] {
            assert_eq!(
                serde_json::from_str::<Priority>(text).unwrap(),
                Priority(is),
                "{text}"
            );
        }
        for (text, is) in [
            ("7", 7),
            ("7.0", 7),
            ("18446744073709551615", u64::MAX),
            ("562949953421312.0", 1 << 49),
        ] {
            assert_eq!(
                serde_json::from_str::<Count>(text).unwrap(),
                Count(is),
                "{text}"
            );
        }
    }

    #[test]
    fn refuses_everything_else() {
        for text in [
            "7.5",
            "1e300",
            "2147483648.0",
            "-2147483649",
            "\"7\"",
            "null",
            "true",
        ] {
            assert!(serde_json::from_str::<Priority>(text).is_err(), "{text}");
        }
        for text in ["7.5", "-1", "-1.0", "562949953421313.0", "\"7\"", "null"] {
            assert!(serde_json::from_str::<Count>(text).is_err(), "{text}");
        }
    }
}
