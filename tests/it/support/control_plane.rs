//! A control plane process with its document and data directory.

use std::{net::Ipv4Addr, path::Path, process::ExitStatus, time::Duration};

use serde_json::Value;
use tempfile::TempDir;

use super::{Authority, Process, Response, curl, process};

/// One resource of 1000 per second, refreshed every second.
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
    /// Its flags besides addresses, data directory and TLS.
    flags: Vec<String>,
    encrypted: bool,
}

impl ControlPlane {
    /// Starts with this document on a free port, with a new data directory.
    pub(crate) fn start(document: &str) -> Self {
        Self::start_in(TempDir::new().expect("a temporary directory"), document)
    }

    /// Starts with this document in `home`; the data directory is `data`.
    pub(crate) fn start_in(home: TempDir, document: &str) -> Self {
        let file = home.path().join("limits.yaml");
        std::fs::write(&file, document).expect("the directory is new");
        Self::start_with(home, format!("file:{}", file.display()), false)
    }

    /// Starts with TLS: `tls.crt`, `tls.key` and the authority's `ca.pem` in its home directory.
    pub(crate) fn start_encrypted(document: &str, authority: &Authority) -> Self {
        let home = TempDir::new().expect("a temporary directory");
        authority.issue(home.path(), "tls");
        std::fs::write(home.path().join("ca.pem"), authority.pem()).expect("the directory is new");
        let file = home.path().join("limits.yaml");
        std::fs::write(&file, document).expect("the directory is new");
        Self::start_with(home, format!("file:{}", file.display()), true)
    }

    /// Starts with this store; the data directory is `data` in `home`.
    pub(crate) fn start_on(home: TempDir, store: &Path) -> Self {
        Self::start_with(home, format!("sqlite:{}", store.display()), false)
    }

    /// Starts with these flags; the data directory is `data` in `home`.
    pub(crate) fn start_with_flags(home: TempDir, flags: &[&str]) -> Self {
        let flags = flags.iter().copied().map(str::to_owned).collect();
        // On an address of its own: clients that reconnect take no port of it while it is down.
        let [b, c, d] = [(); 3].map(|()| fastrand::u8(1..250));
        let listen = format!("{}:0", Ipv4Addr::new(127, b, c, d));
        Self::start_process(home, &listen, flags, false)
    }

    fn start_with(home: TempDir, config: String, encrypted: bool) -> Self {
        let flags = vec!["--config".to_owned(), config];
        Self::start_process(home, "127.0.0.1:0", flags, encrypted)
    }

    fn start_process(home: TempDir, listen: &str, flags: Vec<String>, encrypted: bool) -> Self {
        let (process, address) = run(&[], home.path(), listen, &flags, encrypted);
        Self {
            process,
            address,
            home,
            flags,
            encrypted,
        }
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(self) -> Stopped {
        let (process, stopped) = self.into_parts();
        process.kill();
        stopped
    }

    /// Sends SIGTERM.
    pub(crate) fn request_stop(&self) {
        self.process.terminate();
    }

    /// Waits for its exit.
    pub(crate) fn wait(self) -> ExitStatus {
        self.process.wait()
    }

    /// Sends SIGTERM, and waits for its exit.
    pub(crate) fn terminate(self) -> ExitStatus {
        self.request_stop();
        self.wait()
    }

    /// Sends SIGTERM, and waits for its successful exit.
    pub(crate) fn stop(self) -> Stopped {
        let (process, stopped) = self.into_parts();
        process.terminate();
        process.wait_for_success();
        stopped
    }

    fn into_parts(self) -> (Process, Stopped) {
        let Self {
            process,
            address,
            home,
            flags,
            encrypted,
        } = self;
        let stopped = Stopped {
            address,
            home,
            flags,
            encrypted,
        };
        (process, stopped)
    }

    /// Holds its document `limits.yaml` and its data directory `data`.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// The base address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Waits until `find` finds something in a line of its output.
    pub(crate) fn wait_for<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> T {
        self.process.wait_for(find)
    }

    /// All output up to now.
    pub(crate) fn output(&mut self) -> String {
        self.process.output().join("\n")
    }

    /// Resident memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.process.memory()
    }

