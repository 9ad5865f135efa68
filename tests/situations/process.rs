//! The processes of a situation: a control plane, and services with the layer.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{
    Error, now,
    plan::{Job, Plan, Report},
};

/// Time for the services to read their plans before the first of them acts.
const LEAD: Duration = Duration::from_millis(300);

/// The programs that a situation runs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The control plane, `doorman`.
    pub doorman: PathBuf,
    /// A program that calls [`serve`](super::serve) when its only argument is `service`.
    pub service: PathBuf,
}

impl Programs {
    /// The control plane and one service for each plan, until all services have reported.
    pub(super) fn run(&self, document: &str, plans: &[Plan]) -> Result<Vec<Report>, Error> {
        self.run_with(document, plans, |_, _| Ok(()))
    }

    /// The same, while `act` changes something. It gets the start of the run.
    pub(super) fn run_with(
        &self,
        document: &str,
        plans: &[Plan],
        act: impl FnOnce(&mut ControlPlane, Duration) -> Result<(), Error>,
    ) -> Result<Vec<Report>, Error> {
        let mut control_plane = ControlPlane::start(&self.doorman, document)?;
        let servers = vec![control_plane.address.clone()];
        self.run_services(&servers, plans, |start| act(&mut control_plane, start))
    }

    /// One service for each plan, until all have reported, while `act` changes something.
    pub(super) fn run_services(
        &self,
        servers: &[String],
        plans: &[Plan],
        act: impl FnOnce(Duration) -> Result<(), Error>,
    ) -> Result<Vec<Report>, Error> {
        let services = plans.iter().map(|_| Service::start(&self.service));
        let mut services: Vec<_> = services.collect::<Result<_, _>>()?;
        for service in &mut services {
            service.wait_until_ready()?;
        }
        let before = plans.iter().map(|plan| -plan.joins).fold(0.0, f64::max);
        let start = now() + LEAD + Duration::try_from_secs_f64(before)?;
        for (service, plan) in services.iter_mut().zip(plans) {
            service.send(&Job {
                servers: servers.to_vec(),
                start,
                plan: plan.clone(),
            })?;
        }
        act(start)?;
        services.into_iter().map(Service::report).collect()
    }
}

/// Waits until a time of the run, in seconds.
pub(super) fn sleep_until(start: Duration, at: f64) -> Result<(), Error> {
    let at = start + Duration::try_from_secs_f64(at)?;
    thread::sleep(at.saturating_sub(now()));
    Ok(())
}

/// A process that is killed when it is dropped.
#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    /// Starts a program without output.
    pub(super) fn start(program: &Path, args: &[&str]) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn()?))
    }

    /// Sends SIGTERM.
    pub(super) fn terminate(&self) -> Result<(), Error> {
        self.signal(Signal::TERM)
    }

    /// Sends SIGSTOP.
    pub(super) fn pause(&self) -> Result<(), Error> {
        self.signal(Signal::STOP)
    }

    /// Sends SIGCONT.
    pub(super) fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        Ok(kill_process(Pid::from_child(&self.0), signal)?)
    }

    /// Waits for its successful exit.
    pub(super) fn wait(mut self) -> Result<(), Error> {
        let status = self.0.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the control plane failed: {status}").into())
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have exited by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A running control plane, with a store that begins with a document.
#[derive(Debug)]
pub(super) struct ControlPlane {
    program: PathBuf,
    home: TempDir,
    address: String,
    process: Process,
}

impl ControlPlane {
    fn start(program: &Path, document: &str) -> Result<Self, Error> {
        let home = TempDir::with_prefix("doorman-situations-")?;
        let file = home.path().join("limits.yaml");
        std::fs::write(&file, document)?;
        let (process, address) = listen(program, home.path(), "127.0.0.1:0")?;
        let imported = Command::new(program)
            .arg("import")
            .arg(&file)
            .args(["--server", &address])
            .output()?;
        if !imported.status.success() {
            return Err(String::from_utf8_lossy(&imported.stderr).into());
        }
        Ok(Self {
            program: program.to_owned(),
            home,
            address,
            process,
        })
    }

    /// Replaces a template, with curl.
    pub(super) fn put_template(&self, glob: &str, template: &str) -> Result<(), Error> {
        let url = format!("{}/v1/templates/{glob}", self.address);
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--fail-with-body", "-X", "PUT"])
            .args(["-H", "content-type: application/json", "-d", template])
            .arg(url)
            .output()?;
        if output.status.success() {
            Ok(())
        } else {
            Err(format!("cannot change the limit: {output:?}").into())
        }
    }

    /// Sends SIGKILL, and starts it again on the same address and data directory.
    pub(super) fn kill_and_restart(&mut self) -> Result<(), Error> {
        self.process.0.kill()?;
        self.process.0.wait()?;
        let listen_address = self.address.trim_start_matches("http://").to_owned();
        let (process, _) = listen(&self.program, self.home.path(), &listen_address)?;
        self.process = process;
        Ok(())
    }
}

/// Starts a control plane with its data in a directory.
fn listen(program: &Path, home: &Path, listen: &str) -> Result<(Process, String), Error> {
    let data = home.join("data").display().to_string();
    start(program, &["--listen", listen, "--data-dir", &data])
}

/// Starts a control plane, and waits until it listens. Returns its address.
pub(super) fn start(program: &Path, args: &[&str]) -> Result<(Process, String), Error> {
    let mut child = Command::new(program)
        .args(args)
        .env("DOORMAN_LOG", "error")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("no pipe to the process")?;
    let process = Process(child);
    let mut lines = BufReader::new(output).lines();
    let mut before = String::new();
    while let Some(line) = lines.next().transpose()? {
        if let Some((_, rest)) = line.split_once("http://127.") {
            let is_address = |c: &char| c.is_ascii_digit() || matches!(c, '.' | ':');
            let rest: String = rest.chars().take_while(is_address).collect();
            // Read on, so that the process never blocks.
            thread::spawn(move || lines.for_each(drop));
            return Ok((process, format!("http://127.{rest}")));
        }
        before.push_str(&line);
        before.push('\n');
    }
    Err(format!("the control plane did not start: {before}").into())
}

/// A running service.
#[derive(Debug)]
struct Service {
    process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Service {
    fn start(program: &Path) -> Result<Self, Error> {
        let mut child = Command::new(program)
            .arg("service")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("no pipe to the process")?;
        let output = child.stdout.take().ok_or("no pipe to the process")?;
        Ok(Self {
            process: Process(child),
            input,
            output: BufReader::new(output),
        })
    }

    fn wait_until_ready(&mut self) -> Result<(), Error> {
        self.output.read_line(&mut String::new())?;
        Ok(())
    }

    fn send(&mut self, job: &Job) -> Result<(), Error> {
        serde_json::to_writer(&self.input, job)?;
        writeln!(self.input)?;
        Ok(())
    }

    fn report(mut self) -> Result<Report, Error> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() {
            let status = self.process.0.wait()?;
            return Err(format!("a service failed: {status}").into());
        }
        Ok(serde_json::from_str(&line)?)
    }
}
