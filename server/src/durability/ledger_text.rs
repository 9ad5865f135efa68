//! The text in which a clean stop leaves the ledger to the next master, in a file or over HTTP.
//!
//! One line of JSON each: a header, the resources, and a checksum of all lines before. The text is
//! valid for one reign: the header has the epoch of its writer, and each reign begins a new one.
//! It is written and read in parts, so that neither side has all of it in memory.

use std::io::{self, Write};

use doorman_openapi::{Epoch, Moment};
use serde::{Deserialize, Serialize};

use super::data_dir::Boot;
use doorman_core::{ledger::LearningRecord, ledger::Ledger, ledger::ResourceRecord};

/// 2: holders have runs. A server that does not read them would merge the runs of a client, and one
/// that expects them would keep the leases of clients without runs beside those of their runs. So
/// the other format is not restored, and the leases are learned.
const FORMAT: u32 = 2;
/// The longest line that is read, in bytes. A record of a thousand holders with the longest names
/// and 32 priorities each is shorter.
const MAX_LINE: usize = 1 << 24;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    format: u32,
    pub(super) epoch: Epoch,
    /// The boot whose clock `stopped` was read from.
    boot: String,
    /// The time of the stop, in nanoseconds.
    stopped: u64,
    learning: Option<LearningRecord>,
}

impl Header {
    /// Whether this version of the server reads the text.
    pub(super) fn has_current_format(&self) -> bool {
        self.format == FORMAT
    }
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

    /// Compares the checksum of the last line with that of all lines before.
    fn verify(line: &[u8], hasher: crc32fast::Hasher) -> Result<(), LedgerTextError> {
        let footer: Self = parse(line)?;
        if footer.checksum == Self::new(hasher).checksum {
            Ok(())
        } else {
            let reason = "its checksum does not match".to_owned();
            Err(LedgerTextError::Corrupted(reason))
        }
    }
}

/// Why a text cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerTextError {
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    #[error("it is corrupted: {0}")]
    Corrupted(String),
    #[error("another version of the server wrote it: its format is {0}, not {FORMAT}")]
    OtherFormat(u32),
}

/// Writes the ledger of `epoch` for the next master. All lengths count from `now`, a time of
/// `boot`, however long the writing takes.
///
/// # Errors
/// Those of `out`.
pub(crate) fn write_text(
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
    out.write_all(b"\n")?;
    out.flush()
}

/// When a ledger was written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Written {
    /// When it says, if that was in this boot.
    InBoot(Boot),
    /// At this time at the earliest. Clocks of two machines cannot be compared.
    Since(Moment),
}

/// Reads a text in parts of any size, and restores its ledger. Only [`finish`](Self::finish) tells
/// whether the text is intact: until then, and after an error, the ledger is not to be used.
#[derive(Debug)]
pub(crate) struct LedgerReader {
    /// The epoch whose ledger is wanted.
    last: Option<Epoch>,
    written: Written,
    /// The latest time of the stop.
    now: Moment,
    hasher: crc32fast::Hasher,
    /// The line that has begun. A whole one is the last, unless another follows.
    line: Vec<u8>,
    found: Found,
    /// The end of the latest lease.
    ends: Moment,
}

#[derive(Debug, Clone, Copy)]
enum Found {
    Nothing,
    /// The header of another reign. A later master has granted leases that are not in this text.
    OtherEpoch,
    /// The latest and the earliest time of the stop; the earliest is unknown after a reboot.
    Stopped(Moment, Option<Moment>),
}

impl LedgerReader {
    /// Reads the ledger that the master of epoch `last` hands over. It was requested at
    /// `requested`, from which the leases from a parent count. Those of holders count from
    /// `received`, when the first byte arrived.
    pub(crate) fn of_handover(last: Epoch, requested: Moment, received: Moment) -> Self {
        Self::new(Some(last), Written::Since(requested), received)
    }

