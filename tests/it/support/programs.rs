//! The programs under test, built once from the sources as they are.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The control plane.
pub(crate) fn doorman() -> PathBuf {
    built().join("doorman")
}

/// One of the examples.
pub(crate) fn example(name: &str) -> PathBuf {
    built().join("examples").join(name)
}

/// The folder with the programs: that of this test, so that they are of the same profile.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("a running test has a path");
        let folder = test
            .ancestors()
            .nth(2)
            .expect("tests lie in target/PROFILE/deps")
            .to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        cargo.args([
            "build",
            "--quiet",
            "--locked",
            "-p",
            "doorman-server",
            "-p",
            "doorman-examples",
        ]);
        cargo.args(["--bin", "doorman", "--examples"]);
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        if let Some(target) = folder.parent() {
            cargo.env("CARGO_TARGET_DIR", target);
        }
        assert!(
            cargo.status().expect("cargo runs").success(),
            "the programs under test do not build"
        );
        folder
    })
}
