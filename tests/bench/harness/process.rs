//! Servers in processes of their own.
//!
//! The benchmark starts its own executable again, with a variable that tells the child to serve.
//! The child prints its address, and serves until its standard input ends.

use std::{
    env,
    ffi::OsStr,
    io::{self, BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

/// A server in a child process, which is stopped on drop.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    address: SocketAddr,
}

impl ServerProcess {
    /// Starts this executable with a variable, and waits until it [announces](announce) its
    /// address.
    ///
    /// # Errors
    /// If the process does not start, or prints no address.
    pub fn start(variable: &str, value: impl AsRef<OsStr>) -> io::Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .env(variable, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let address = line.trim().parse().map_err(io::Error::other)?;
        Ok(Self { child, address })
    }

    /// The address on which the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The child ends with its standard input, even if this process is killed.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// Sends the server's address to the process that started it.
///
/// # Errors
/// If the standard output is closed.
pub fn announce(address: SocketAddr) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{address}")?;
    out.flush()
}

/// Blocks until the process that started this one drops its [`ServerProcess`].
pub fn wait_for_stdin_end() {
    // A read error means the same as the end.
    drop(io::copy(&mut io::stdin(), &mut io::sink()));
}
