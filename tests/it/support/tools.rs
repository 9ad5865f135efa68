//! Tools of other languages, as `tests/tools` has installed them.

use std::path::{Path, PathBuf};

/// The folder of the sources.
pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The folder of a tool.
///
/// # Panics
/// When it is not there: what cannot be tried out has not been tested.
pub(crate) fn tool(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let target = test.ancestors().nth(3);
    let folder = target
        .expect("tests lie in target/PROFILE/deps")
        .join("tools")
        .join(name);
    assert!(
        folder.join("installed").exists(),
        "{} is not there: run ./tests/tools once, which installs what this test needs",
        folder.display()
    );
    folder
}
