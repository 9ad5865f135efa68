//! A process of the fleet: this same program, in another role.
//!
//! A child lives as long as its standard input, a pipe that the parent holds: however the parent ends, the pipe ends with it, and
//! then the child in good order.

use std::{
    env,
    io::{self, Read},
    process::Stdio,
    thread,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{self, ChildStdin, Command},
    sync::oneshot,
    time,
};

/// How long a child may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// A running child. It ends by itself when this is dropped; [`stop`](Self::stop) sees to it that it does.
#[derive(Debug)]
pub(crate) struct Child {
    process: process::Child,
    /// Kept apart from the process: waiting for that would close it.
    alive: ChildStdin,
}

impl Child {
    /// Starts this program with other arguments. What the child has to say of its failure goes to the same standard error.
    pub(crate) fn start(arguments: &[&str]) -> io::Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A Ctrl-C in the terminal is for the parent alone, which ends its children in good order.
            .process_group(0)
            .spawn()?;
        let alive = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { process, alive })
    }

    /// The first line that the child prints; empty when it ends without.
    pub(crate) async fn first_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if let Some(stdout) = self.process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).await?;
        }
        Ok(line.trim_end().to_owned())
    }

    /// Waits until the child has ended by itself, and says how.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn ended(&mut self) -> String {
        match self.process.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Lets the child finish what it does and end; kills it when it takes too long.
    pub(crate) async fn stop(mut self) -> io::Result<()> {
        drop(self.alive);
        match time::timeout(PATIENCE, self.process.wait()).await {
            Ok(ended) => ended.map(drop),
            Err(_elapsed) => self.process.kill().await,
        }
    }
}

/// In a child: is ready when the parent lets it end, or has itself ended.
pub(crate) async fn parent_lets_go() {
    let (holding, let_go) = oneshot::channel::<()>();
    // Not one of the runtime's threads, for which the runtime would wait at the end.
    thread::spawn(move || {
        let read = io::stdin().lock().read_to_end(&mut Vec::new());
        drop(holding);
        read
    });
    // An error, always: nothing is ever sent, only dropped.
    let_go.await.unwrap_or_default();
}
