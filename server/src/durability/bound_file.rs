//! The file of the durable bound.
//!
//! The file has two slots, written in turn: a torn write leaves the older one intact. It never
//! changes its size, so a full disk does not stop it.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use doorman_openapi::Moment;

use super::data_dir::{self, Boot, DataDirError, io_error};

const FILE: &str = "bound";

/// Distance of the slots: no disk writes both as one.
const SLOT_DISTANCE: usize = 4096;
const FILE_BYTES: usize = 2 * SLOT_DISTANCE;

const MAGIC: [u8; FIELD] = *b"doorman1";
const FIELD: usize = 8;
const FIELDS: usize = 6;
const CHECKED_BYTES: usize = FIELDS * FIELD;
const SLOT_BYTES: usize = CHECKED_BYTES + size_of::<u32>();

/// The content of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredBound {
    /// No reported lease is booked for longer, on the clock of `boot`.
    pub(crate) ends: Moment,
    /// The longest booking of any lease, in nanoseconds. It applies after another boot.
    pub(crate) longest: u64,
    pub(crate) boot: Boot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BoundOnDisk {
    Missing,
    Corrupted,
    Valid(StoredBound),
}

#[derive(Debug)]
pub(super) struct BoundFile {
    file: File,
    next: u64,
}

impl BoundFile {
    /// Opens the file of a data directory; a missing or corrupted one is created.
    pub(super) fn open(directory: &Path) -> Result<(Self, BoundOnDisk), DataDirError> {
        let path = directory.join(FILE);
        let (content, next) = match fs::read(&path) {
            Ok(bytes) => match newest(&bytes).filter(|_| bytes.len() == FILE_BYTES) {
                Some((number, bound)) => (BoundOnDisk::Valid(bound), number.saturating_add(1)),
                None => (BoundOnDisk::Corrupted, 1),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => (BoundOnDisk::Missing, 1),
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        if !matches!(content, BoundOnDisk::Valid(_)) {
            data_dir::replace(&path, &[0; FILE_BYTES])?;
        }
        let file = OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(io_error("open", &path))?;
        Ok((Self { file, next }, content))
    }

    #[cfg(test)]
    pub(super) fn read_only(directory: &Path) -> Self {
        let file = File::open(directory.join(FILE)).unwrap();
        Self { file, next: 1 }
    }

    /// Overwrites the older slot; the bound is on the disk when this returns.
    pub(super) fn write(&mut self, bound: &StoredBound) -> io::Result<()> {
        let (offset, slot) = encode(self.next, bound);
        self.file.write_all_at(&slot, offset)?;
        self.file.sync_data()?;
        self.next = self.next.saturating_add(1);
        Ok(())
    }
}

/// Removes the file of a data directory.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    fs::remove_file(directory.join(FILE))
}

/// The offset and the content of the slot of the `number`th write.
fn encode(number: u64, bound: &StoredBound) -> (u64, [u8; SLOT_BYTES]) {
    let StoredBound {
        ends,
        longest,
        boot,
    } = bound;
    let fields: [[u8; FIELD]; FIELDS] = [
        MAGIC,
        number.to_le_bytes(),
        ends.as_nanos().to_le_bytes(),
        longest.to_le_bytes(),
        ((boot.0 >> 64) as u64).to_le_bytes(),
        (boot.0 as u64).to_le_bytes(),
    ];
    let mut slot = [0; SLOT_BYTES];
    let (checked, checksum) = slot.split_at_mut(CHECKED_BYTES);
    checked.copy_from_slice(fields.as_flattened());
    checksum.copy_from_slice(&crc32fast::hash(checked).to_le_bytes());
    (number % 2 * SLOT_DISTANCE as u64, slot)
}

/// The newest intact slot with its number.
fn newest(file: &[u8]) -> Option<(u64, StoredBound)> {
    [0, SLOT_DISTANCE]
        .into_iter()
        .filter_map(|at| decode(file.get(at..at + SLOT_BYTES)?))
        .max_by_key(|(number, _)| *number)
}

fn decode(slot: &[u8]) -> Option<(u64, StoredBound)> {
    let (checked, checksum) = slot.split_at_checked(CHECKED_BYTES)?;
    if crc32fast::hash(checked).to_le_bytes() != checksum {
        return None;
    }
    let (fields, _) = checked.as_chunks::<FIELD>();
    let [magic, number, ends, longest, high, low] = fields else {
        return None;
    };
    let integer = |field: &[u8; FIELD]| u64::from_le_bytes(*field);
    (*magic == MAGIC).then(|| {
        let boot = (u128::from(integer(high)) << 64) | u128::from(integer(low));
        let bound = StoredBound {
            ends: Moment::from_nanos(integer(ends)),
            longest: integer(longest),
            boot: Boot(boot),
        };
        (integer(number), bound)
    })
}

#[cfg(test)]
impl StoredBound {
    /// The bound in a data directory.
    pub(crate) fn in_dir(directory: &Path) -> Self {
        newest(&fs::read(directory.join(FILE)).unwrap()).unwrap().1
    }

