//! W3C [Trace Context](https://www.w3.org/TR/trace-context/), version `00`.

use std::{
    fmt,
    num::{NonZeroU64, NonZeroU128},
};

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $number:ty, $bits:ty, $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name($number);

        impl $name {
            /// An id of random bits; zero becomes one.
            #[must_use]
            pub fn from_bits(bits: $bits) -> Self {
                Self(<$number>::new(bits).unwrap_or(<$number>::MIN))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

identifier!(
    /// A trace id: 32 hexadecimal digits, never all zero.
    TraceId, NonZeroU128, u128, "{:032x}"
);
identifier!(
    /// A span id: 16 hexadecimal digits, never all zero.
    SpanId, NonZeroU64, u64, "{:016x}"
);

/// The content of a `traceparent` header.
///
/// ```
/// use doorman_openapi::TraceContext;
///
/// let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let context = TraceContext::parse(header.as_bytes()).ok_or("no trace")?;
/// assert_eq!(context.trace_id.to_string(), "0af7651916cd43dd8448eb211c80319c");
/// assert_eq!(context.to_string(), header);
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The sender's span.
    pub parent_id: SpanId,
    /// Whether the sender may have recorded its span.
    pub sampled: bool,
}

impl TraceContext {
    /// The length of a header of version `00`.
    pub const LENGTH: usize = 55;

    /// Parses a `traceparent`; `None` if it is invalid and must be ignored.
    ///
    /// Of later versions, the fields of version `00` are read (Trace Context, section 3.2.4).
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, rest) = value.split_first_chunk::<{ Self::LENGTH }>()?;
        let [v, w, b'-', ids @ .., b'-', f, g] = known else {
            return None;
        };
        let (trace_id, parent_id) = ids.split_at_checked(32)?;
        let parent_id = parent_id.strip_prefix(b"-")?;
        match (hex(&[*v, *w])?, rest) {
            // `ff` is not a version.
            (0xff, _) => return None,
            (0, []) | (1.., [] | [b'-', ..]) => {}
            (_, _) => return None,
        }
        Some(Self {
            trace_id: TraceId(NonZeroU128::new(hex(trace_id)?)?),
            parent_id: SpanId(NonZeroU64::new(u64::try_from(hex(parent_id)?).ok()?)?),
            // Unknown flags are dropped.
            sampled: hex(&[*f, *g])? & 1 == 1,
        })
    }

    /// A new trace with an unsampled root span.
    #[must_use]
    pub fn root(trace_id: TraceId, span: SpanId) -> Self {
        Self {
            trace_id,
            parent_id: span,
            sampled: false,
        }
    }

    /// The context that a receiver forwards from its own span.
    #[must_use]
    pub fn child(self, span: SpanId) -> Self {
        Self {
            parent_id: span,
            ..self
        }
    }
}

/// The value of a `traceparent`, in version `00`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.sampled);
        write!(f, "00-{}-{}-{flags:02x}", self.trace_id, self.parent_id)
    }
}

/// Parses up to 32 lower-case hexadecimal digits.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit.wrapping_sub(b'0'),
            b'a'..=b'f' => digit.wrapping_sub(b'a').wrapping_add(10),
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const STEP: &str = "b7ad6b7169203331";

    fn parse(text: &str) -> Option<String> {
        TraceContext::parse(text.as_bytes()).map(|it| it.to_string())
    }

    #[test]
    fn valid_headers_are_parsed() {
        for (header, passed_on) in [
            ("00-T-S-01", "00-T-S-01"),
            ("00-T-S-00", "00-T-S-00"),
            // Unknown flags are dropped.
            ("00-T-S-ff", "00-T-S-01"),
            ("00-T-S-02", "00-T-S-00"),
            // Later versions may have more fields.
            ("01-T-S-01", "00-T-S-01"),
            ("cc-T-S-01-what-the-future-brings", "00-T-S-01"),
            ("cc-T-S-01-", "00-T-S-01"),
        ] {
            let filled = |text: &str| text.replace('T', TRACE).replace('S', STEP);
            assert_eq!(parse(&filled(header)), Some(filled(passed_on)), "{header}");
        }
    }

    #[test]
    fn invalid_headers_are_rejected() {
        for header in [
            "",
            "00",
            "ff-T-S-01",
            "00-T-S-01-",
            "00-T-S-01-more",
            "cc-T-S-01.more",
            "00-T-S-1",
            "00-T-S",
            "00-T-S-0x",
            "0-T-S-01",
            "00_T-S-01",
            "00-T_S-01",
            "00-T-S_01",
            "00-00000000000000000000000000000000-S-01",
            "00-T-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-S-01",
            "00-T-B7AD6B7169203331-01",
            " 00-T-S-01",
        ] {
            let header = header.replace('T', TRACE).replace('S', STEP);
            assert_eq!(parse(&header), None, "{header:?}");
        }
    }

    proptest! {
        #[test]
        fn written_header_parses_as_equal(trace: u128, step: u64, sampled: bool) {
            let context = TraceContext {
                sampled,
                ..TraceContext::root(TraceId::from_bits(trace), SpanId::from_bits(step))
            };
            let header = context.to_string();
            prop_assert_eq!(header.len(), TraceContext::LENGTH);
            prop_assert_eq!(TraceContext::parse(header.as_bytes()), Some(context));
        }

        #[test]
        fn no_text_panics(text in "(00|01|ff|\\PC{0,3})-?[0-9a-fA-F]{30,34}-[0-9a-f]{15,17}-?[0-9a-f]{0,3}\\PC{0,4}") {
            if let Some(context) = TraceContext::parse(text.as_bytes()) {
                prop_assert!(text.starts_with(|c: char| c.is_ascii_hexdigit()));
                let header = context.to_string();
                prop_assert_eq!(text.get(3..52), header.get(3..52));
            }
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            prop_assert!(TraceContext::parse(&bytes).is_none());
        }
    }
}
