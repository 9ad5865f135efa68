//! The servers run as processes of their own: this benchmark's executable, started anew with a role in its environment.

use std::{
    env,
    error::Error,
    io::{self, BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    str::FromStr,
};

use crate::{
    bare,
    cores::{self, Core},
    doorman,
    tokens::Signed,
};

const ROLE: &str = "DOORMAN_BENCH_ROLE";

/// What a started process serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Doorman,
    /// The same, that asks for tokens.
    Asking(Signed),
    Bare,
}

impl What {
    const ALL: [Self; 4] = [
        Self::Doorman,
        Self::Asking(Signed::Secret),
        Self::Asking(Signed::Key),
        Self::Bare,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Doorman => "doorman",
            Self::Asking(Signed::Secret) => "doorman-hs256",
            Self::Asking(Signed::Key) => "doorman-es256",
            Self::Bare => "bare",
        }
    }
}

/// What a started process serves, and where it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Role {
    what: What,
    core: Core,
}

impl Role {
    /// The role of this process, when it was started by another one.
    pub(crate) fn of_this_process() -> Option<Self> {
        let role = env::var(ROLE).ok()?;
        let (what, core) = role.split_once(' ')?;
        let what = What::ALL.into_iter().find(|it| it.name() == what)?;
        let core = Core::from_str(core).ok()?;
        Some(Self { what, core })
    }

    fn text(self) -> String {
        format!("{} {}", self.what.name(), self.core)
    }
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Running {
    /// Starts it on a core, and waits until it listens.
    pub(crate) fn start(what: What, core: Core) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(env::current_exe()?)
            .env(ROLE, Role { what, core }.text())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let address = line.trim().parse()?;
        Ok(Self { child, address })
    }

    /// How long it has run on its core, in nanoseconds.
    pub(crate) fn cpu_nanos(&self) -> io::Result<u64> {
        cores::cpu_nanos(self.child.id())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It ends when its standard input does, also when this process is killed.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// Serves in this role until the standard input ends.
#[tokio::main]
async fn serve_until_stdin_ends(what: What) -> Result<(), Box<dyn Error>> {
    let ended = async {
        let read = tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink()));
        drop(read.await);
    };
    match what {
        What::Doorman => doorman::serve(None, ended).await,
        What::Asking(signed) => doorman::serve(Some(signed), ended).await,
        What::Bare => bare::serve(ended).await,
    }
}

/// Serves in this role.
pub(crate) fn serve(role: Role) -> Result<(), Box<dyn Error>> {
    // Before the runtime starts, which has a thread for every core that it may use.
    cores::pin(role.core)?;
    serve_until_stdin_ends(role.what)
}

/// Tells the process that started this one where it listens.
pub(crate) fn tell(address: SocketAddr) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{address}")?;
    out.flush()
}
