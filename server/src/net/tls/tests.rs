//! Loading and reloading of certificate files.

use std::{fs, io, os::unix::fs::symlink, path::Path, sync::Arc, time::Duration};

use rcgen::{CertificateParams, KeyPair};
use rustls::{ClientConfig, HandshakeKind, pki_types::ServerName};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::sleep,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{
    testing::{Authority, NAME, NOW, Pair, settings},
    *,
};
use crate::util::testing::Log;

/// The error of a start with changed files.
fn load_error(change: impl FnOnce(&Path, &mut TlsSettings)) -> String {
    let home = TempDir::new().unwrap();
    Authority::new().issue().write(home.path());
    let mut settings = settings(home.path());
    change(home.path(), &mut settings);
    Tls::load(settings).map(drop).unwrap_err().to_string()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn load_error_is_one_line_with_flag_and_file() {
    let other = || Authority::new().issue();
    let cut = |text: String| text[..text.len() / 2].to_owned();
    type Change = Box<dyn Fn(&Path, &mut TlsSettings)>;
    let write = |file: &'static str, text: String| -> Change {
        Box::new(move |home, _| fs::write(home.join(file), &text).unwrap())
    };
    let damaged = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    let cases: Vec<(Change, &str, &str)> = vec![
        (
            Box::new(|home, _| fs::remove_file(home.join("tls.crt")).unwrap()),
            "--tls-cert",
            "cannot be read",
        ),
        (
            Box::new(|home, _| fs::remove_file(home.join("tls.key")).unwrap()),
            "--tls-key",
            "cannot be read",
        ),
        (
            write("tls.crt", String::new()),
            "--tls-cert",
            "has no certificate",
        ),
        (
            write("tls.crt", other().key),
            "--tls-cert",
            "has no certificate",
        ),
        (
            write("tls.crt", cut(other().certificate)),
            "--tls-cert",
            "invalid PEM",
        ),
        (
            write("tls.crt", damaged.to_owned()),
            "--tls-cert",
            "is malformed",
        ),
        (
            write("tls.key", String::new()),
            "--tls-key",
            "has no private key",
        ),
        (
            write("tls.key", other().certificate),
            "--tls-key",
            "has no private key",
        ),
        (
            write(
                "tls.key",
                include_str!("test_keys/ec.encrypted.pem").to_owned(),
            ),
            "--tls-key",
            "without a passphrase",
        ),
        (
            write("tls.key", other().key),
            "--tls-key",
            "does not match the first certificate in --tls-cert",
        ),
        (
            Box::new(|_, settings| settings.client_authority = Some("/nowhere/ca.pem".into())),
            "--tls-client-ca /nowhere/ca.pem",
            "cannot be read",
        ),
        (
            Box::new(|home, settings| settings.client_authority = Some(home.join("tls.key"))),
            "--tls-client-ca",
            "has no certificate",
        ),
    ];
    for (change, flag, problem) in cases {
        let error = load_error(change);
        assert!(
            error.starts_with(flag) && error.contains(problem),
            "{flag}, {problem}: {error}"
        );
        assert!(
            error.contains("tls.") || error.contains("ca.pem"),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(
            !error.contains("BEGIN EC") && !error.contains("BEGIN PRIVATE"),
            "{error}"
        );
    }
}

#[test]
fn rsa_ec_and_ed25519_keys_are_accepted() {
    let (rsa, ec, ed) = (
        include_str!("../../auth/test_keys/rsa.pem"),
        include_str!("../../auth/test_keys/ec.pem"),
        include_str!("../../auth/test_keys/ed.pem"),
    );
    for (key, form) in [
        (rsa, rsa),
        (rsa, include_str!("test_keys/rsa.pkcs1.pem")),
        (ec, ec),
        (ec, include_str!("test_keys/ec.sec1.pem")),
        (ed, ed),
    ] {
        let home = TempDir::new().unwrap();
        let params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        let certificate = params
            .self_signed(&KeyPair::from_pem(key).unwrap())
            .unwrap();
        let pair = Pair {
            certificate: certificate.pem(),
            key: form.to_owned(),
        };
        pair.write(home.path());
        assert!(Tls::load(settings(home.path())).is_ok(), "{form}");
    }
}

#[test]
fn expiry_is_read_and_expired_certificates_are_loaded() {
    // 2001-01-01, and 4000-01-01, which takes another form (RFC 5280, 4.1.2.5).
    for (years, not_after) in [((2000, 2001), 978_307_200), (NOW, 64_060_588_800)] {
        let home = TempDir::new().unwrap();
        Authority::new().issue_for(years).write(home.path());
        let tls = Tls::load(settings(home.path())).unwrap();
        assert_eq!(tls.not_after(), not_after);
    }
}

/// Follows the files in a directory while `test` changes them. Certificates differ by their expiry.
async fn following(test: impl AsyncFnOnce(&Path, &Authority, &Tls)) {
    let home = TempDir::new().unwrap();
    let authority = Authority::new();
    authority.issue_for(FIRST).write(home.path());
    let tls = Arc::new(Tls::load(settings(home.path())).unwrap());
    tokio::select! {
        () = Arc::clone(&tls).follow() => panic!("follower stopped"),
        () = test(home.path(), &authority, &tls) => {}
    }
}

const FIRST: (i32, i32) = (2000, 3000);
const SECOND: (i32, i32) = (2000, 3001);
/// 3000-01-01 and 3001-01-01.
const ENDS: [u64; 2] = [32_503_680_000, 32_535_216_000];

async fn until(tls: &Tls, is: impl Fn(&Tls) -> bool) {
    while !is(tls) {
        sleep(Duration::from_millis(10)).await;
    }
}

fn reloads(tls: &Tls, applied: u64, rejected: u64, is_current: bool) {
    let counts = ["applied", "refused"].map(|outcome| tls.reloads.get(outcome));
    assert_eq!(
        (counts, tls.is_current()),
        ([applied, rejected], is_current)
    );
}

#[tokio::test(start_paused = true)]
async fn new_certificate_is_activated() {
    following(async |home, authority, tls| {
        authority.issue_for(SECOND).write(home);
        until(tls, |tls| tls.not_after() == ENDS[1]).await;
        // Renamed into place, as most tools do.
        let next = authority.issue_for(FIRST);
        for (file, text) in [("tls.crt", next.certificate), ("tls.key", next.key)] {
            fs::write(home.join("new"), text).unwrap();
            fs::rename(home.join("new"), home.join(file)).unwrap();
        }
        until(tls, |tls| tls.not_after() == ENDS[0]).await;
        reloads(tls, 2, 0, true);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn replaced_symlink_is_followed_as_in_kubernetes_volume() {
    let home = TempDir::new().unwrap();
    let authority = Authority::new();
    for (version, years) in [("v1", FIRST), ("v2", SECOND)] {
        let directory = home.path().join(version);
        fs::create_dir(&directory).unwrap();
        authority.issue_for(years).write(&directory);
    }
    symlink("v1", home.path().join("..data")).unwrap();
    for file in ["tls.crt", "tls.key"] {
        symlink(Path::new("..data").join(file), home.path().join(file)).unwrap();
    }
    let tls = Arc::new(Tls::load(settings(home.path())).unwrap());
    assert_eq!(tls.not_after(), ENDS[0]);
    let turned = async {
        symlink("v2", home.path().join("..tmp")).unwrap();
        fs::rename(home.path().join("..tmp"), home.path().join("..data")).unwrap();
        until(&tls, |tls| tls.not_after() == ENDS[1]).await;
    };
    tokio::select! {
        () = Arc::clone(&tls).follow() => panic!("follower stopped"),
        () = turned => {}
    }
    reloads(&tls, 1, 0, true);
}

#[tokio::test(start_paused = true)]
async fn certificate_and_key_written_separately_are_activated_together() {
    following(async |home, authority, tls| {
        let next = authority.issue_for(SECOND);
        fs::write(home.join("tls.crt"), &next.certificate).unwrap();
        sleep(Duration::from_secs(8)).await;
        assert_eq!(tls.not_after(), ENDS[0]);
        reloads(tls, 0, 0, true);
        fs::write(home.join("tls.key"), &next.key).unwrap();
        until(tls, |tls| tls.not_after() == ENDS[1]).await;
        reloads(tls, 1, 0, true);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn unusable_files_are_rejected_once_and_active_certificate_stays() {
    let (log, _guard) = Log::capture();
    following(async |home, authority, tls| {
        let before = fs::read(home.join("tls.key")).unwrap();
        fs::write(home.join("tls.key"), authority.issue().key).unwrap();
        until(tls, |tls| !tls.is_current()).await;
        sleep(Duration::from_secs(60)).await;
        reloads(tls, 0, 1, false);
        assert_eq!(tls.not_after(), ENDS[0]);

        // Another error.
        fs::remove_file(home.join("tls.key")).unwrap();
        until(tls, |tls| tls.reloads.get("refused") == 2).await;

        // The files of the active certificate return.
        assert_eq!(log.count("valid again"), 0);
        fs::write(home.join("tls.key"), before).unwrap();
        until(tls, Tls::is_current).await;
        reloads(tls, 0, 2, true);
        assert_eq!(log.count("TLS files are valid again; the active"), 1);

        // Others follow after an error.
        fs::remove_file(home.join("tls.key")).unwrap();
        until(tls, |tls| !tls.is_current()).await;
        authority.issue_for(SECOND).write(home);
        until(tls, Tls::is_current).await;
        assert_eq!(
            log.count("certificate reloaded; TLS files are valid again"),
            1
        );
        assert_eq!(log.count("valid again"), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn invalid_certificate_does_not_replace_valid_one() {
    following(async |home, authority, tls| {
        for (rejected, years) in [(1, (2000, 2001)), (2, (3000, 3001))] {
            authority.issue_for(years).write(home);
            until(tls, |tls| tls.reloads.get("refused") == rejected).await;
            assert_eq!(tls.not_after(), ENDS[0]);
        }
    })
    .await;
}

async fn handshake(tls: &Tls, authority: &Authority) -> io::Result<()> {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let connector = TlsConnector::from(Arc::new(authority.client(&[])));
    let name = ServerName::try_from(NAME).unwrap();
    let acceptor = TlsAcceptor::from(Arc::clone(&tls.active.load().config));
    let (client, server) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
    client.and(server.map(drop)).map(drop)
}

#[tokio::test(start_paused = true)]
async fn handshakes_use_the_active_certificate() {
    let successor = Authority::new();
    following(async |home, authority, tls| {
        assert!(handshake(tls, authority).await.is_ok());
        assert!(handshake(tls, &successor).await.is_err());
        successor.issue_for(SECOND).write(home);
        until(tls, |tls| tls.not_after() == ENDS[1]).await;
        assert!(handshake(tls, &successor).await.is_ok());
        assert!(handshake(tls, authority).await.is_err());
    })
    .await;
}

/// The kinds of two handshakes of one client.
async fn kinds(tls: &Tls, client: &Arc<ClientConfig>) -> [HandshakeKind; 2] {
    let mut kinds = [HandshakeKind::Full; 2];
    for kind in &mut kinds {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let connector = TlsConnector::from(Arc::clone(client));
        let acceptor = TlsAcceptor::from(Arc::clone(&tls.active.load().config));
        let name = ServerName::try_from(NAME).unwrap();
        let (near, far) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
        let (mut near, mut far) = (near.unwrap(), far.unwrap());
        // The session ticket arrives with the first bytes.
        far.write_all(b"a").await.unwrap();
        far.flush().await.unwrap();
        near.read_exact(&mut [0; 1]).await.unwrap();
        *kind = near.get_ref().1.handshake_kind().unwrap();
    }
    kinds
}

#[tokio::test]
async fn client_certificates_are_required_on_resumed_connections() {
    let home = TempDir::new().unwrap();
    let authority = Authority::new();
    authority.issue().write(home.path());
    let shown = authority.issue();
    let file = home.path().join("ca.pem");
    fs::write(&file, authority.pem()).unwrap();
    for version in rustls::ALL_VERSIONS {
        let client = authority.client_of(&[], &[version], Some(&shown));
        let client = Arc::new(client);
        let resumes = Tls::load(settings(home.path())).unwrap();
        let [_, next] = kinds(&resumes, &client).await;
        assert_eq!(next, HandshakeKind::Resumed, "{version:?}");

        let asks = TlsSettings {
            client_authority: Some(file.clone()),
            ..settings(home.path())
        };
        let asks = Tls::load(asks).unwrap();
        let client = Arc::new(authority.client_of(&[], &[version], Some(&shown)));
        let [_, next] = kinds(&asks, &client).await;
        assert_eq!(next, HandshakeKind::Full, "{version:?}");
    }
}
