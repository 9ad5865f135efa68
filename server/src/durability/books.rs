//! The file in which a server that stops leaves its books to the next.
//!
//! A line of JSON each: who wrote it and when, the resources, and the checksum of all before. It is good for one start: the epoch in
//! it is that of its writer, and whoever starts takes a new one before it answers anybody.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use doorman_openapi::{Epoch, Moment};
use serde::{Deserialize, Serialize};

use super::{boot::Boot, checksum::Checksum};
use crate::{
    durability::identity::file,
    ledger::{LearningRecord, Ledger, ResourceRecord},
};

const FILE: &str = "books.json";
const FORMAT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: u32,
    epoch: Epoch,
    /// The boot whose clock `stopped` was read from.
    boot: String,
    /// When the books were closed, in nanoseconds.
    stopped: u64,
    learning: Option<LearningRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Footer {
    checksum: String,
}

/// Why there are no books to take over although there is a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("it cannot be read")]
    Io(#[from] io::Error),
    #[error("it is damaged: {0}")]
    Damaged(String),
}

/// The path of the file in a data directory.
pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

/// Leaves the books to the next start; when this returns, they are safe on the disk. Blocks on it.
pub(super) fn write(
    directory: &Path,
    core: &Ledger,
    epoch: Epoch,
    boot: Boot,
    now: Moment,
) -> io::Result<()> {
    let path = path(directory);
    let new = path.with_extension("new");
    let header = Header {
        format: FORMAT,
        epoch,
        boot: format!("{:032x}", boot.0),
        stopped: now.as_nanos(),
        learning: core.learning_snapshot(now),
    };
    let written = write_lines(&new, &header, core, now).and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        // Half a file is of no use, and may be what fills the disk.
        drop(fs::remove_file(&new));
    }
    written?;
    file::sync(directory)
}

fn write_lines(path: &Path, header: &Header, core: &Ledger, now: Moment) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let mut checksum = Checksum::new();
    let mut line = |text: Vec<u8>| {
        checksum.add(&text);
        checksum.add(b"\n");
        out.write_all(&text)?;
        out.write_all(b"\n")
    };
    line(serde_json::to_vec(header)?)?;
    for record in core.snapshot(now) {
        line(serde_json::to_vec(&record)?)?;
    }
    let footer = Footer {
        checksum: format!("{:016x}", checksum.get()),
    };
    serde_json::to_writer(&mut out, &footer)?;
    out.write_all(b"\n")?;
    out.into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()
}

/// Takes over what the server of epoch `last` left, into a core that has no books yet, and tells when the last of it ends; `None`
/// when it left nothing. The clock of `boot` says `now`.
///
/// # Errors
/// [`Unusable`]; the core may have taken over a part by then.
pub(super) fn read(
    directory: &Path,
    core: &mut Ledger,
    last: Option<Epoch>,
    boot: Boot,
    now: Moment,
) -> Result<Option<Moment>, Unusable> {
    let path = path(directory);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    verify(BufReader::new(file))?;
    let mut lines = BufReader::new(File::open(&path)?).lines();
    let header = lines.next().transpose()?.unwrap_or_default();
    let header: Header = parse(&header)?;
    if header.format != FORMAT {
        return Err(Unusable::Damaged(format!(
            "its format is {}, not {FORMAT}",
            header.format
        )));
    }
    if Some(header.epoch) != last {
        // A server has started since: what it granted is not in these books.
        return Ok(None);
    }
    // After another boot the clock does not say how long ago that was: what is left then counts from now.
    let stopped = if header.boot == format!("{:032x}", boot.0) {
        Moment::from_nanos(header.stopped).min(now)
    } else {
        now
    };
    if let Some(learning) = header.learning {
        core.restore_learning(learning, stopped);
    }
    let left = header.learning.map_or(0, |learning| learning.left);
    let mut ends = Moment::from_nanos(stopped.as_nanos().saturating_add(left));
    let mut lines = lines.peekable();
    while let Some(line) = lines.next() {
        // The last one is the checksum.
        if lines.peek().is_none() {
            break;
        }
        let record: ResourceRecord = parse(&line?)?;
        core.restore(&record, stopped)
            .map_err(|rule| Unusable::Damaged(format!("a holder's identifier {rule}")))?;
        for holder in &record.holders {
            let end = stopped.as_nanos().saturating_add(holder.left());
            ends = ends.max(Moment::from_nanos(end));
        }
    }
    Ok(Some(ends))
}

/// Whether the file is as it was written.
fn verify(mut file: impl BufRead) -> Result<(), Unusable> {
    let mut checksum = Checksum::new();
    let mut line = Vec::new();
    let mut before = None;
    loop {
        if file.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if let Some(before) = before.replace(std::mem::take(&mut line)) {
            checksum.add(&before);
        }
    }
    let footer = String::from_utf8(before.unwrap_or_default()).unwrap_or_default();
    let footer: Footer = parse(&footer)?;
    if footer.checksum == format!("{:016x}", checksum.get()) {
        Ok(())
    } else {
        Err(Unusable::Damaged("its checksum does not fit".to_owned()))
    }
}

fn parse<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T, Unusable> {
    serde_json::from_str(line).map_err(|error| Unusable::Damaged(error.to_string()))
}

/// No later start takes them over.
pub(super) fn forget(directory: &Path) -> io::Result<()> {
    match fs::remove_file(path(directory)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
