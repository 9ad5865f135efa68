//! The data directory.

use std::{fs, os::unix::fs::PermissionsExt};

use tempfile::TempDir;

use super::*;

#[test]
fn new_data_directory_is_private_and_a_file_is_refused() {
    let home = TempDir::new().unwrap();
    let parent = home.path().join("new");
    let directory = parent.join("data");
    create_dir(&directory).unwrap();
    for created in [&parent, &directory] {
        let mode = fs::metadata(created).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
    // One that exists stays as it is.
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o750)).unwrap();
    create_dir(&directory).unwrap();
    let mode = fs::metadata(&directory).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o750);

    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let error = create_dir(&file).unwrap_err().to_string();
    assert!(
        error.starts_with("--data-dir ") && error.ends_with("is a file, not a directory"),
        "{error}"
    );
}
