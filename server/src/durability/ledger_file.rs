//! The ledger of a clean stop in the data directory, for the next start.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter},
    path::{Path, PathBuf},
};

use doorman_openapi::{Epoch, Moment};

use super::{
    data_dir::{self, Boot},
    ledger_text::{self, Header, LedgerReader, LedgerTextError, Written},
};
use doorman_core::ledger::Ledger;

const FILE: &str = "ledger.json";

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

fn write_file(
    path: &Path,
    ledger: &Ledger,
    epoch: Epoch,
    boot: Boot,
    now: Moment,
) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    ledger_text::write_text(ledger, epoch, boot, now, &mut out)?;
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
    // A start must not fail on what a damaged disk made of a record.
    ledger_text::verify(BufReader::new(file))?;
    let mut text = BufReader::new(File::open(&path)?);
    let mut reader = LedgerReader::new(last, Written::InBoot(boot), now);
    loop {
        let part = text.fill_buf()?;
        if part.is_empty() {
            return reader.finish();
        }
        reader.push(part, ledger)?;
        let read = part.len();
        text.consume(read);
    }
}

/// The epoch of an intact file that this version of the server reads.
pub(super) fn epoch(directory: &Path) -> Option<Epoch> {
    let path = path(directory);
    ledger_text::verify(BufReader::new(File::open(&path).ok()?)).ok()?;
    let mut first = Vec::new();
    let mut file = BufReader::new(File::open(&path).ok()?);
    file.read_until(b'\n', &mut first).ok()?;
    let header: Header = ledger_text::parse(&first).ok()?;
    header.has_current_format().then_some(header.epoch)
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
    use doorman_core::{ledger::Predecessor, ledger::Settings, ledger::UnmatchedPolicy};

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
            ledger.refresh(&request.clone().into(), NOW);
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

    /// The file of [`written`] by a version of the server with another format.
    fn written_in_format(format: u32) -> tempfile::TempDir {
        let directory = written();
        let path = path(directory.path());
        let text = fs::read_to_string(&path).unwrap();
        let (lines, _) = text.trim_end().rsplit_once('\n').unwrap();
        let lines = lines.replacen("{\"format\":2,", &format!("{{\"format\":{format},"), 1) + "\n";
        let checksum = crc32fast::hash(lines.as_bytes());
        let text = format!("{lines}{{\"checksum\":\"{checksum:08x}\"}}\n");
        fs::write(&path, text).unwrap();
        directory
    }

    /// Without runs, or with more than this version knows, it would merge or double leases.
    #[test]
    fn file_of_another_format_is_not_restored() {
        assert_eq!(super::epoch(written_in_format(2).path()), Some(epoch(7)));
        for format in [1, 3] {
            let directory = written_in_format(format);
            let mut next = ledger(NOW);
            let error = read(directory.path(), &mut next, Some(epoch(7)), HERE, NOW).unwrap_err();
            let reason = format!("its format is {format}, not 2");
            assert!(error.to_string().contains(&reason), "{error}");
            assert_eq!(next.stats().leases, 0);
            assert_eq!(super::epoch(directory.path()), None);
            // The same text over HTTP.
            let text = fs::read(path(directory.path())).unwrap();
            let mut reader = LedgerReader::of_handover(epoch(7), NOW, NOW);
            let error = reader.push(&text, &mut next).unwrap_err();
            assert!(matches!(error, LedgerTextError::OtherFormat(_)), "{error}");
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
    fn text_is_read_in_parts_of_any_size() {
        let directory = written();
        let text = fs::read(path(directory.path())).unwrap();
        let received = NOW.after_seconds(1000.0);
        for size in [1, 7, text.len() - 1, text.len()] {
            let mut next = ledger(received);
            let mut reader = LedgerReader::of_handover(epoch(7), NOW, received);
            for part in text.chunks(size) {
                reader.push(part, &mut next).unwrap();
            }
            assert_eq!(reader.finish().unwrap(), Some(received.after_seconds(63.0)));
            assert_eq!(
                (has(&next, received), next.stats().leases),
                (Some(400.0), 2)
            );
        }
    }

    #[test]
    fn endless_line_is_rejected() {
        let mut next = ledger(NOW);
        let mut reader = LedgerReader::of_handover(epoch(7), NOW, NOW);
        let part = vec![b' '; 1 << 20];
        let pushed = (0..17).map(|_| reader.push(&part, &mut next));
        let error = pushed.last().unwrap().unwrap_err();
        assert!(error.to_string().contains("exceeds"), "{error}");
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
