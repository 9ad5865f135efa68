use std::{fs, path::PathBuf};

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use tokio::time::sleep;

use super::*;
use crate::lease::transport::Pem;

/// An authority's file, and the connections that go by it.
struct Watched {
    _home: TempDir,
    file: PathBuf,
    connections: Arc<Connections>,
}

impl Watched {
    fn new() -> Self {
        let home = TempDir::new().unwrap();
        let file = home.path().join("ca.pem");
        fs::write(&file, certificate()).unwrap();
        let certificates = Certificates {
            authority: Some(Pem::Files(vec![file.clone()])),
            identity: None,
        };
        Self {
            _home: home,
            file,
            connections: Arc::new(Connections::new(certificates, true).unwrap()),
        }
    }

    /// Whether a request that is sent now goes by what the file says.
    async fn follows(&self) -> bool {
        self.connections.client().await;
        let there = self.connections.certificates.read().unwrap();
        self.connections.current().fingerprint == there.fingerprint()
    }
}

fn certificate() -> String {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["doorman.test".to_owned()]);
    certificate.unwrap().self_signed(&key).unwrap().pem()
}

#[tokio::test(start_paused = true)]
async fn the_files_are_read_again_once_a_second_at_most() {
    let watched = Watched::new();
    assert!(watched.follows().await);
    fs::write(&watched.file, certificate()).unwrap();
    assert!(!watched.follows().await, "that was read just now");
    sleep(BETWEEN_LOOKS).await;
    assert!(watched.follows().await);
    fs::write(&watched.file, "no certificate").unwrap();
    sleep(BETWEEN_LOOKS).await;
    assert!(!watched.follows().await, "what was good last stays");
    fs::write(&watched.file, certificate()).unwrap();
    sleep(BETWEEN_LOOKS).await;
    assert!(watched.follows().await);
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_read_to_its_end_holds_up_one_request_for_half_a_second_and_no_other()
{
    use futures_util::FutureExt as _;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let watched = Watched::new();
    // Whoever opens it waits for one who writes.
    fs::remove_file(&watched.file).unwrap();
    mknodat(
        CWD,
        &watched.file,
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();

    let mut first = Box::pin(watched.connections.client());
    assert!(first.as_mut().now_or_never().is_none());
    for _ in 0..1_000 {
        let client = watched.connections.client().now_or_never();
        assert!(client.is_some(), "one look is under way");
    }
    tokio::time::advance(LOOK_TIME).await;
    assert!(first.now_or_never().is_some());
    tokio::time::advance(60 * BETWEEN_LOOKS).await;
    assert!(watched.connections.client().now_or_never().is_some());

    // It is read at last, and nobody waits for that.
    fs::write(&watched.file, certificate()).unwrap();
    while matches!(watched.connections.current().look, Look::UnderWay { .. }) {
        tokio::task::yield_now().await;
    }
    fs::remove_file(&watched.file).unwrap();
    fs::write(&watched.file, certificate()).unwrap();
    sleep(BETWEEN_LOOKS).await;
    assert!(watched.follows().await);
}
