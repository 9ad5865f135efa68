//! A file system that can be filled and made read-only.

use std::{
    env,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

/// Set to skip the disk tests where nothing can be mounted.
const SKIP: &str = "DOORMAN_SKIP_DISK_TESTS";

/// A tmpfs of 256 KiB.
#[derive(Debug)]
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts a new one. `None` when the tests are skipped by the variable.
    ///
    /// # Panics
    /// When it cannot be mounted.
    #[expect(clippy::print_stdout, reason = "a skipped test says so")]
    pub(crate) fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir(at).expect("the directory is new");
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
            .arg(at)
            .output()
            .expect("mount is installed");
        if output.status.success() {
            return Some(Self(at.to_owned()));
        }
        let error = String::from_utf8_lossy(&output.stderr);
        let error = error.trim();
        assert!(
            env::var_os(SKIP).is_some(),
            "cannot mount a tmpfs ({error}): run as root, or set {SKIP}=1 to skip disk tests"
        );
        println!("skipped by {SKIP}: {error}");
        None
    }

    /// Fills it to the last byte.
    pub(crate) fn fill(&self) {
        let mut file = File::create(self.0.join("ballast")).expect("there is room for a name");
        while file.write_all(&[1; 512]).is_ok() {}
    }

    /// Frees what [`fill`](Self::fill) used.
    pub(crate) fn clear(&self) {
        std::fs::remove_file(self.0.join("ballast")).expect("it was filled");
    }

    /// Remounts it with an option such as `ro`.
    pub(crate) fn remount(&self, option: &str) {
        let options = format!("remount,{option}");
        let mut mount = Command::new("mount");
        let status = mount.args(["-o", &options]).arg(&self.0).status();
        assert!(status.expect("mount is installed").success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}
