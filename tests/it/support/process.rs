//! A process that is killed when it is dropped.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use super::PATIENCE;

/// How often it is looked whether a process has ended.
const LOOK: Duration = Duration::from_millis(20);

/// A running program with what it says.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Process {
    /// Starts a program; both of its outputs are read as they come.
    pub(crate) fn start(program: &Path, args: &[&str]) -> Self {
        Self::start_logging(program, args, "info")
    }

    /// The same, that logs so much.
    pub(crate) fn start_logging(program: &Path, args: &[&str], level: &str) -> Self {
        let mut child = Command::new(program)
            .args(args)
            // The control plane has a variable of its own; the examples take the usual one.
            .env("DOORMAN_LOG", level)
            .env("RUST_LOG", level)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", program.display()));
        let (sender, lines) = mpsc::channel();
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|it| Box::new(it) as _),
            child.stderr.take().map(|it| Box::new(it) as _),
        ];
        for output in outputs.into_iter().flatten() {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    // The test may have stopped listening; the output is read on, so that the process never blocks on it.
                    drop(sender.send(line));
                }
            });
        }
        Self {
            child,
            lines,
            said: Vec::new(),
        }
    }

    /// Waits until the process says a line for which `find` finds something.
    pub(crate) fn wait_for<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> T {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    let found = find(&line);
                    self.said.push(line);
                    if let Some(found) = found {
                        return found;
                    }
                }
                Err(_) => panic!(
                    "it never said what it was waited for; it said:\n{}",
                    self.said.join("\n")
                ),
            }
        }
    }

    /// The first address of the form `http://127.0.0.1:PORT` or `https://127.0.0.1:PORT` that the process names.
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

    /// All lines said up to now.
    pub(crate) fn said(&mut self) -> &[String] {
        self.said.extend(self.lines.try_iter());
        &self.said
    }

    /// The memory that the process has, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.status("VmRSS:")
    }

    /// The most memory that it has ever had, in bytes.
    pub(crate) fn most_memory(&self) -> usize {
        self.status("VmHWM:")
    }

    /// One of the sizes that the system tells of the process, in bytes.
    fn status(&self, name: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .expect("it runs, on Linux");
        let line = status.lines().find_map(|it| it.strip_prefix(name));
        let kib = line.and_then(|it| it.trim().strip_suffix(" kB")?.parse::<usize>().ok());
        kib.expect("a number") * 1024
    }

    /// SIGKILL: the process gets no chance to say good-bye.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ran");
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGSTOP, and until none of it runs any more.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        let state = format!("/proc/{}/status", self.child.id());
        for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
            let status = std::fs::read_to_string(&state).expect("it is there, on Linux");
            if status.contains("\nState:\tT") {
                return;
            }
            thread::sleep(LOOK);
        }
        panic!("it never stopped");
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it runs");
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.ended()
    }

    /// Waits for the end of the process, which must be a good one.
    pub(crate) fn wait_for_success(mut self) {
        let status = self.ended();
        let said = self.said().join("\n");
        assert_eq!(status.code(), Some(0), "it said:\n{said}");
    }

    fn ended(&mut self) -> ExitStatus {
        for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
            if let Some(status) = self.child.try_wait().expect("it ran") {
                return status;
            }
            thread::sleep(LOOK);
        }
        panic!("it never ended; it said:\n{}", self.said().join("\n"));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, which is as well.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
