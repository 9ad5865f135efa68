//! Reading of small files that an operator provides: keys, certificates, grants.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Size limit of such a file. A key set has a few thousand bytes.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;

/// Reads a file of at most [`MAX_BYTES`]. Blocks on the file system.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() > MAX_BYTES {
        return Err(io::Error::other("file is larger than 1 MiB"));
    }
    Ok(bytes)
}
