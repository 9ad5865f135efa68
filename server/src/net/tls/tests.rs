//! Files that are taken and files that are not, at the start and as they change.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

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

/// What a start on these files fails with.
fn refusal(change: impl FnOnce(&Path, &mut TlsSettings)) -> String {
    let home = TempDir::new().unwrap();
    Authority::new().issue().write(home.path());
    let mut settings = settings(home.path());
    change(home.path(), &mut settings);
    Tls::load(settings).map(drop).unwrap_err().to_string()
}

#[test]
fn what_cannot_be_used_is_refused_in_one_line_that_names_the_flag_and_the_file() {
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
            "is no PEM",
        ),
        (
            write("tls.crt", damaged.to_owned()),
            "--tls-cert",
            "is damaged",
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
            "is not the key of the first certificate in --tls-cert",
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
    for (change, flag, why) in cases {
        let said = refusal(change);
        assert!(
            said.starts_with(flag) && said.contains(why),
            "{flag}, {why}: {said}"
        );
        assert!(said.contains("tls.") || said.contains("ca.pem"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            !said.contains("BEGIN EC") && !said.contains("BEGIN PRIVATE"),
            "{said}"
        );
    }
}

#[test]
fn keys_may_be_of_every_usual_kind_and_form() {
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
fn a_certificate_says_until_when_it_counts_and_none_is_too_old_to_start_with() {
    // 2001-01-01, and 4000-01-01, which takes another form (RFC 5280, 4.1.2.5).
    for (years, not_after) in [((2000, 2001), 978_307_200), (NOW, 64_060_588_800)] {
        let home = TempDir::new().unwrap();
        Authority::new().issue_for(years).write(home.path());
        let tls = Tls::load(settings(home.path())).unwrap();
        assert_eq!(tls.not_after(), not_after);
    }
}

/// Follows the files in a folder while `test` changes them. Each certificate is told by when it ends.
async fn following(test: impl AsyncFnOnce(&Path, &Authority, &Tls)) {
    let home = TempDir::new().unwrap();
    let authority = Authority::new();
    authority.issue_for(FIRST).write(home.path());
    let tls = Arc::new(Tls::load(settings(home.path())).unwrap());
    tokio::select! {
        () = Arc::clone(&tls).follow() => panic!("it stopped following"),
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

fn reloads(tls: &Tls, applied: u64, refused: u64, is_current: bool) {
    let expected = Reloads {
        applied,
        refused,
        is_current,
    };
    assert_eq!(tls.reloads(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_new_certificate_comes_into_force() {
    following(async |home, authority, tls| {
        authority.issue_for(SECOND).write(home);
        until(tls, |tls| tls.not_after() == ENDS[1]).await;
        // Renamed into place, as most tools do it.
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
async fn a_link_that_is_turned_is_followed_as_in_a_volume_of_kubernetes() {
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
        () = Arc::clone(&tls).follow() => panic!("it stopped following"),
        () = turned => {}
    }
    reloads(&tls, 1, 0, true);
}

#[tokio::test(start_paused = true)]
async fn a_pair_that_is_written_one_after_the_other_comes_into_force_when_it_is_whole() {
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
async fn what_stays_wrong_is_told_once_and_the_good_one_stays() {
    following(async |home, authority, tls| {
        let before = fs::read(home.join("tls.key")).unwrap();
        fs::write(home.join("tls.key"), authority.issue().key).unwrap();
        until(tls, |tls| !tls.reloads().is_current).await;
        sleep(Duration::from_secs(60)).await;
        reloads(tls, 0, 1, false);
        assert_eq!(tls.not_after(), ENDS[0]);

        // Something else is wrong now.
        fs::remove_file(home.join("tls.key")).unwrap();
        until(tls, |tls| tls.reloads().refused == 2).await;

        // What is in force comes back: nothing has changed, and nothing is wrong any more.
        fs::write(home.join("tls.key"), before).unwrap();
        until(tls, |tls| tls.reloads().is_current).await;
        reloads(tls, 0, 2, true);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_does_not_count_replaces_none_that_does() {
    following(async |home, authority, tls| {
        for (refused, years) in [(1, (2000, 2001)), (2, (3000, 3001))] {
            authority.issue_for(years).write(home);
            until(tls, |tls| tls.reloads().refused == refused).await;
            assert_eq!(tls.not_after(), ENDS[0]);
        }
    })
    .await;
}

/// What shaking hands comes to.
async fn shake(tls: &Tls, authority: &Authority) -> std::io::Result<()> {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let connector = TlsConnector::from(Arc::new(authority.client(&[])));
    let name = ServerName::try_from(NAME).unwrap();
    let acceptor = TlsAcceptor::from(tls.config());
    let (client, server) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
    client.and(server.map(drop)).map(drop)
}

#[tokio::test(start_paused = true)]
async fn handshakes_go_by_the_certificate_in_force() {
    let successor = Authority::new();
    following(async |home, authority, tls| {
        assert!(shake(tls, authority).await.is_ok());
        assert!(shake(tls, &successor).await.is_err());
        successor.issue_for(SECOND).write(home);
        until(tls, |tls| tls.not_after() == ENDS[1]).await;
        assert!(shake(tls, &successor).await.is_ok());
        assert!(shake(tls, authority).await.is_err());
    })
    .await;
}

/// What kinds of handshakes a client with a certificate comes to, one after the other.
async fn kinds(tls: &Tls, client: &Arc<ClientConfig>) -> [HandshakeKind; 2] {
    let mut kinds = [HandshakeKind::Full; 2];
    for kind in &mut kinds {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let connector = TlsConnector::from(Arc::clone(client));
        let acceptor = TlsAcceptor::from(tls.config());
        let name = ServerName::try_from(NAME).unwrap();
        let (near, far) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
        let (mut near, mut far) = (near.unwrap(), far.unwrap());
        // What it may resume by comes with the first bytes.
        far.write_all(b"a").await.unwrap();
        far.flush().await.unwrap();
        near.read_exact(&mut [0; 1]).await.unwrap();
        *kind = near.get_ref().1.handshake_kind().unwrap();
    }
    kinds
}

#[tokio::test]
async fn where_clients_must_show_certificates_they_show_them_on_each_connection() {
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
