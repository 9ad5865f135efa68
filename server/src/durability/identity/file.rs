//! A small file that is either the old one or the new one, whenever the power fails.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use super::IdentityError;

/// Makes a directory, and those it stands in, where they are absent.
pub(crate) fn create_directory(path: &Path) -> Result<(), IdentityError> {
    fs::create_dir_all(path).map_err(failed("create", path))
}

/// The text of a file; `None` when there is none.
pub(super) fn read(path: &Path) -> Result<Option<String>, IdentityError> {
    match fs::read(path) {
        // What is not UTF-8 is not what we wrote either: the replacement characters do not parse.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

/// Puts a new text in the place of a file; when this returns, it is safe on the disk.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), IdentityError> {
    let new = path.with_extension("json.new");
    write(&new, text).map_err(failed("write", &new))?;
    fs::rename(&new, path).map_err(failed("replace", path))?;
    // The name is in the directory, which is written by itself.
    let directory = path.parent().unwrap_or(Path::new("."));
    sync(directory).map_err(failed("sync", directory))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Makes the names in a directory safe on the disk, which are written by themselves.
pub(crate) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Says with what it was that the system failed.
pub(crate) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    move |source| IdentityError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}
