//! How etcd is reached.

use std::{io, path::PathBuf};

use doorman_openapi::ServerUrl;

use crate::util::small_file;

/// How etcd is reached. All files are PEM or text, and small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdSettings {
    /// The members of the cluster, or balancers of them; at least one.
    pub endpoints: Vec<ServerUrl>,
    /// The user; `None` without authentication.
    pub user: Option<EtcdUser>,
    /// Certificate authorities of the endpoints; `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The client certificate chain and its private key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl EtcdSettings {
    pub(super) fn has_tls_files(&self) -> bool {
        self.ca_file.is_some() || self.certificate.is_some()
    }
}

/// A user of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdUser {
    /// The name.
    pub name: String,
    /// The file with the password, which is read for each authentication.
    pub password_file: PathBuf,
}

impl EtcdUser {
    /// Blocks on the file system.
    pub(super) fn password(&self) -> io::Result<String> {
        let bytes = small_file::read(&self.password_file)?;
        // The error must not quote the password.
        let text = String::from_utf8(bytes).map_err(|_| io::Error::other("must be UTF-8"))?;
        let password = text.trim_end_matches(['\r', '\n']);
        if password.is_empty() {
            return Err(io::Error::other("must have a password"));
        }
        Ok(password.to_owned())
    }
}