    /// Writes a bound as before a reboot.
    pub(crate) fn write_of_other_boot(directory: &Path, longest: u64) {
        let (mut file, _) = BoundFile::open(directory).unwrap();
        let elsewhere = Self {
            ends: Moment::NEVER,
            longest,
            boot: Boot(1),
        };
        file.write(&elsewhere).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(seconds: f64) -> StoredBound {
        StoredBound {
            ends: Moment::ORIGIN.after_seconds(seconds),
            longest: 7,
            boot: Boot(9),
        }
    }

    #[test]
    fn last_written_bound_is_found_and_the_file_never_grows() {
        let directory = tempfile::tempdir().unwrap();
        let (mut file, content) = BoundFile::open(directory.path()).unwrap();
        assert_eq!(content, BoundOnDisk::Missing);
        for number in 1..6 {
            file.write(&seconds(f64::from(number))).unwrap();
        }
        let size = fs::metadata(directory.path().join(FILE)).unwrap().len();
        assert_eq!(size, FILE_BYTES as u64);
        let (mut file, content) = BoundFile::open(directory.path()).unwrap();
        assert_eq!(content, BoundOnDisk::Valid(seconds(5.0)));
        file.write(&seconds(6.0)).unwrap();
        let (_, content) = BoundFile::open(directory.path()).unwrap();
        assert_eq!(content, BoundOnDisk::Valid(seconds(6.0)));
    }

    #[test]
    fn corrupted_file_is_replaced() {
        for text in [&b""[..], b"doorman1", &[0; FILE_BYTES], &[255; 20_000]] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join(FILE), text).unwrap();
            let (mut file, content) = BoundFile::open(directory.path()).unwrap();
            assert_eq!(content, BoundOnDisk::Corrupted);
            file.write(&seconds(1.0)).unwrap();
            let (_, content) = BoundFile::open(directory.path()).unwrap();
            assert_eq!(content, BoundOnDisk::Valid(seconds(1.0)));
        }
    }

    fn any_bound() -> impl Strategy<Value = StoredBound> {
        (any::<u64>(), any::<u64>(), any::<u128>()).prop_map(|(ends, longest, boot)| StoredBound {
            ends: Moment::from_nanos(ends),
            longest,
            boot: Boot(boot),
        })
    }

    /// Writes the first `bytes` of a slot, as a disk does that loses power.
    fn write(file: &mut [u8], number: u64, bound: &StoredBound, bytes: usize) {
        let (at, slot) = encode(number, bound);
        file[at as usize..][..bytes].copy_from_slice(&slot[..bytes]);
    }

    proptest! {
        #[test]
        fn torn_write_leaves_the_old_bound_or_the_new_one(
            bounds in prop::collection::vec(any_bound(), 1..6), torn in any_bound()
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
                // The missing bytes may equal the old ones.
                let is_whole = file == written;
                let expected = if is_whole { (next, torn) } else { last };
                prop_assert_eq!(newest(&file), Some(expected), "{} bytes", bytes);
            }
        }

        #[test]
        fn noise_is_no_bound(noise in prop::collection::vec(any::<u8>(), 0..FILE_BYTES)) {
            prop_assert_eq!(newest(&noise), None);
        }
    }
}
