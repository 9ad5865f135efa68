//! Validated numbers: amounts, durations, counters.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

/// The number is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be {0}")]
pub struct InvalidNumber(&'static str);

impl Capacity {
    /// Zero.
    pub const ZERO: Self = Self(0.0);
    /// The largest amount.
    pub const MAX: Self = Self(1e15);

    /// The larger of two amounts.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
}

impl Seconds {
    /// Zero.
    pub const ZERO: Self = Self(0.0);
    /// The longest duration: a year.
    pub const MAX: Self = Self(31_536_000.0);

    /// So many whole seconds.
    #[must_use]
    pub const fn from_whole(seconds: u16) -> Self {
        Self(seconds as f64)
    }
}

impl Probability {
    /// Certainty.
    pub const ONE: Self = Self(1.0);
}

macro_rules! checked_float {
    ($(#[$meta:meta])* $name:ident, $min:expr, $max:expr, $rule:literal) => {
        #[derive(Clone, Copy, PartialEq, PartialOrd, Serialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        $(#[$meta])*
        #[serde(transparent)]
        pub struct $name(f64);

        impl $name {
            /// Validates a number. Negative zero becomes zero.
            ///
            /// # Errors
            /// [`InvalidNumber`] if it is NaN or out of range.
            pub fn new(number: f64) -> Result<Self, InvalidNumber> {
                // NaN is in no range. Adding zero turns -0 into 0.
                if ($min..=$max).contains(&number) {
                    Ok(Self(number + 0.0))
                } else {
                    Err(InvalidNumber($rule))
                }
            }

            /// The nearest valid number; NaN becomes zero.
            #[must_use]
            pub fn saturating(number: f64) -> Self {
                if number.is_nan() {
                    Self(0.0)
                } else {
                    Self(number.clamp($min, $max) + 0.0)
                }
            }

            /// The number.
            #[must_use]
            pub fn get(self) -> f64 {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(f64::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }
    };
}

checked_float!(
    /// An amount of a resource, in its unit. From 0 to 1e15.
    #[derive(Default)]
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = 0.0, maximum = 1e15, example = 40.0))]
    Capacity, 0.0, 1e15, "a number from 0 to 1e15"
);
checked_float!(
    /// A duration in seconds, from 0 to 31,536,000 (a year).
    #[derive(Default)]
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = 0.0, maximum = 31536000.0, example = 60.0))]
    Seconds, 0.0, 31_536_000.0, "a number of seconds from 0 to 31536000"
);
checked_float!(
    /// The tokens in a token bucket; negative after overuse. From −1e15 to 1e15.
    #[derive(Default)]
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = -1e15, maximum = 1e15, example = -8.0))]
    Balance, -1e15, 1e15, "a number from -1e15 to 1e15"
);
checked_float!(
    /// A probability.
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = 0.0, maximum = 1.0, example = 0.25))]
    Probability, 0.0, 1.0, "a number from 0 to 1"
);
checked_float!(
    /// A part of a whole.
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = 0.0, maximum = 1.0, example = 0.1))]
    Fraction, 0.0, 1.0, "a number from 0 to 1"
);

macro_rules! checked_integer {
    ($(#[$meta:meta])* $name:ident, $min:literal, $max:expr, $rule:literal) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        $(#[$meta])*
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Validates a number.
            ///
            /// # Errors
            /// [`InvalidNumber`] if it is out of range.
            pub fn new(number: u64) -> Result<Self, InvalidNumber> {
                if ($min..=$max).contains(&number) {
                    Ok(Self(number))
                } else {
                    Err(InvalidNumber($rule))
                }
            }

            /// The number.
            #[must_use]
            pub fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(deserialize_unsigned(deserializer)?).map_err(de::Error::custom)
            }
        }
    };
}

checked_integer!(
    /// The sequence number of a transmission, from one counter per process of a client: the server
    /// detects late copies by it. An integer below 2⁵³.
    #[cfg_attr(feature = "schema", schema(value_type = u64, minimum = 0, maximum = 9007199254740991i64, example = 1))]
    Seq, 0, (1 << 53) - 1, "an integer from 0 to 9007199254740991"
);
checked_integer!(
    /// One run of a client's process: a random number, drawn when the process starts. It tells
    /// apart processes that use the same `client_id`. An integer below 2⁵³.
    #[cfg_attr(feature = "schema", schema(value_type = u64, minimum = 0, maximum = 9007199254740991i64, example = 3141592653589793i64))]
    Run, 0, (1 << 53) - 1, "an integer from 0 to 9007199254740991"
);
checked_integer!(
    /// The term of a master of a node; it only grows. An integer below 2⁵³.
    #[cfg_attr(feature = "schema", schema(value_type = u64, minimum = 0, maximum = 9007199254740991i64, example = 1795123456))]
    Epoch, 0, (1 << 53) - 1, "an integer from 0 to 9007199254740991"
);
checked_integer!(
    /// The number of clients of a band: an integer from 1 to 1e15.
    #[cfg_attr(feature = "schema", schema(value_type = u64, minimum = 1, maximum = 1000000000000000i64, example = 3))]
    ClientCount, 1, 1_000_000_000_000_000, "an integer from 1 to 1e15"
);

