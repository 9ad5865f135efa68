//! The text in which a clean stop leaves the ledger to the next master, in a file or over HTTP.
//!
//! One line of JSON each: a header, the resources, and a checksum of all lines before. The text is
//! valid for one reign: the header has the epoch of its writer, and each reign begins a new one.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use doorman_openapi::{Epoch, Moment};
use serde::{Deserialize, Serialize};

use super::data_dir::{self, Boot};
use crate::ledger::{LearningRecord, Ledger, ResourceRecord};

const FILE: &str = "ledger.json";
const FORMAT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: u32,
    epoch: Epoch,
    /// The boot whose clock `stopped` was read from.
    boot: String,
    /// The time of the stop, in nanoseconds.
    stopped: u64,
    learning: Option<LearningRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Footer {
    checksum: String,
}

impl Footer {
    fn new(hasher: crc32fast::Hasher) -> Self {
        Self {
            checksum: format!("{:08x}", hasher.finalize()),
        }
    }
}

/// Why a text cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerTextError {
    #[error("cannot read it")]
    Io(#[from] io::Error),
    #[error("it is corrupted: {0}")]
    Corrupted(String),
}

pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

/// Writes the ledger; it is on the disk when this returns.
pub(super) fn write(
    directory: &Path,
    ledger: &Ledger,
    epoch: Epoch,
    boot: Boot,
    now: Moment,
) -> io::Result<()> {
    let path = path(directory);
    let new = path.with_extension("new");
    let written = write_file(&new, ledger, epoch, boot, now).and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        // The disk may be full because of the partial file.
        drop(fs::remove_file(&new));
    }
    written?;
    data_dir::sync_dir(directory)
}

/// Writes the ledger of `epoch` for the next master.
pub(crate) fn write_text(
    ledger: &Ledger,
    epoch: Epoch,
    now: Moment,
    out: impl Write,
) -> io::Result<()> {
    write_lines(ledger, epoch, Boot::current(), now, out)
}

fn write_lines(
    ledger: &Ledger,
    epoch: Epoch,
    boot: Boot,
    now: Moment,
    mut out: impl Write,
) -> io::Result<()> {
    let header = Header {
        format: FORMAT,
        epoch,
        boot: format!("{:032x}", boot.0),
        stopped: now.as_nanos(),
        learning: ledger.learning_snapshot(now),
    };
    let mut hasher = crc32fast::Hasher::new();
    let mut line = |mut text: Vec<u8>| {
        text.push(b'\n');
        hasher.update(&text);
        out.write_all(&text)
    };
    line(serde_json::to_vec(&header)?)?;
    for record in ledger.snapshot(now) {
        line(serde_json::to_vec(&record)?)?;
    }
    serde_json::to_writer(&mut out, &Footer::new(hasher))?;
    out.write_all(b"\n")
}

fn write_file(
    path: &Path,
    ledger: &Ledger,
    epoch: Epoch,
    boot: Boot,
    now: Moment,
) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    write_lines(ledger, epoch, boot, now, &mut out)?;
    out.into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()
}

/// Restores the ledger that the server of epoch `last` wrote into an empty one; after an error
/// in part. Returns the end of its latest lease; `None` without such a file. `now` was read from
/// the clock of `boot`.
pub(super) fn read(
    directory: &Path,
    ledger: &mut Ledger,
    last: Option<Epoch>,
    boot: Boot,
    now: Moment,
) -> Result<Option<Moment>, LedgerTextError> {
    let path = path(directory);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    verify(BufReader::new(file))?;
    let text = BufReader::new(File::open(&path)?);
    restore(text, ledger, last, Written::InBoot(boot), now)
}

/// The epoch of an intact file.
pub(super) fn epoch(directory: &Path) -> Option<Epoch> {
    let path = path(directory);
    verify(BufReader::new(File::open(&path).ok()?)).ok()?;
    let first = BufReader::new(File::open(&path).ok()?).lines().next()?;
    parse::<Header>(&first.ok()?)
        .ok()
        .map(|header| header.epoch)
}

/// Restores the ledger that the master of epoch `last` has handed over into an empty one; after an
/// error in part. It was requested at `requested`, and the lengths of its leases count from
/// `received`.
pub(crate) fn restore_text(
    text: &[u8],
    ledger: &mut Ledger,
    last: Epoch,
    requested: Moment,
    received: Moment,
) -> Result<(), LedgerTextError> {
    verify(text)?;
    let written = Written::Since(requested);
    match restore(text, ledger, Some(last), written, received)? {
        Some(_) => Ok(()),
        None => Err(LedgerTextError::Corrupted(
            "its epoch is another".to_owned(),
        )),
    }
}

/// When a ledger was written.
#[derive(Debug, Clone, Copy)]
enum Written {
    /// When it says, if that was in this boot.
    InBoot(Boot),
    /// At this time at the earliest. Clocks of two machines cannot be compared.
    Since(Moment),
}