    /// Peak resident memory in bytes.
    pub(crate) fn peak_memory(&self) -> usize {
        self.process.peak_memory()
    }

    /// Processor time that it has taken.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.process.cpu_time()
    }

    /// Calls curl for a path, with further arguments.
    pub(crate) fn curl(&self, path: &str, more: &[&str]) -> Response {
        let url = format!("{}{path}", self.address);
        let authority = self.home.path().join("ca.pem").display().to_string();
        let mut args = vec![url.as_str()];
        if self.encrypted {
            args.extend(["--cacert", &authority]);
        }
        args.extend(more);
        curl(&args)
    }

    /// The JSON at a path.
    pub(crate) fn get(&self, path: &str) -> Value {
        let response = self.curl(path, &[]);
        serde_json::from_str(&response.body)
            .unwrap_or_else(|_| panic!("not JSON: {}", response.body))
    }

    /// PUTs a JSON body.
    pub(crate) fn put(&self, path: &str, body: &str) -> Response {
        let json = "content-type: application/json";
        self.curl(path, &["-X", "PUT", "-H", json, "-d", body])
    }

    /// POSTs a JSON body, and returns the JSON of the successful response.
    pub(crate) fn post(&self, path: &str, body: &str) -> Value {
        let response = self.curl(path, &["-H", "content-type: application/json", "-d", body]);
        assert_eq!(response.status, 200, "{}", response.body);
        serde_json::from_str(&response.body)
            .unwrap_or_else(|_| panic!("not JSON: {}", response.body))
    }
}

/// A control plane that has exited, with its data directory.
#[derive(Debug)]
pub(crate) struct Stopped {
    address: String,
    home: TempDir,
    /// Its flags besides addresses, data directory and TLS.
    flags: Vec<String>,
    encrypted: bool,
}

impl Stopped {
    /// Its home directory, with the data directory.
    pub(crate) fn into_home(self) -> TempDir {
        self.home
    }

    /// Starts it again on the same address and data directory.
    pub(crate) fn restart(self) -> ControlPlane {
        let (_, listen) = self.address.split_once("://").expect("an address");
        let listen = listen.to_owned();
        self.restart_on(&listen)
    }

    /// Starts it again on the same data directory and a free port: the earlier one may be taken.
    pub(crate) fn restart_on_free_port(self) -> ControlPlane {
        self.restart_on("127.0.0.1:0")
    }

    /// Starts it again on the same data directory, by a command that starts a program, such as
    /// `unshare`.
    pub(crate) fn restart_by(self, launcher: &[&str]) -> ControlPlane {
        self.launch(launcher, "127.0.0.1:0")
    }

    fn restart_on(self, listen: &str) -> ControlPlane {
        self.launch(&[], listen)
    }

    fn launch(self, launcher: &[&str], listen: &str) -> ControlPlane {
        let Self {
            home,
            flags,
            encrypted,
            ..
        } = self;
        let (process, address) = run(launcher, home.path(), listen, &flags, encrypted);
        ControlPlane {
            process,
            address,
            home,
            flags,
            encrypted,
        }
    }
}

fn run(
    launcher: &[&str],
    home: &Path,
    listen: &str,
    flags: &[String],
    encrypted: bool,
) -> (Process, String) {
    let [data, certificate, key] =
        ["data", "tls.crt", "tls.key"].map(|name| home.join(name).display().to_string());
    let doorman = process::doorman().display().to_string();
    let mut command = [
        launcher,
        &[&doorman, "--listen", listen, "--data-dir", &data],
    ]
    .concat();
    command.extend(flags.iter().map(String::as_str));
    if encrypted {
        command.extend(["--tls-cert", &certificate, "--tls-key", &key]);
    }
    let mut process = Process::start(Path::new(command[0]), &command[1..]);
    let address = |line: &str| line.strip_prefix("Listening on ").map(str::to_owned);
    let address = process.wait_for(address);
    (process, address)
}
