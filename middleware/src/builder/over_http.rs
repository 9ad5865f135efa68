//! The usual way to the control plane.

use std::path::PathBuf;

use tokio::runtime;

use super::{BuildError, Builder};
use crate::{
    Doorman,
    lease::{Address, HttpTransport, Pem, Worker},
};

impl Builder {
    /// The certificates in PEM that servers are trusted by, instead of those of the system.
    pub fn certificate_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.authority = Some(Pem::Text(pem.into()));
        self
    }

    /// The same from a file. It is read again before requests to the control plane, once a second at most, so that an authority that
    /// changes needs no restart. What it says then goes for every request from there on, which is sent by a new connection: those of
    /// before only end what is under way on them. What is of no use replaces nothing, and the log says so; a file that cannot be read in
    /// half a second holds up no request.
    pub fn certificate_authority_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.certificates.authority = Some(Pem::Files(vec![path.into()]));
        self
    }

    /// A certificate with those that lead to its authority, and its key, all in PEM: what servers are shown that ask for one
    /// (`--tls-client-ca`). Besides [credentials](Self::credentials), which say what it is for.
    pub fn client_identity(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.identity = Some(Pem::Text(pem.into()));
        self
    }

    /// The same from two files, that of the certificate and that of its key. They are read again as an
    /// [authority's](Self::certificate_authority_file) is: for certificates that last for hours. While they do not go together, as when
    /// one of them has been written and the other has not, those of before are shown.
    pub fn client_identity_files(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.certificates.identity = Some(Pem::Files(vec![certificate.into(), key.into()]));
        self
    }

    /// The handle, and the worker that leases for it once it is [run](Worker::run).
    ///
    /// # Errors
    /// [`BuildError`] when a setting makes no sense, or a file of certificates cannot be read. Servers are not asked.
    pub fn build(mut self) -> Result<(Doorman, Worker), BuildError> {
        let servers = self.addresses()?;
        let encrypted = servers.iter().any(Address::is_encrypted);
        let certificates = std::mem::take(&mut self.certificates);
        let transport =
            HttpTransport::new(certificates, encrypted).map_err(BuildError::Transport)?;
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
        let nowhere = good().client_identity_files("/nowhere/tls.crt", "/nowhere/tls.key");
        let Err(BuildError::Transport(error)) = nowhere.build() else {
            panic!("it cannot be read");
        };
        assert!(error.to_string().contains("/nowhere/tls.crt"), "{error}");
        assert!(matches!(good().spawn(), Err(BuildError::NoRuntime)));
        assert!(good().build().is_ok());
    }
}