fn restore(
    text: impl BufRead,
    ledger: &mut Ledger,
    last: Option<Epoch>,
    written: Written,
    now: Moment,
) -> Result<Option<Moment>, LedgerTextError> {
    let mut lines = text.lines();
    let header: Header = parse(&lines.next().transpose()?.unwrap_or_default())?;
    if header.format != FORMAT {
        let reason = format!("its format is {}, not {FORMAT}", header.format);
        return Err(LedgerTextError::Corrupted(reason));
    }
    if Some(header.epoch) != last {
        // A later master has granted leases that are not in this text.
        return Ok(None);
    }
    // The latest and the earliest time of the stop.
    let (stopped, earliest) = match written {
        Written::InBoot(boot) if header.boot == format!("{:032x}", boot.0) => {
            let stopped = Moment::from_nanos(header.stopped).min(now);
            (stopped, Some(stopped))
        }
        Written::InBoot(_) => (now, None),
        Written::Since(earliest) => (now, Some(earliest)),
    };
    let end = |left: u64| Moment::from_nanos(stopped.as_nanos().saturating_add(left));
    if let Some(learning) = header.learning {
        ledger.restore_learning(learning, stopped);
    }
    let mut ends = end(header.learning.map_or(0, |learning| learning.left));
    let mut lines = lines.peekable();
    while let Some(line) = lines.next() {
        if lines.peek().is_none() {
            // The footer.
            break;
        }
        let mut record: ResourceRecord = parse(&line?)?;
        record.shorten_parent(earliest, stopped);
        ledger.restore(&record, stopped).map_err(|rule| {
            LedgerTextError::Corrupted(format!("the identifier of a holder {rule}"))
        })?;
        for holder in &record.holders {
            ends = ends.max(end(holder.left()));
        }
    }
    Ok(Some(ends))
}

fn verify(mut file: impl BufRead) -> Result<(), LedgerTextError> {
    let mut hasher = crc32fast::Hasher::new();
    let mut last = Vec::new();
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line)? > 0 {
        hasher.update(&last);
        last = std::mem::take(&mut line);
    }
    let footer: Footer = parse(&String::from_utf8_lossy(&last))?;
    if footer.checksum == Footer::new(hasher).checksum {
        Ok(())
    } else {
        let reason = "its checksum does not match".to_owned();
        Err(LedgerTextError::Corrupted(reason))
    }
}

fn parse<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T, LedgerTextError> {
    serde_json::from_str(line).map_err(|error| LedgerTextError::Corrupted(error.to_string()))
}

pub(super) fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_file(path(directory)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use doorman_config::Document;
    use doorman_openapi::{CapacityRequest, ResourceId};

    use super::*;
    use crate::ledger::{Predecessor, Settings, UnmatchedPolicy};

    const NOW: Moment = Moment::from_nanos(5_000_000_000_000);
    const HERE: Boot = Boot(1);

    fn ledger(now: Moment) -> Ledger {
        let settings = Settings {
            max_leases: 10,
            unmatched: UnmatchedPolicy::Grant,
            predecessor: Predecessor::None,
            epoch: Epoch::ZERO,
        };
        Ledger::new(Arc::new(Document::built_in()), settings, now)
    }

    fn epoch(number: u64) -> Epoch {
        Epoch::new(number).unwrap()
    }

    /// A ledger with one lease of `db` on 400 of 1000, booked for 63 s, and one of `cache`.
    fn written() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let mut ledger = ledger(NOW);
        for resource in ["db", "cache"] {
            let request = format!(
                r#"{{"client_id":"c","seq":1,"resources":[{{"resource_id":"{resource}","wants":400}}]}}"#
            );
            let request: CapacityRequest = serde_json::from_str(&request).unwrap();
            ledger.refresh_client(&request, NOW);
        }
        write(directory.path(), &ledger, epoch(7), HERE, NOW).unwrap();
        directory
    }

    fn has(ledger: &Ledger, now: Moment) -> Option<f64> {
        ledger
            .resource(&ResourceId::new("db").unwrap(), now)
            .map(|view| view.sum_has)
    }

    #[test]
    fn next_start_restores_all_leases() {
        let directory = written();
        let now = NOW.after_seconds(3.0);
        let mut next = ledger(now);
        let ends = read(directory.path(), &mut next, Some(epoch(7)), HERE, now).unwrap();
        assert_eq!(ends, Some(NOW.after_seconds(63.0)));
        assert_eq!((has(&next, now), next.stats().leases), (Some(400.0), 2));
    }

    #[test]
    fn remaining_time_counts_from_the_start_after_another_boot() {
        let directory = written();
        let now = Moment::ORIGIN.after_seconds(9.0);
        let mut next = ledger(now);
        let ends = read(directory.path(), &mut next, Some(epoch(7)), Boot(2), now).unwrap();
        assert_eq!(ends, Some(now.after_seconds(63.0)));
        assert_eq!(has(&next, now), Some(400.0));
    }

    #[test]
    fn file_of_another_epoch_is_ignored() {
        let directory = written();
        for last in [None, Some(epoch(6)), Some(epoch(8))] {
            let mut next = ledger(NOW);
            let ends = read(directory.path(), &mut next, last, HERE, NOW).unwrap();
            assert_eq!(ends, None);
            assert_eq!(next.stats().leases, 0);
        }
    }

    #[test]
    fn removed_file_is_not_restored() {
        let directory = written();
        for _ in 0..2 {
            remove(directory.path()).unwrap();
            let mut next = ledger(NOW);
            let ends = read(directory.path(), &mut next, Some(epoch(7)), HERE, NOW);
            assert_eq!(ends.unwrap(), None);
        }
    }

    #[test]
    fn every_flipped_bit_and_truncation_is_detected() {
        let directory = written();
        let path = path(directory.path());
        let whole = fs::read(&path).unwrap();
        let check = |text: &[u8]| {
            fs::write(&path, text).unwrap();
            let mut next = ledger(NOW);
            let restored = read(directory.path(), &mut next, Some(epoch(7)), HERE, NOW);
            let is_corrupted = matches!(restored, Err(LedgerTextError::Corrupted(_)));
            assert!(is_corrupted, "{restored:?}");
        };
        // Without the final line break nothing is missing.
        for length in 0..whole.len() - 1 {
            check(&whole[..length]);
        }
        for at in 0..whole.len() - 1 {
            let mut text = whole.clone();
            text[at] ^= 1;
            check(&text);
        }
    }
}
