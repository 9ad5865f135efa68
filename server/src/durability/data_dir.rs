//! Files of the data directory: lock, atomic replacement, errors.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::OnceLock,
    thread,
    time::Duration,
};

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// A file or directory cannot be read or written.
    #[error("cannot {action} {} in the data directory", path.display())]
    Io {
        /// The failed action, a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is a file.
    #[error("--data-dir {} is a file, not a directory", path.display())]
    NoDirectory {
        /// The file.
        path: PathBuf,
    },
    /// Another server uses it.
    #[error(
        "data directory {} is in use by another server: give each its own with --data-dir",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// A file is invalid.
    #[error(
        "{} is corrupted ({reason}): restore it from a backup; or delete it once all leases of \
         this server have expired, and the server starts as a new node",
        path.display()
    )]
    Corrupted {
        /// The file.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
}

/// How often, and how far apart, a lock that another server holds is tried again.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Keeps other servers from a data directory until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct DataDirLock(#[expect(dead_code, reason = "held, not read")] File);

impl DataDirLock {
    pub(super) fn acquire(directory: &Path) -> Result<Self, DataDirError> {
        let path = directory.join("lock");
        // The file is never removed: a new file of the same name would be another lock.
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(io_error("open", &path))?;
        let mut locked = file.try_lock();
        for _ in 0..LOCK_ATTEMPTS {
            if !matches!(locked, Err(TryLockError::WouldBlock)) {
                break;
            }
            // A server that was dropped in this process keeps the lock until its last write ends.
            thread::sleep(LOCK_PAUSE);
            locked = file.try_lock();
        }
        match locked {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(DataDirError::InUse {
                path: directory.to_owned(),
            }),
            Err(TryLockError::Error(error)) => Err(io_error("lock", &path)(error)),
        }
    }
}

pub(crate) fn create_dir(path: &Path) -> Result<(), DataDirError> {
    if path.exists() && !path.is_dir() {
        let path = path.to_owned();
        return Err(DataDirError::NoDirectory { path });
    }
    // The files contain client names and limits, so only the owner may read them.
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(path).map_err(io_error("create", path))
}

/// Replaces a file atomically; the content is on the disk when this returns.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), DataDirError> {
    let new = path.with_extension("new");
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    written.map_err(io_error("write", &new))?;
    fs::rename(&new, path).map_err(io_error("replace", path))?;
    let directory = path.parent().unwrap_or(Path::new("."));
    sync_dir(directory).map_err(io_error("sync", directory))
}

