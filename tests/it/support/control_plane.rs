//! A control plane with its document and its data directory.

use std::{path::Path, process::ExitStatus};

use serde_json::Value;
use tempfile::TempDir;

use super::{Answer, Process, curl, programs};

/// A running control plane.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    process: Process,
    address: String,
    home: TempDir,
    config: String,
}

impl ControlPlane {
    /// Starts one with this document on a free port, with a fresh data directory.
    pub(crate) fn start(document: &str) -> Self {
        Self::start_in(
            TempDir::new().expect("a folder for temporary files"),
            document,
        )
    }

    /// Starts one with this document in a folder, the data directory of which is `data`.
    pub(crate) fn start_in(home: TempDir, document: &str) -> Self {
        let file = home.path().join("limits.yaml");
        std::fs::write(&file, document).expect("the folder is new");
        Self::start_with(home, format!("file:{}", file.display()))
    }

    /// Starts one with this store in a folder, the data directory of which is `data`.
    pub(crate) fn start_on(home: TempDir, store: &Path) -> Self {
        Self::start_with(home, format!("sqlite:{}", store.display()))
    }

    fn start_with(home: TempDir, config: String) -> Self {
        let (process, address) = run(home.path(), "127.0.0.1:0", &config);
        Self {
            process,
            address,
            home,
            config,
        }
    }

    /// Kills it without warning.
    pub(crate) fn kill(self) -> Down {
        let Self {
            process,
            address,
            home,
            config,
        } = self;
        process.kill();
        Down {
            address,
            home,
            config,
        }
    }

    /// Asks it to stop.
    pub(crate) fn ask_to_stop(&self) {
        self.process.terminate();
    }

    /// Waits until it has stopped.
    pub(crate) fn stopped(self) -> ExitStatus {
        self.process.wait()
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn terminate(self) -> ExitStatus {
        self.ask_to_stop();
        self.stopped()
    }

    /// Asks it to stop, and waits until it has, in good order.
    pub(crate) fn stop(self) -> Down {
        let Self {
            process,
            address,
            home,
            config,
        } = self;
        process.terminate();
        process.wait_for_success();
        Down {
            address,
            home,
            config,
        }
    }

    /// The folder with its document, `limits.yaml`, and its data directory, `data`.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// The base address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The memory that it has, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.process.memory()
    }

    /// The most memory that it has ever had, in bytes.
    pub(crate) fn most_memory(&self) -> usize {
        self.process.most_memory()
    }

    /// What it answers at a path.
    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = curl(&[&format!("{}{path}", self.address)]);
        serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("not JSON: {}", answer.body))
    }

    /// Puts a JSON body at a path; what it answers.
    pub(crate) fn put(&self, path: &str, body: &str) -> Answer {
        let url = format!("{}{path}", self.address);
        let json = "content-type: application/json";
        curl(&[&url, "-X", "PUT", "-H", json, "-d", body])
    }

    /// What it answers to a JSON body.
    pub(crate) fn post(&self, path: &str, body: &str) -> Value {
        let url = format!("{}{path}", self.address);
        let answer = curl(&[&url, "-H", "content-type: application/json", "-d", body]);
        assert_eq!(answer.status, 200, "{}", answer.body);
        serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("not JSON: {}", answer.body))
    }
}

/// A control plane that has stopped, with what it left.
#[derive(Debug)]
pub(crate) struct Down {
    address: String,
    home: TempDir,
    config: String,
}

impl Down {
    /// Starts it again, on the same address with the same data directory.
    pub(crate) fn restart(self) -> ControlPlane {
        let listen = self.address.trim_start_matches("http://").to_owned();
        self.restart_on(&listen)
    }

    /// Starts it again with the same data directory, on a free port: the one of before may have been taken meanwhile, which a test that
    /// does it often will see.
    pub(crate) fn restart_anywhere(self) -> ControlPlane {
        self.restart_on("127.0.0.1:0")
    }

    fn restart_on(self, listen: &str) -> ControlPlane {
        let Self { home, config, .. } = self;
        let (process, address) = run(home.path(), listen, &config);
        ControlPlane {
            process,
            address,
            home,
            config,
        }
    }
}

fn run(home: &Path, listen: &str, config: &str) -> (Process, String) {
    let data = home.join("data").display().to_string();
    let args = ["--listen", listen, "--config", config, "--data-dir", &data];
    let mut process = Process::start(&programs::doorman(), &args);
    let address = process.wait_for_address();
    (process, address)
}
