//! What an operator says of TLS.

use std::{collections::BTreeSet, path::Path, path::PathBuf};

/// The files that TLS goes by, all in PEM and followed as they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The server's certificate, then those that lead from it to one that clients know.
    pub certificate: PathBuf,
    /// The certificate's private key, not encrypted: PKCS #8, SEC1 or PKCS #1.
    pub key: PathBuf,
    /// The certificates of which clients must show one, or one that they have issued; absent: clients show none. It holds for every
    /// route, probes included.
    pub client_authority: Option<PathBuf>,
}

impl TlsSettings {
    /// Where the files lie, each directory once.
    pub(super) fn directories(&self) -> BTreeSet<&Path> {
        let files = [&self.certificate, &self.key];
        let parents = files.into_iter().chain(&self.client_authority);
        let parents = parents.filter_map(|file| file.parent());
        parents
            .map(|parent| match parent.as_os_str().is_empty() {
                true => Path::new("."),
                false => parent,
            })
            .collect()
    }
}
