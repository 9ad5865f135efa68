//! The lease: so much capacity, for so long.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{Capacity, InvalidNumber, Seconds};

/// How much longer a server keeps a lease in its books than it lasts: any two clocks may differ in their rate by this factor.
pub const CLOCK_DRIFT: f64 = 1.05;

/// A lease on capacity.
///
/// `lease_length` is what counts: a holder counts it on its own clock from the moment it **sent** the request, so that neither a
/// wrong clock nor a slow network lengthens a lease.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Lease {
    /// How much may be used, in the resource's own unit.
    pub capacity: Capacity,
    /// How long it lasts, in seconds from the sending of the request. 0: no lease.
    pub lease_length: Seconds,
    /// When to come back, in seconds from the sending of the request. Coming earlier is allowed.
    pub refresh_interval: Seconds,
    /// The end in Unix seconds, for people; nothing is computed from it.
    pub expiry_time: u64,
}

/// The lease that a holder says it is using. The whole lease may be sent back; only `capacity` is read.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HeldLease {
    /// How much the holder may be using now.
    pub capacity: Capacity,
}

/// What a holder that has lost its lease may use by itself. On the wire −1 stands for [`SafeCapacity::Unlimited`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SafeCapacity {
    /// As much as it likes.
    Unlimited,
    /// At most this much; 0 blocks.
    AtMost(Capacity),
}

const UNLIMITED: f64 = -1.0;

impl SafeCapacity {
    /// Reads the number of the wire and of documents.
    ///
    /// # Errors
    /// [`InvalidNumber`] unless it is −1 or a number from 0 to 1e15.
    pub fn new(number: f64) -> Result<Self, InvalidNumber> {
        if number == UNLIMITED {
            Ok(Self::Unlimited)
        } else {
            Capacity::new(number).map(Self::AtMost)
        }
    }

    /// The number of the wire: −1 when unlimited.
    #[must_use]
    pub fn get(self) -> f64 {
        match self {
            Self::Unlimited => UNLIMITED,
            Self::AtMost(capacity) => capacity.get(),
        }
    }
}

impl Serialize for SafeCapacity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.get())
    }
}

impl<'de> Deserialize<'de> for SafeCapacity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(f64::deserialize(deserializer)?)
            .map_err(|_| de::Error::custom("must be -1 (unlimited) or a number from 0 to 1e15"))
    }
}