    pub(super) fn new(last: Option<Epoch>, written: Written, now: Moment) -> Self {
        Self {
            last,
            written,
            now,
            hasher: crc32fast::Hasher::new(),
            line: Vec::new(),
            found: Found::Nothing,
            ends: Moment::ORIGIN,
        }
    }

    /// Restores what the next part of the text has, into a ledger that was empty at first.
    ///
    /// # Errors
    /// The text is invalid.
    pub(crate) fn push(&mut self, part: &[u8], ledger: &mut Ledger) -> Result<(), LedgerTextError> {
        for piece in part.split_inclusive(|byte| *byte == b'\n') {
            if self.line.ends_with(b"\n") {
                self.hasher.update(&self.line);
                self.take_line(ledger)?;
                self.line.clear();
            }
            if self.line.len().saturating_add(piece.len()) > MAX_LINE {
                let reason = format!("a line exceeds {MAX_LINE} bytes");
                return Err(LedgerTextError::Corrupted(reason));
            }
            self.line.extend_from_slice(piece);
        }
        Ok(())
    }

    /// The end of the latest lease, after the whole text; `None` if it is of another epoch.
    ///
    /// # Errors
    /// The text is incomplete or corrupted.
    pub(crate) fn finish(self) -> Result<Option<Moment>, LedgerTextError> {
        Footer::verify(&self.line, self.hasher)?;
        match self.found {
            Found::Nothing => {
                let reason = "it has no header".to_owned();
                Err(LedgerTextError::Corrupted(reason))
            }
            Found::OtherEpoch => Ok(None),
            Found::Stopped(..) => Ok(Some(self.ends)),
        }
    }

    fn take_line(&mut self, ledger: &mut Ledger) -> Result<(), LedgerTextError> {
        match self.found {
            Found::Nothing => {
                let header = parse(&self.line)?;
                self.found = self.begin(&header, ledger)?;
                Ok(())
            }
            Found::OtherEpoch => Ok(()),
            Found::Stopped(stopped, earliest) => {
                let mut record: ResourceRecord = parse(&self.line)?;
                record.shorten_parent(earliest, stopped);
                ledger.restore(&record, stopped).map_err(|rule| {
                    LedgerTextError::Corrupted(format!("the identifier of a holder {rule}"))
                })?;
                for holder in &record.holders {
                    self.ends = self.ends.max(end(stopped, holder.left()));
                }
                Ok(())
            }
        }
    }

    fn begin(&mut self, header: &Header, ledger: &mut Ledger) -> Result<Found, LedgerTextError> {
        if !header.has_current_format() {
            return Err(LedgerTextError::OtherFormat(header.format));
        }
        if Some(header.epoch) != self.last {
            return Ok(Found::OtherEpoch);
        }
        let now = self.now;
        let (stopped, earliest) = match self.written {
            Written::InBoot(boot) if header.boot == format!("{:032x}", boot.0) => {
                let stopped = Moment::from_nanos(header.stopped).min(now);
                (stopped, Some(stopped))
            }
            Written::InBoot(_) => (now, None),
            Written::Since(earliest) => (now, Some(earliest)),
        };
        if let Some(learning) = header.learning {
            ledger.restore_learning(learning, stopped);
        }
        self.ends = end(stopped, header.learning.map_or(0, |learning| learning.left));
        Ok(Found::Stopped(stopped, earliest))
    }
}

fn end(stopped: Moment, left: u64) -> Moment {
    Moment::from_nanos(stopped.as_nanos().saturating_add(left))
}

/// Compares the checksum of a whole text with that of its lines.
pub(super) fn verify(mut text: impl io::BufRead) -> Result<(), LedgerTextError> {
    let mut hasher = crc32fast::Hasher::new();
    let mut last = Vec::new();
    let mut line = Vec::new();
    while text.read_until(b'\n', &mut line)? > 0 {
        hasher.update(&last);
        std::mem::swap(&mut last, &mut line);
        line.clear();
    }
    Footer::verify(&last, hasher)
}

pub(super) fn parse<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, LedgerTextError> {
    serde_json::from_slice(line).map_err(|error| LedgerTextError::Corrupted(error.to_string()))
}
