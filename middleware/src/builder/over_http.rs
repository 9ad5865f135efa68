//! The usual way to the control plane.

use tokio::runtime;

use super::{BuildError, Builder};
use crate::{
    Doorman,
    lease::{Address, HttpTransport, Worker},
};

impl Builder {
    /// The certificates in PEM that servers are trusted by, instead of those of the system.
    pub fn certificate_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority = Some(pem.into());
        self
    }

    /// A certificate with those that lead to its authority, and its key, all in PEM: what servers are shown that ask for one
    /// (`--tls-client-ca`). Besides [credentials](Self::credentials), which say what it is for.
    pub fn client_identity(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.identity = Some(pem.into());
        self
    }

    /// The handle, and the worker that leases for it once it is [run](Worker::run).
    ///
    /// # Errors
    /// [`BuildError`] when a setting makes no sense. Servers are not asked.
    pub fn build(self) -> Result<(Doorman, Worker), BuildError> {
        let servers = self.addresses()?;
        let encrypted = servers.iter().any(Address::is_encrypted);
        let transport = HttpTransport::new(
            self.authority.as_deref(),
            self.identity.as_deref(),
            encrypted,
        )
        .map_err(BuildError::Transport)?;
        self.assemble(servers, transport)
    }

    /// The handle, with its worker spawned on the current runtime. The handle can [tell](Doorman::worker_state) when it dies.
    ///
    /// # Errors
    /// [`BuildError`] when a setting makes no sense, or there is no runtime.
    pub fn spawn(self) -> Result<Doorman, BuildError> {
        let runtime = runtime::Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let (doorman, worker) = self.build()?;
        runtime.spawn(worker.run());
        Ok(doorman)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_makes_no_sense() {
        let good = || Doorman::builder("http://a:7300");
        let distrusting = good().certificate_authority("no certificate");
        assert!(matches!(distrusting.build(), Err(BuildError::Transport(_))));
        let nobody = good().client_identity("no certificate");
        assert!(matches!(nobody.build(), Err(BuildError::Transport(_))));
        assert!(matches!(good().spawn(), Err(BuildError::NoRuntime)));
        assert!(good().build().is_ok());
    }
}
