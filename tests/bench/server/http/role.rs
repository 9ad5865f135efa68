//! The role of a server process, passed in its environment.

use std::{env, io};

use doorman_bench::ServerProcess;

use crate::{cpu::Core, tokens::Signature};

const VARIABLE: &str = "DOORMAN_BENCH_ROLE";

/// The server to run. Doorman requires tokens if there is a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerKind {
    Doorman(Option<Signature>),
    Bare,
}

impl ServerKind {
    const ALL: [Self; 4] = [
        Self::Doorman(None),
        Self::Doorman(Some(Signature::Hs256)),
        Self::Doorman(Some(Signature::Es256)),
        Self::Bare,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Doorman(None) => "doorman",
            Self::Doorman(Some(Signature::Hs256)) => "doorman-hs256",
            Self::Doorman(Some(Signature::Es256)) => "doorman-es256",
            Self::Bare => "bare",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) kind: ServerKind,
    pub(crate) core: Core,
}

impl Role {
    /// The role, if this process was started as a server.
    pub(crate) fn of_this_process() -> Option<Self> {
        let role = env::var(VARIABLE).ok()?;
        let (name, core) = role.split_once(' ')?;
        Some(Self {
            kind: ServerKind::ALL.into_iter().find(|it| it.name() == name)?,
            core: core.parse().ok()?,
        })
    }

    pub(crate) fn start(self) -> io::Result<ServerProcess> {
        ServerProcess::start(VARIABLE, format!("{} {}", self.kind.name(), self.core))
    }
}
