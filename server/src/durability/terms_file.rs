//! The terms under which leases were granted that may last, in `terms.json`.
//!
//! The next server counts amounts without a unit by them, whatever its own document says. They are
//! on the disk before a lease under new terms is reported.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};

use super::data_dir::{self, DataDirError, io_error};
use doorman_core::{ledger::EarlierTerms, reign::TermsGeneration, reign::earlier_terms};

const FILE: &str = "terms.json";
const FORMAT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    format: u32,
    generations: EarlierTerms,
}

/// Reads the file. Without a usable one nothing is known, and the terms of the document count.
pub(super) fn read(directory: &Path) -> Result<Vec<TermsGeneration>, DataDirError> {
    let path = directory.join(FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error("read", &path)(error)),
    };
    match serde_json::from_slice::<Content>(&text) {
        Ok(content) if content.format == FORMAT => {
            let generations = content.generations.generations();
            Ok(generations.map(TermsGeneration::from).collect())
        }
        Ok(Content { format, .. }) => {
            let reason = format!("its format is {format}, not {FORMAT}");
            Err(DataDirError::Corrupted { path, reason })
        }
        Err(error) => {
            tracing::warn!(
                path = %path.display(),
                %error,
                "corrupted terms of earlier leases; holders that state no unit count in that of \
                 the document"
            );
            Ok(Vec::new())
        }
    }
}

/// Replaces the file; it is on the disk when this returns.
pub(super) fn write(directory: &Path, generations: &[TermsGeneration]) -> Result<(), DataDirError> {
    let path = directory.join(FILE);
    let content = Content {
        format: FORMAT,
        generations: earlier_terms(generations),
    };
    // Cannot fail: it has only text and numbers.
    let mut text = serde_json::to_vec(&content).unwrap_or_default();
    text.push(b'\n');
    data_dir::replace(&path, &text)
}
