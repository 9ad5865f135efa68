//! A disk on which there is little room.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

/// A file system of a quarter of a megabyte.
#[derive(Debug)]
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Makes one, if this process may.
    pub(crate) fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir(at).expect("the folder is new");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
            .arg(at)
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            Ok(output) => {
                skipped(&String::from_utf8_lossy(&output.stderr));
                None
            }
            Err(error) => {
                skipped(&error.to_string());
                None
            }
        }
    }

    /// Leaves no room for another byte.
    pub(crate) fn fill(&self) {
        let mut file = File::create(self.0.join("ballast")).expect("there is room for a name");
        while file.write_all(&[1; 512]).is_ok() {}
    }

    /// Makes room again.
    pub(crate) fn clear(&self) {
        std::fs::remove_file(self.0.join("ballast")).expect("it was filled");
    }

    /// Lets nothing be written any more, or again.
    pub(crate) fn remount(&self, how: &str) {
        let options = format!("remount,{how}");
        let mut mount = Command::new("mount");
        let status = mount.args(["-o", &options]).arg(&self.0).status();
        assert!(status.expect("it could be mounted").success());
    }
}

#[expect(
    clippy::print_stdout,
    reason = "who reads the tests' output should know"
)]
fn skipped(why: &str) {
    println!("skipped, since nothing can be mounted here: {}", why.trim());
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}
