//! The bound as it lies on the disk: two places that are written in turn, so that a torn write leaves the older one whole.

use doorman_openapi::Moment;

use super::{boot::Boot, checksum::Checksum};

/// Until when leases last, at the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bound {
    /// No lease that a holder was told of is booked for longer, on the clock of `boot`.
    pub(super) ends: Moment,
    /// The longest that a lease was ever booked for, in nanoseconds: what counts when the clock has begun anew.
    pub(super) longest: u64,
    pub(super) boot: Boot,
}

/// The places lie so far apart that no disk writes them as one.
const APART: usize = 4096;

/// The size of the file, which never changes: it is written once, and overwritten in place ever after, so that a full disk does
/// not matter.
pub(super) const FILE_BYTES: usize = 2 * APART;

const MAGIC: [u8; 8] = *b"doorman1";
const PART: usize = 8;
const CHECKED: usize = 6 * PART;
pub(super) const SLOT_BYTES: usize = CHECKED + PART;

/// Where the `number`th writing goes, and what is written there.
pub(super) fn encode(number: u64, bound: &Bound) -> (u64, [u8; SLOT_BYTES]) {
    let Bound {
        ends,
        longest,
        boot,
    } = bound;
    let parts = [
        MAGIC,
        number.to_le_bytes(),
        ends.as_nanos().to_le_bytes(),
        longest.to_le_bytes(),
        ((boot.0 >> 64) as u64).to_le_bytes(),
        (boot.0 as u64).to_le_bytes(),
    ];
    let checksum = Checksum::of(parts.as_flattened()).to_le_bytes();
    let mut slot = [0; SLOT_BYTES];
    for (place, byte) in slot
        .iter_mut()
        .zip(parts.as_flattened().iter().chain(&checksum))
    {
        *place = *byte;
    }
    (number % 2 * APART as u64, slot)
}

/// The newest bound that was written whole, and its number; `None` when there is none.
pub(super) fn newest(file: &[u8]) -> Option<(u64, Bound)> {
    [0, APART]
        .into_iter()
        .filter_map(|at| decode(file.get(at..at + SLOT_BYTES)?))
        .max_by_key(|(number, _)| *number)
}

fn decode(slot: &[u8]) -> Option<(u64, Bound)> {
    let (checked, checksum) = slot.split_at_checked(CHECKED)?;
    if Checksum::of(checked).to_le_bytes() != checksum {
        return None;
    }
    let (parts, _) = checked.as_chunks::<PART>();
    let [magic, number, ends, longest, high, low] = parts else {
        return None;
    };
    let number_of = |part: &[u8; PART]| u64::from_le_bytes(*part);
    (*magic == MAGIC).then(|| {
        let boot = (u128::from(number_of(high)) << 64) | u128::from(number_of(low));
        let bound = Bound {
            ends: Moment::from_nanos(number_of(ends)),
            longest: number_of(longest),
            boot: Boot(boot),
        };
        (number_of(number), bound)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bound() -> impl Strategy<Value = Bound> {
        (any::<u64>(), any::<u64>(), any::<u128>()).prop_map(|(ends, longest, boot)| Bound {
            ends: Moment::from_nanos(ends),
            longest,
            boot: Boot(boot),
        })
    }

    /// Writes the first `bytes` of a slot, as a disk does that loses its power.
    fn write(file: &mut [u8], number: u64, bound: &Bound, bytes: usize) {
        let (at, slot) = encode(number, bound);
        file[at as usize..][..bytes].copy_from_slice(&slot[..bytes]);
    }

    proptest! {
        #[test]
        fn a_torn_write_at_any_byte_leaves_the_bound_before_or_the_new_one(
            bounds in prop::collection::vec(bound(), 1..6), torn in bound()
        ) {
            let mut file = vec![0; FILE_BYTES];
            prop_assert_eq!(newest(&file), None);
            for (number, bound) in (1..).zip(&bounds) {
                write(&mut file, number, bound, SLOT_BYTES);
                prop_assert_eq!(newest(&file), Some((number, *bound)));
            }
            let last = (bounds.len() as u64, bounds[bounds.len() - 1]);
            let next = last.0 + 1;
            let mut written = file.clone();
            write(&mut written, next, &torn, SLOT_BYTES);
            for bytes in 0..=SLOT_BYTES {
                let mut file = file.clone();
                write(&mut file, next, &torn, bytes);
                // The last bytes may happen to be those that stood there.
                let whole = file == written;
                prop_assert_eq!(newest(&file), Some(if whole { (next, torn) } else { last }), "{} bytes", bytes);
            }
        }

        #[test]
        fn what_was_not_written_by_us_is_no_bound(noise in prop::collection::vec(any::<u8>(), 0..FILE_BYTES)) {
            prop_assert_eq!(newest(&noise), None);
        }
    }
}
