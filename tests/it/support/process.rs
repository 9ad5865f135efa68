//! Processes under test, the programs they run, and tools of other languages.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        OnceLock,
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use rustix::{
    param::clock_ticks_per_second,
    process::{Pid, Signal, kill_process},
};

use super::TIMEOUT;

/// Interval at which the state of a process is polled.
const POLL: Duration = Duration::from_millis(20);

/// Lines of output that a failed test prints of each process.
const LAST_LINES: usize = 12;

/// A running program and its output. It is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    output: Vec<String>,
}

impl Process {
    /// Starts a program, and collects its standard output and error.
    pub(crate) fn start(program: &Path, args: &[&str]) -> Self {
        Self::start_logging(program, args, "info")
    }

    /// Starts a program with a log level.
    pub(crate) fn start_logging(program: &Path, args: &[&str], level: &str) -> Self {
        let mut command = Command::new(program);
        // The control plane reads DOORMAN_LOG, the examples RUST_LOG.
        command
            .args(args)
            .env("DOORMAN_LOG", level)
            .env("RUST_LOG", level);
        Self::spawn(command)
    }

    /// Starts a command, and collects its standard output and error.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let (sender, lines) = mpsc::channel();
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|it| Box::new(it) as _),
            child.stderr.take().map(|it| Box::new(it) as _),
        ];
        for output in outputs.into_iter().flatten() {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    // Read on after the receiver is gone, so that the process never blocks.
                    drop(sender.send(line));
                }
            });
        }
        Self {
            child,
            lines,
            output: Vec::new(),
        }
    }

    /// Waits for a line of output for which `find` returns `Some`.
    pub(crate) fn wait_for<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> T {
        loop {
            match self.lines.recv_timeout(TIMEOUT) {
                Ok(line) => {
                    let found = find(&line);
                    self.output.push(line);
                    if let Some(found) = found {
                        return found;
                    }
                }
                Err(_) => panic!(
                    "the expected line never came; output:\n{}",
                    self.output.join("\n")
                ),
            }
        }
    }

    /// Waits for the first `http://127.0.0.1:PORT` or `https://127.0.0.1:PORT` in the output.
    pub(crate) fn wait_for_address(&mut self) -> String {
        self.wait_for(|line| {
            ["http://127.0.0.1:", "https://127.0.0.1:"]
                .iter()
                .find_map(|start| {
                    let port = line.split_once(start)?.1;
                    let digits = port
                        .find(|c: char| !c.is_ascii_digit())
                        .unwrap_or(port.len());
                    Some(format!("{start}{}", port.get(..digits)?))
                })
        })
    }

    /// All output up to now.
    pub(crate) fn output(&mut self) -> &[String] {
        self.output.extend(self.lines.try_iter());
        &self.output
    }

    /// Resident memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.status("VmRSS:")
    }

    /// Peak resident memory in bytes.
    pub(crate) fn peak_memory(&self) -> usize {
        self.status("VmHWM:")
    }

    /// Processor time that it has taken, also in threads that have ended.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))
            .expect("it runs, on Linux");
        // The name may contain spaces; the fields behind it begin with the third (proc(5)).
        let (_, fields) = stat.rsplit_once(") ").expect("a name");
        let ticks = fields.split(' ').skip(11).take(2);
        let ticks: u64 = ticks.map(|it| it.parse::<u64>().expect("a number")).sum();
        Duration::from_secs(ticks) / u32::try_from(clock_ticks_per_second()).expect("few")
    }

    /// A size from /proc, in bytes.
    fn status(&self, name: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .expect("it runs, on Linux");
        let line = status.lines().find_map(|it| it.strip_prefix(name));
        let kib = line.and_then(|it| it.trim().strip_suffix(" kB")?.parse::<usize>().ok());
        kib.expect("a number") * 1024
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ran");
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGSTOP, and waits until the process has stopped.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        let state = format!("/proc/{}/status", self.child.id());
        for _ in 0..TIMEOUT.as_millis() / POLL.as_millis() {
            let status = std::fs::read_to_string(&state).expect("it is there, on Linux");
            if status.contains("\nState:\tT") {
                return;
            }
            thread::sleep(POLL);
        }
        panic!("the process did not stop");
    }

    /// Sends SIGCONT.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it runs");
    }

    /// Waits for its exit.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.wait_for_exit()
    }

    /// Waits for its successful exit.
    pub(crate) fn wait_for_success(mut self) {
        let status = self.wait_for_exit();
        let output = self.output().join("\n");
        assert_eq!(status.code(), Some(0), "output:\n{output}");
    }

    fn wait_for_exit(&mut self) -> ExitStatus {
        for _ in 0..TIMEOUT.as_millis() / POLL.as_millis() {
            if let Some(status) = self.child.try_wait().expect("it ran") {
                return status;
            }
            thread::sleep(POLL);
        }
        panic!("no exit; output:\n{}", self.output().join("\n"));
    }
}

impl Drop for Process {
    #[expect(
        clippy::print_stderr,
        reason = "the test harness shows it when the test fails"
    )]
    fn drop(&mut self) {
        if thread::panicking() {
            let output = self.output();
            let last = &output[output.len().saturating_sub(LAST_LINES)..];
            eprintln!("last output of a process:\n{}", last.join("\n"));
        }
        // It may have exited by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Path of the control plane, built from the sources as they are.
pub(crate) fn doorman() -> PathBuf {
    built().join("doorman")
}

/// Path of an example.
pub(crate) fn example(name: &str) -> PathBuf {
    built().join("examples").join(name)
}

/// The directory of the programs, of the same profile as this test.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("a running test has a path");
        let directory = test
            .ancestors()
            .nth(2)
            .expect("tests are in target/PROFILE/deps")
            .to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        // The packages and features of `tests/run`, so that nothing is compiled twice.
        cargo.args(["build", "--quiet", "--locked", "--workspace"]);
        cargo.args(["--features", "tower-doorman/jwt,tower-doorman/metrics"]);
        cargo.args(["--bin", "doorman", "--examples"]);
        if directory.ends_with("release") {
            cargo.arg("--release");
        }
        if let Some(target) = directory.parent() {
            cargo.env("CARGO_TARGET_DIR", target);
        }
        assert!(
            cargo.status().expect("cargo runs").success(),
            "the programs under test must build"
        );
        directory
    })
}

/// The root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The environment of the image.
pub(crate) fn image() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(repository().join("deploy/container/Dockerfile"));
    let text = text.expect("it is committed").replace("\\\n", " ");
    let lines = text.lines().filter_map(|line| line.strip_prefix("ENV "));
    let variables = lines.flat_map(str::split_whitespace);
    let variables = variables.map(|it| it.split_once('=').expect("NAME=VALUE"));
    variables
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Directory of a tool installed by `tests/tools`.
///
/// # Panics
/// When it is not installed.
pub(crate) fn tool(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let target = test.ancestors().nth(3);
    let directory = target
        .expect("tests are in target/PROFILE/deps")
        .join("tools")
        .join(name);
    assert!(
        directory.join("installed").exists(),
        "{} is missing: run ./tests/tools to install it",
        directory.display()
    );
    directory
}
