//! Processes that call a target.

use std::process::Command;

use tempfile::TempDir;

use crate::support::{ControlPlane, Process, doorman, example, repository};

/// How a worker is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// By the layer, with a rate.
    Rate,
    /// By the layer, with a gauge.
    Gauge,
    /// A program in Python, by an agent of its own, with a rate.
    Python,
}

/// A worker, and its agent if it has one. Both end when they are dropped.
#[derive(Debug)]
pub(super) struct Worker {
    _processes: Vec<Process>,
    _home: Option<TempDir>,
}

impl Worker {
    /// Sends `rate` requests per second to `url`, as far as its lease allows.
    pub(super) fn start(
        kind: Kind,
        server: &ControlPlane,
        url: &str,
        rate: f64,
        seconds: u64,
    ) -> Self {
        let (rate, seconds) = (rate.to_string(), seconds.to_string());
        if kind == Kind::Python {
            return Self::start_python(server, [url, &rate, &seconds]);
        }
        let server = server.address();
        let mut args = vec!["--server", server, "--url", url, "--rate", &rate];
        args.extend(["--seconds", &seconds]);
        args.extend((kind == Kind::Gauge).then_some("--gauge"));
        Self {
            _processes: vec![Process::start(&example("worker"), &args)],
            _home: None,
        }
    }

    fn start_python(server: &ControlPlane, args: [&str; 3]) -> Self {
        let home = TempDir::new().expect("a temporary directory");
        let socket = home.path().join("agent.sock").display().to_string();
        let listen = format!("unix:{socket}");
        let server = server.address();
        let agent = ["agent", "--server", server, "--listen", &listen];
        let mut agent = Process::start(&doorman(), &agent);
        agent.wait_for(|line| line.contains("agent.sock").then_some(()));
        let mut worker = Command::new("python3");
        worker.args(["-B", "worker.py", &socket]).args(args);
        worker.current_dir(repository().join("examples/agent"));
        Self {
            _processes: vec![Process::spawn(worker), agent],
            _home: Some(home),
        }
    }
}
