//! From when and until when a certificate counts.

use x509_cert::{
    certificate::{CertificateInner, Rfc5280},
    der::{self, Decode as _},
};

/// From when and until when a certificate counts, both included, in Unix seconds (RFC 5280, 4.1.2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: u64,
    pub(super) not_after: u64,
}

/// Where a moment lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Within {
    /// The certificate does not count yet.
    Before,
    /// It counts.
    Valid,
    /// It counts no more.
    Expired,
}

impl Validity {
    /// What a certificate says, in DER.
    pub(super) fn of(certificate: &[u8]) -> der::Result<Self> {
        let certificate = CertificateInner::<Rfc5280>::from_der(certificate)?;
        let validity = certificate.tbs_certificate().validity();
        Ok(Self {
            not_before: validity.not_before.to_unix_duration().as_secs(),
            not_after: validity.not_after.to_unix_duration().as_secs(),
        })
    }

    /// Where a moment lies, in Unix seconds.
    pub(super) fn at(self, now: u64) -> Within {
        if now < self.not_before {
            Within::Before
        } else if now <= self.not_after {
            Within::Valid
        } else {
            Within::Expired
        }
    }
}
