//! Numbers that are checked once: quantities of a resource, durations, counters.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

/// Why a number is refused; says what would be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be {0}")]
pub struct InvalidNumber(&'static str);

/// An amount of a resource, in the resource's own unit (for a rate: per `per` seconds). Finite, from 0 to 1e15.
#[derive(Clone, Copy, PartialEq, PartialOrd, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = f64, minimum = 0.0, maximum = 1e15, example = 40.0))]
#[serde(transparent)]
pub struct Capacity(f64);

impl Capacity {
    /// Nothing.
    pub const ZERO: Self = Self(0.0);
    /// The largest amount that can be spoken of.
    pub const MAX: Self = Self(1e15);

    /// The larger of two amounts.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
}

/// A duration in seconds, which may be fractional. Finite, from 0 to 31,536,000 (a year).
#[derive(Clone, Copy, PartialEq, PartialOrd, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = f64, minimum = 0.0, maximum = 31536000.0, example = 60.0))]
#[serde(transparent)]
pub struct Seconds(f64);

impl Seconds {
    /// No time at all.
    pub const ZERO: Self = Self(0.0);
    /// The longest duration that can be spoken of: a year.
    pub const MAX: Self = Self(31_536_000.0);
}

/// What is left in a token bucket, in tokens; negative when more was taken than there was. Finite, from −1e15 to 1e15.
#[derive(Clone, Copy, PartialEq, PartialOrd, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = f64, minimum = -1e15, maximum = 1e15, example = -8.0))]
#[serde(transparent)]
pub struct Balance(f64);

/// A probability. Finite, from 0 to 1.
#[derive(Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = f64, minimum = 0.0, maximum = 1.0, example = 0.25))]
#[serde(transparent)]
pub struct Probability(f64);

impl Probability {
    /// Always.
    pub const ONE: Self = Self(1.0);
}

macro_rules! checked_float {
    ($name:ident, $min:expr, $max:expr, $rule:literal) => {
        impl $name {
            /// Checks a number. Negative zero is taken as zero.
            ///
            /// # Errors
            /// [`InvalidNumber`] when it is NaN, or out of range.
            pub fn new(number: f64) -> Result<Self, InvalidNumber> {
                // NaN is in no range; adding zero turns -0 into 0.
                if ($min..=$max).contains(&number) {
                    Ok(Self(number + 0.0))
                } else {
                    Err(InvalidNumber($rule))
                }
            }

            /// The nearest one: what lies outside the range is taken to its edge, NaN to zero.
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

        impl TryFrom<f64> for $name {
            type Error = InvalidNumber;

            fn try_from(number: f64) -> Result<Self, InvalidNumber> {
                Self::new(number)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(f64::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }
    };
}

checked_float!(Capacity, 0.0, 1e15, "a number from 0 to 1e15");
checked_float!(
    Seconds,
    0.0,
    31_536_000.0,
    "a number of seconds from 0 to 31536000"
);
checked_float!(Balance, -1e15, 1e15, "a number from -1e15 to 1e15");
checked_float!(Probability, 0.0, 1.0, "a number from 0 to 1");

/// The number of a transmission: one counter per process run of a client, so that a server can tell a late copy from a new
/// request. An integer below 2⁵³.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = u64, minimum = 0, maximum = 9007199254740991i64, example = 1))]
#[serde(transparent)]
pub struct Seq(u64);

/// Which reign of a node's masters an answer belongs to; it only grows. An integer below 2⁵³.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = u64, minimum = 0, maximum = 9007199254740991i64, example = 1795123456))]
#[serde(transparent)]
pub struct Epoch(u64);

/// How many clients a band of demand stands for: an integer from 1 to 1e15.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = u64, minimum = 1, maximum = 1000000000000000i64, example = 3))]
#[serde(transparent)]
pub struct ClientCount(u64);

impl ClientCount {
    /// One client, standing for itself.
    pub const ONE: Self = Self(1);
}

macro_rules! checked_integer {
    ($name:ident, $min:literal, $max:expr, $rule:literal) => {
        impl $name {
            /// Checks a number.
            ///
            /// # Errors
            /// [`InvalidNumber`] when it is out of range.
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
                Self::new(crate::whole::unsigned(deserializer)?).map_err(de::Error::custom)
            }
        }
    };
}

checked_integer!(
    Seq,
    0,
    (1 << 53) - 1,
    "an integer from 0 to 9007199254740991"
);
checked_integer!(
    Epoch,
    0,
    (1 << 53) - 1,
    "an integer from 0 to 9007199254740991"
);
checked_integer!(
    ClientCount,
    1,
    1_000_000_000_000_000,
    "an integer from 1 to 1e15"
);

impl Seq {
    /// Before the first transmission.
    pub const ZERO: Self = Self(0);

    /// The next number; the last one stays the last (a process would need 285 years at a million a second).
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1).min((1 << 53) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a type by the edges of its range, and by numbers just outside of it.
    fn check<T: TryFrom<f64>>(saturating: fn(f64) -> T, get: fn(T) -> f64, [min, max]: [f64; 2]) {
        let new = |number: f64| T::try_from(number).ok().map(get);
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
    fn refuses_what_is_out_of_range_or_takes_the_nearest() {
        check(Capacity::saturating, Capacity::get, [0.0, 1e15]);
        check(Seconds::saturating, Seconds::get, [0.0, 31_536_000.0]);
        check(Balance::saturating, Balance::get, [-1e15, 1e15]);
        check(Probability::saturating, Probability::get, [0.0, 1.0]);
        assert_eq!(Capacity::MAX.get(), 1e15);
        assert_eq!(Seconds::MAX.get(), 31_536_000.0);
    }

    #[test]
    fn refuses_counters_out_of_range() {
        assert!(serde_json::from_str::<Seq>("9007199254740991").is_ok());
        for bad in ["9007199254740992", "-1", "1.5", "\"1\"", "null"] {
            assert!(serde_json::from_str::<Seq>(bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<ClientCount>("0").is_err());
    }
}