checked_integer!(
    /// A running total of requests. An integer below 2⁵³.
    #[derive(Default)]
    #[cfg_attr(feature = "schema", schema(value_type = u64, minimum = 0, maximum = 9007199254740991i64, example = 1200))]
    RequestCount, 0, (1 << 53) - 1, "an integer from 0 to 9007199254740991"
);

impl RequestCount {
    /// None.
    pub const ZERO: Self = Self(0);

    /// The nearest valid number.
    #[must_use]
    pub fn saturating(number: u64) -> Self {
        Self(number.min((1 << 53) - 1))
    }
}

impl ClientCount {
    /// One client.
    pub const ONE: Self = Self(1);
}

impl Epoch {
    /// Before the first start.
    pub const ZERO: Self = Self(0);
}

impl Run {
    /// The run of these random bits.
    #[must_use]
    pub fn of_bits(random: u64) -> Self {
        Self(random >> 11)
    }
}

impl Seq {
    /// Before the first transmission.
    pub const ZERO: Self = Self(0);

    /// The next number, saturating.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1).min((1 << 53) - 1))
    }
}

/// The shortest period of a rate, in seconds.
const MIN_PERIOD: f64 = 0.001;

/// The most that a bucket holds, in seconds of its rate.
const MAX_BURST: f64 = 86_400.0;

/// 2⁴⁹: up to here `serde_json` parses an integer written with a decimal point exactly.
const EXACT: f64 = 562_949_953_421_312.0;

fn deserialize_unsigned<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer
        .deserialize_u64(Integer)?
        .try_into()
        .map_err(|_| de::Error::custom("must be a whole number from 0 on"))
}

/// Deserializes a priority: an integer of 32 bits, which may be written as `1.0`.
///
/// # Errors
/// Any other value.
pub fn deserialize_priority<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    deserializer
        .deserialize_i64(Integer)?
        .try_into()
        .map_err(|_| de::Error::custom("must be an integer from -2147483648 to 2147483647"))
}

/// Deserializes the period of a rate: from a millisecond to a year.
pub(crate) fn deserialize_period<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Seconds>, D::Error> {
    let period = f64::deserialize(deserializer)?;
    let period = Seconds::new(period)
        .ok()
        .filter(|it| it.get() >= MIN_PERIOD);
    let out_of_range = || de::Error::custom("must be a number of seconds from 0.001 to 31536000");
    period.map(Some).ok_or_else(out_of_range)
}

/// Deserializes how many seconds of its rate a bucket holds: up to a day.
pub(crate) fn deserialize_burst<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Seconds, D::Error> {
    let burst = Seconds::new(f64::deserialize(deserializer)?).ok();
    let burst = burst.filter(|it| it.get() <= MAX_BURST);
    burst.ok_or_else(|| de::Error::custom("must be a number of seconds from 0 to 86400"))
}

/// An integer. JSON Schema counts `1.0` as one (2020-12, section 4.2.2), and many languages write
/// it so.
struct Integer;

impl de::Visitor<'_> for Integer {
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
    use super::*;

    fn check<T>(
        new: fn(f64) -> Result<T, InvalidNumber>,
        saturating: fn(f64) -> T,
        get: fn(T) -> f64,
        [min, max]: [f64; 2],
    ) {
        let new = |number: f64| new(number).ok().map(get);
        for edge in [min, max] {
            assert_eq!(new(edge), Some(edge));
        }
        assert_eq!(new(-0.0).map(f64::is_sign_positive), Some(true));
        for (bad, nearest) in [
            (f64::NAN, 0.0),
            (f64::INFINITY, max),
            (f64::NEG_INFINITY, min),
            (min.next_down(), min),
            (max.next_up(), max),
        ] {
            assert_eq!(new(bad), None, "{bad}");
            assert_eq!(get(saturating(bad)), nearest, "{bad}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_rejected_or_clamped() {
        check(
            Capacity::new,
            Capacity::saturating,
            Capacity::get,
            [0.0, 1e15],
        );
        check(
            Seconds::new,
            Seconds::saturating,
            Seconds::get,
            [0.0, 31_536_000.0],
        );
        check(
            Balance::new,
            Balance::saturating,
            Balance::get,
            [-1e15, 1e15],
        );
        check(
            Probability::new,
            Probability::saturating,
            Probability::get,
            [0.0, 1.0],
        );
        check(
            Fraction::new,
            Fraction::saturating,
            Fraction::get,
            [0.0, 1.0],
        );
        assert_eq!(Capacity::MAX.get(), 1e15);
        assert_eq!(Seconds::MAX.get(), 31_536_000.0);
    }

    #[test]
    fn counters_out_of_range_are_rejected() {
        assert!(serde_json::from_str::<Seq>("9007199254740991").is_ok());
        for bad in ["9007199254740992", "-1", "1.5", "\"1\"", "null"] {
            assert!(serde_json::from_str::<Seq>(bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<ClientCount>("0").is_err());
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Priority(#[serde(deserialize_with = "deserialize_priority")] i32);

    #[derive(Debug, PartialEq, Deserialize)]
    struct Count(#[serde(deserialize_with = "deserialize_unsigned")] u64);

    #[test]
    fn integers_may_have_a_decimal_point() {
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
    fn other_values_are_not_integers() {
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