/// Writes the names in a directory to the disk: syncing a file does not.
pub(super) fn sync_dir(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Adds the failed action to an IO error.
pub(super) fn io_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> DataDirError {
    move |source| DataDirError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

/// The clock that a reading belongs to: each boot starts it anew, and a time namespace shifts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Boot(pub(super) u128);

impl Boot {
    /// That of this process; a random one where the system does not name it, so that no reading of
    /// an earlier start is compared with this clock.
    pub(crate) fn current() -> Self {
        static BOOT: OnceLock<Boot> = OnceLock::new();
        *BOOT.get_or_init(|| {
            Self::of_process().unwrap_or_else(|error| {
                tracing::warn!(
                    %error,
                    "cannot identify the boot and time namespace of the clock; after a crash the \
                     next start learns for the longest lease"
                );
                Self(fastrand::u128(..))
            })
        })
    }

    fn of_process() -> io::Result<Self> {
        let path = Path::new("/proc/sys/kernel/random/boot_id");
        let boot = fs::read_to_string(path).map_err(at(path))?;
        let shift = clock_shift(Path::new("/proc/self"))?;
        let boot = Self::parse(&boot).ok_or_else(|| at(path)(io::ErrorKind::InvalidData.into()))?;
        Ok(boot.shifted(shift))
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.trim().replace('-', "");
        u128::from_str_radix(&digits, 16).ok().map(Self)
    }

    /// In a time namespace whose clock is so many nanoseconds ahead of the machine's.
    fn shifted(self, nanos: i128) -> Self {
        Self(self.0 ^ nanos.cast_unsigned())
    }
}

/// Offset of the boot-time clock in a process's time namespace, in nanoseconds. An error if that
/// cannot be known. `process` is its directory in `/proc`.
fn clock_shift(process: &Path) -> io::Result<i128> {
    let namespace = |name| {
        let path = process.join("ns").join(name);
        fs::read_link(&path).map_err(at(&path))
    };
    let own = match namespace("time") {
        // A kernel without time namespaces, but with others.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return namespace("pid").map(|_| 0);
        }
        own => own?,
    };
    // The offsets are those of the children.
    if namespace("time_for_children")? != own {
        return Err(io::Error::other("children have another time namespace"));
    }
    let path = process.join("timens_offsets");
    let offsets = fs::read_to_string(&path).map_err(at(&path))?;
    boottime_offset(&offsets).ok_or_else(|| at(&path)(io::ErrorKind::InvalidData.into()))
}

/// In nanoseconds.
fn boottime_offset(offsets: &str) -> Option<i128> {
    let fields = offsets.lines().find_map(|it| it.strip_prefix("boottime"))?;
    let mut fields = fields.split_whitespace();
    let seconds: i64 = fields.next()?.parse().ok()?;
    let nanos: i64 = fields.next()?.parse().ok()?;
    Some(i128::from(seconds) * 1_000_000_000 + i128::from(nanos))
}

/// Adds the file to an IO error.
fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn boot_id_is_parsed() {
        assert_eq!(
            Boot::parse("e576988e-cf3b-4712-8d52-65abc43a6ed4\n"),
            Some(Boot(0xe576_988e_cf3b_4712_8d52_65ab_c43a_6ed4))
        );
        assert_eq!(Boot::parse("none"), None);
        if cfg!(target_os = "linux") {
            assert_eq!(Boot::current(), Boot::current());
        }
    }

    /// A directory of a process in `/proc`, with these namespaces.
    fn process(own: &str, children: &str, offsets: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let namespaces = directory.path().join("ns");
        fs::create_dir(&namespaces).unwrap();
        for (name, target) in [("time", own), ("time_for_children", children)] {
            symlink(target, namespaces.join(name)).unwrap();
        }
        fs::write(directory.path().join("timens_offsets"), offsets).unwrap();
        directory
    }

    #[test]
    fn time_namespace_shifts_the_clock() {
        let shift = |own, children, offsets| {
            let process = process(own, children, offsets);
            clock_shift(process.path()).ok()
        };
        let none = "monotonic           0         0\nboottime            0         0\n";
        assert_eq!(shift("time:[1]", "time:[1]", none), Some(0));
        let some = "monotonic           7         0\nboottime          -2         5\n";
        assert_eq!(shift("time:[2]", "time:[2]", some), Some(-1_999_999_995));
        // The process moves its children to a namespace of their own.
        assert_eq!(shift("time:[1]", "time:[2]", some), None);
        assert_eq!(shift("time:[1]", "time:[1]", "none"), None);

        let boot = Boot(7);
        assert_eq!(
            boot.shifted(0),
            boot,
            "files of earlier releases stay valid"
        );
        assert_ne!(boot.shifted(100), boot);
        assert_ne!(boot.shifted(100), boot.shifted(-100));
    }

    #[test]
    fn clock_is_unshifted_only_on_a_kernel_without_time_namespaces() {
        let directory = tempfile::tempdir().unwrap();
        assert!(clock_shift(directory.path()).is_err(), "not in /proc");
        fs::create_dir(directory.path().join("ns")).unwrap();
        symlink("pid:[1]", directory.path().join("ns/pid")).unwrap();
        assert_eq!(clock_shift(directory.path()).unwrap(), 0);
    }

    #[test]
    fn error_names_the_file_that_hides_the_clock() {
        let process = process("time:[1]", "time:[1]", "none");
        fs::remove_file(process.path().join("ns/time")).unwrap();
        fs::write(process.path().join("ns/time"), "no link").unwrap();
        let error = clock_shift(process.path()).unwrap_err().to_string();
        assert!(error.contains("/ns/time: "), "{error}");
    }
}
