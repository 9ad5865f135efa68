//! The file of the bound: written once, and overwritten in place ever after.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::Path,
};

use super::slot::{self, Bound, FILE_BYTES};
use crate::durability::identity::{IdentityError, file};

const FILE: &str = "bound";

/// What the file said when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// There was none.
    Absent,
    /// Neither of its places was written whole by us.
    Damaged,
    Stored(Bound),
}

/// The open file.
#[derive(Debug)]
pub(super) struct BoundFile {
    file: File,
    next: u64,
}

impl BoundFile {
    /// Opens the file of a data directory, and makes one where there is none that makes sense.
    pub(super) fn open(directory: &Path) -> Result<(Self, Found), IdentityError> {
        let path = directory.join(FILE);
        let (found, next) = match fs::read(&path) {
            Ok(bytes) if bytes.len() == FILE_BYTES => match slot::newest(&bytes) {
                Some((number, bound)) => (Found::Stored(bound), number.saturating_add(1)),
                None => (Found::Damaged, 1),
            },
            Ok(_) => (Found::Damaged, 1),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Found::Absent, 1),
            Err(error) => return Err(file::failed("read", &path)(error)),
        };
        if !matches!(found, Found::Stored(_)) {
            create(directory, &path)?;
        }
        let file = OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(file::failed("open", &path))?;
        Ok((Self { file, next }, found))
    }

    /// The file of a data directory on a disk that takes nothing any more.
    #[cfg(test)]
    pub(super) fn that_takes_nothing(directory: &Path) -> Self {
        let file = File::open(directory.join(FILE)).unwrap();
        Self { file, next: 1 }
    }

    /// Puts a bound in the place of the one before the last; when this returns, it is safe on the disk. Blocks on it.
    pub(super) fn write(&mut self, bound: &Bound) -> io::Result<()> {
        let (at, slot) = slot::encode(self.next, bound);
        self.file.write_all_at(&slot, at)?;
        self.file.sync_data()?;
        self.next = self.next.saturating_add(1);
        Ok(())
    }
}

/// Makes a file that has all the room it will ever need.
fn create(directory: &Path, path: &Path) -> Result<(), IdentityError> {
    let new = path.with_extension("new");
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(&[0; FILE_BYTES])?;
        file.sync_all()
    });
    written.map_err(file::failed("write", &new))?;
    fs::rename(&new, path).map_err(file::failed("replace", path))?;
    file::sync(directory).map_err(file::failed("sync", directory))
}

#[cfg(test)]
mod tests {
    use doorman_openapi::Moment;

    use super::*;
    use crate::durability::boot::Boot;

    fn bound(seconds: f64) -> Bound {
        Bound {
            ends: Moment::ORIGIN.after_seconds(seconds),
            longest: 7,
            boot: Boot(9),
        }
    }

    #[test]
    fn the_last_bound_written_is_found_at_the_next_start_and_the_file_never_grows() {
        let directory = tempfile::tempdir().unwrap();
        let (mut file, found) = BoundFile::open(directory.path()).unwrap();
        assert_eq!(found, Found::Absent);
        for seconds in 1..6 {
            file.write(&bound(f64::from(seconds))).unwrap();
        }
        let size = fs::metadata(directory.path().join(FILE)).unwrap().len();
        assert_eq!(size, FILE_BYTES as u64);
        let (mut file, found) = BoundFile::open(directory.path()).unwrap();
        assert_eq!(found, Found::Stored(bound(5.0)));
        file.write(&bound(6.0)).unwrap();
        let (_, found) = BoundFile::open(directory.path()).unwrap();
        assert_eq!(found, Found::Stored(bound(6.0)));
    }

    #[test]
    fn what_makes_no_sense_is_damaged_and_made_anew() {
        for text in [&b""[..], b"doorman1", &[0; FILE_BYTES], &[255; 20_000]] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join(FILE), text).unwrap();
            let (mut file, found) = BoundFile::open(directory.path()).unwrap();
            assert_eq!(found, Found::Damaged);
            file.write(&bound(1.0)).unwrap();
            let (_, found) = BoundFile::open(directory.path()).unwrap();
            assert_eq!(found, Found::Stored(bound(1.0)));
        }
    }
}
