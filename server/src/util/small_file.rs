//! Files that an operator hands over: keys, certificates, grants. None of them is large.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// The most bytes of such a file: a set of keys has a few thousand.
pub(crate) const MOST_BYTES: usize = 1024 * 1024;

/// Reads a file that should not be larger than [`MOST_BYTES`]. Blocks on the file system.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MOST_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() > MOST_BYTES {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(bytes)
}
