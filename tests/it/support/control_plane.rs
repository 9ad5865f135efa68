//! A control plane with its document and its data directory.

use std::{path::Path, process::ExitStatus};

use serde_json::Value;
use tempfile::TempDir;

use super::{Answer, Authority, Process, curl, programs};

/// A document with one resource, of which there are a thousand a second; its holders come back every second.
pub(crate) const DOCUMENT: &str = "
resources:
  - identifier_glob: api
    capacity: 1000
    algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 1}
";

/// A running control plane.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    process: Process,
    address: String,
    home: TempDir,
    config: String,
    encrypted: bool,
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
        Self::start_with(home, format!("file:{}", file.display()), false)
    }

    /// Starts one with this document that speaks TLS by `tls.crt` and `tls.key` of its folder, of an authority in `ca.pem`.
    pub(crate) fn start_encrypted(document: &str, authority: &Authority) -> Self {
        let home = TempDir::new().expect("a folder for temporary files");
        authority.issue(home.path(), "tls");
        std::fs::write(home.path().join("ca.pem"), authority.pem()).expect("the folder is new");
        let file = home.path().join("limits.yaml");
        std::fs::write(&file, document).expect("the folder is new");
        Self::start_with(home, format!("file:{}", file.display()), true)
    }

    /// Starts one with this store in a folder, the data directory of which is `data`.
    pub(crate) fn start_on(home: TempDir, store: &Path) -> Self {
        Self::start_with(home, format!("sqlite:{}", store.display()), false)
    }

    fn start_with(home: TempDir, config: String, encrypted: bool) -> Self {
        let (process, address) = run(home.path(), "127.0.0.1:0", &config, encrypted);
        Self {
            process,
            address,
            home,
            config,
            encrypted,
        }
    }

    /// Kills it without warning.
    pub(crate) fn kill(self) -> Down {
        let (process, down) = self.apart();
        process.kill();
        down
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
        let (process, down) = self.apart();
        process.terminate();
        process.wait_for_success();
        down
    }

    /// Its process, and what is left of it when that has ended.
    fn apart(self) -> (Process, Down) {
        let Self {
            process,
            address,
            home,
            config,
            encrypted,
        } = self;
        let down = Down {
            address,
            home,
            config,
            encrypted,
        };
        (process, down)
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

    /// What curl with these arguments brings back from a path.
    pub(crate) fn curl(&self, path: &str, more: &[&str]) -> Answer {
        let url = format!("{}{path}", self.address);
        let authority = self.home.path().join("ca.pem").display().to_string();
        let mut args = vec![url.as_str()];
        if self.encrypted {
            args.extend(["--cacert", &authority]);
        }
        args.extend(more);
        curl(&args)
    }

    /// What it answers at a path.
    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = self.curl(path, &[]);
        serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("not JSON: {}", answer.body))
    }

    /// Puts a JSON body at a path; what it answers.
    pub(crate) fn put(&self, path: &str, body: &str) -> Answer {
        let json = "content-type: application/json";
        self.curl(path, &["-X", "PUT", "-H", json, "-d", body])
    }

    /// What it answers to a JSON body.
    pub(crate) fn post(&self, path: &str, body: &str) -> Value {
        let answer = self.curl(path, &["-H", "content-type: application/json", "-d", body]);
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
    encrypted: bool,
}

impl Down {
    /// Starts it again, on the same address with the same data directory.
    pub(crate) fn restart(self) -> ControlPlane {
        let (_, listen) = self.address.split_once("://").expect("an address");
        let listen = listen.to_owned();
        self.restart_on(&listen)
    }

    /// Starts it again with the same data directory, on a free port: the one of before may have been taken meanwhile, which a test that
    /// does it often will see.
    pub(crate) fn restart_anywhere(self) -> ControlPlane {
        self.restart_on("127.0.0.1:0")
    }

    fn restart_on(self, listen: &str) -> ControlPlane {
        let Self {
            home,
            config,
            encrypted,
            ..
        } = self;
        let (process, address) = run(home.path(), listen, &config, encrypted);
        ControlPlane {
            process,
            address,
            home,
            config,
            encrypted,
        }
    }
}

fn run(home: &Path, listen: &str, config: &str, encrypted: bool) -> (Process, String) {
    let [data, certificate, key] =
        ["data", "tls.crt", "tls.key"].map(|name| home.join(name).display().to_string());
    let mut args = vec!["--listen", listen, "--config", config, "--data-dir", &data];
    if encrypted {
        args.extend(["--tls-cert", &certificate, "--tls-key", &key]);
    }
    let mut process = Process::start(&programs::doorman(), &args);
    let address = process.wait_for_address();
    (process, address)
}
