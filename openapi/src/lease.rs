//! Leases.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{Capacity, InvalidNumber, Seconds};

/// The most by which the rates of two clocks may differ. A server books a lease for its length
/// times this factor.
pub const CLOCK_DRIFT: f64 = 1.05;

/// A bucket of more seconds of its rate is long: it is filled over several leases, and its holder
/// states it.
pub const LONG_BURST: f64 = 10.0;

/// A lease on capacity.
///
/// A holder measures `lease_length` on its own clock from the moment it **sent** the request:
/// neither clock skew nor latency lengthens a lease.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Lease {
    /// The leased capacity, in the unit of the resource.
    pub capacity: Capacity,
    /// The length in seconds, from when the request was sent. 0: no lease.
    pub lease_length: Seconds,
    /// The seconds after which to refresh, from when the request was sent. An earlier refresh is
    /// allowed.
    pub refresh_interval: Seconds,
    /// The expiry in Unix seconds, for people.
    pub expiry_time: u64,
    /// The effective capacity of the resource beside a pause and headers: less than its `limit` while
    /// the target refuses more. Return it unread in `has`: a new master continues there. Only if the template has
    /// `feedback`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<Capacity>,
}

/// The lease that a holder reports. A complete lease may be sent; only these fields are read.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HeldLease {
    /// The capacity that the holder may be using now.
    pub capacity: Capacity,
    /// The `effective` of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<Capacity>,
}

impl From<Capacity> for HeldLease {
    fn from(capacity: Capacity) -> Self {
        Self {
            capacity,
            effective: None,
        }
    }
}

/// The capacity that a holder may use without a lease. On the wire −1 is
/// [`SafeCapacity::Unlimited`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SafeCapacity {
    /// No limit.
    Unlimited,
    /// At most this much; 0 blocks.
    AtMost(Capacity),
}

const UNLIMITED: f64 = -1.0;

impl SafeCapacity {
    /// Converts the number of the wire.
    ///
    /// # Errors
    /// [`InvalidNumber`] unless it is −1 or from 0 to 1e15.
    pub fn new(number: f64) -> Result<Self, InvalidNumber> {
        if number == UNLIMITED {
            Ok(Self::Unlimited)
        } else {
            Capacity::new(number).map(Self::AtMost)
        }
    }

    /// The number of the wire: −1 is unlimited.
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
