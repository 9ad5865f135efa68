//! TLS with curl, the commands and the layer, and certificate rotation.

use std::{
    process::{Command, Output},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
};

use tower_doorman::{Cost, Doorman};

use crate::support::{Authority, ControlPlane, DOCUMENT, Process, TIMEOUT, curl, doorman, until};

/// Runs a command that calls a server.
fn command(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(doorman());
    command.args(args).envs(variables.iter().copied());
    command.output().expect("it runs")
}

fn ca(server: &ControlPlane) -> String {
    server.home().join("ca.pem").display().to_string()
}

#[test]
fn curl_and_commands_trust_only_known_authorities() {
    let server = ControlPlane::start_encrypted(DOCUMENT, &Authority::new());
    assert!(server.address().starts_with("https://"));
    for version in ["--http1.1", "--http2"] {
        assert_eq!(server.curl("/readyz", &[version]).status, 200);
    }
    let discovery = server.get("/v1/discovery");
    assert_eq!(
        discovery["mastership"]["master_address"],
        server.address(),
        "{discovery}"
    );

    let (address, ca) = (server.address(), ca(&server));
    let shown = command(&["show", "--server", address, "--ca-file", &ca], &[]);
    assert!(shown.status.success(), "{shown:?}");
    let leased = command(
        &["get", "api", "--wants", "5"],
        &[("DOORMAN_SERVER", address), ("DOORMAN_CA_FILE", &ca)],
    );
    assert!(leased.status.success(), "{leased:?}");

    let other = server.home().join("other.pem");
    std::fs::write(&other, Authority::new().pem()).expect("the directory exists");
    let other = other.display().to_string();
    for (args, hint) in [
        (
            vec!["show", "--server", address, "--ca-file", &other],
            "--ca-file",
        ),
        (
            vec!["ready", "--server", address, "--ca-file", &other],
            "--ca-file",
        ),
    ] {
        let failed = command(&args, &[]);
        assert_eq!(failed.status.code(), Some(3), "{failed:?}");
        let stderr = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(stderr.contains(hint), "{stderr}");
        let names = "its certificate \"CN=rcgen self signed cert\" was issued by \"CN=";
        assert!(stderr.contains(names), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    // By the authorities of this machine, which may have none.
    let failed = command(&["get", "api", "--wants", "5", "--server", address], &[]);
    assert!(!failed.status.success(), "{failed:?}");
    let stderr = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(stderr.contains("--ca-file"), "{stderr}");
    let plain = address.replace("https:", "http:");
    let failed = command(&["show", "--server", &plain], &[]);
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    let stderr = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(stderr.contains("https://"), "{stderr}");
}

#[test]
fn ready_uses_the_environment_of_the_local_server() {
    let server = ControlPlane::start_encrypted(DOCUMENT, &Authority::new());
    let port = server.address().rsplit(':').next().expect("a port");
    // As in a container: all addresses, and a certificate for another name.
    let listen = format!("0.0.0.0:{port}");
    let ready = |variables: &[(&str, &str)]| command(&["ready"], variables).status.code();
    let listen = ("DOORMAN_LISTEN", listen.as_str());
    let certificate = ("DOORMAN_TLS_CERT", "/somewhere/tls.crt");
    assert_eq!(ready(&[listen, certificate]), Some(0));
    assert_eq!(ready(&[listen]), Some(1), "the server requires TLS");
    assert_eq!(server.terminate().code(), Some(0));
    assert_eq!(ready(&[listen, certificate]), Some(3));
}

#[test]
fn unencrypted_tokens_on_a_public_address_are_warned_about() {
    let home = tempfile::TempDir::new().expect("a temporary directory");
    Authority::new().issue(home.path(), "tls");
    std::fs::write(home.path().join("secret"), [b's'; 32]).expect("the directory is new");
    let [data, secret, certificate, key] = ["data", "secret", "tls.crt", "tls.key"]
        .map(|name| home.path().join(name).display().to_string());
    let tls = ["--tls-cert", &certificate, "--tls-key", &key];
    for (listen, tls, expected) in [
        ("0.0.0.0:0", &[][..], true),
        ("127.0.0.1:0", &[], false),
        ("0.0.0.0:0", &tls, false),
    ] {
        let mut args = vec!["--listen", listen, "--data-dir", &data];
        args.extend(["--auth-secret-file", &secret]);
        args.extend(tls);
        let mut process = Process::start(&doorman(), &args);
        process.wait_for(|line| line.contains("Try: curl").then_some(()));
        process.terminate();
        process.wait_for(|line| line.ends_with("stopped").then_some(()));
        let warned = process.output().iter().any(|it| it.contains("unencrypted"));
        assert_eq!(warned, expected, "{args:?}");
    }
}

#[test]
fn certificate_rotation_under_load_fails_no_request() {
    let authority = Authority::new();
    let server = ControlPlane::start_encrypted(DOCUMENT, &authority);
    let (answered, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let applied = || {
        let metrics = server.curl("/metrics", &[]).body;
        let series = "doorman_tls_reloads_total{outcome=\"applied\"} ";
        let count = metrics.lines().find_map(|it| it.strip_prefix(series));
        count.and_then(|it| it.parse::<u64>().ok())
    };
    let (url, trusted) = (format!("{}/readyz", server.address()), ca(&server));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    // Each request has its own handshake; curl panics on failure.
                    assert_eq!(curl(&[&url, "--cacert", &trusted]).status, 200);
                    answered.fetch_add(1, Relaxed);
                }
            });
        }
        for round in 1..=3 {
            authority.issue(server.home(), "tls");
            until("the next certificate is active", || {
                applied() == Some(round)
            });
        }
        over.store(true, Relaxed);
    });
    assert!(answered.load(Relaxed) > 2);

    // A certificate from another authority: clients of the old one reject it.
    let successor = Authority::new();
    successor.issue(server.home(), "tls");
    let file = server.home().join("successor.pem");
    std::fs::write(&file, successor.pem()).expect("the directory exists");
    let [before, after] = [ca(&server), file.display().to_string()];
    let ready = |ca: &str| {
        let args = ["ready", "--server", server.address(), "--ca-file", ca];
        command(&args, &[]).status.code()
    };
    until("the other authority's certificate is active", || {
        ready(&after) == Some(0)
    });
    assert_eq!(ready(&before), Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layer_leases_only_from_a_trusted_server() {
    let authority = Authority::new();
    let server = ControlPlane::start_encrypted(DOCUMENT, &authority);
    let layer = |authority: &Authority| {
        Doorman::builder(server.address())
            .certificate_authority(authority.pem())
            .service("shop")
            .spawn()
            .expect("it can be built")
    };
    let trusting = layer(&authority);
    let distrusting = layer(&Authority::new());
    let (leased, unleased) = (trusting.rate("api"), distrusting.rate("api"));
    // `Rate` is pessimistic: it admits nothing without a lease.
    let admitted = tokio::time::timeout(TIMEOUT, leased.wait(Cost::ONE)).await;
    assert!(admitted.expect("in time").is_ok());
    assert!(unleased.try_acquire(Cost::ONE).is_err());
    let holders = server.get("/v1/resources/api")["clients"].clone();
    assert_eq!(holders, 1.0);
    drop(distrusting.shutdown().await);
    // The shutdown closes the open connections of the layer.
    assert_eq!(server.terminate().code(), Some(0));
    drop(trusting);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layer_follows_rotated_authority_and_client_certificate() {
    let home = tempfile::TempDir::new().expect("a temporary directory");
    let path = |name: &str| home.path().join(name).display().to_string();
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("it is writable");
    // Both sides trust only this authority and have certificates from it.
    let rotate = |authority: &Authority| {
        authority.issue(home.path(), "tls");
        authority.issue(home.path(), "own");
        write("ca.pem", &authority.pem());
    };
    let start = |listen: &str| {
        let config = format!("file:{}", path("limits.yaml"));
        let [data, certificate, key, ca] = ["data", "tls.crt", "tls.key", "ca.pem"].map(path);
        let mut args = vec!["--listen", listen, "--config", &config, "--data-dir", &data];
        args.extend(["--tls-cert", &certificate, "--tls-key", &key]);
        args.extend(["--tls-client-ca", &ca]);
        let mut process = Process::start(&doorman(), &args);
        let address = process.wait_for_address();
        (process, address)
    };
    write("limits.yaml", DOCUMENT);
    rotate(&Authority::new());
    let (server, address) = start("127.0.0.1:0");
    let [ca, certificate, key] = ["ca.pem", "own.crt", "own.key"].map(path);
    let holders = || {
        let url = format!("{address}/v1/resources/api");
        let args = [url.as_str(), "--cacert", &ca, "--cert", &certificate];
        let response = curl(&[&args[..], &["--key", &key]].concat());
        let view: serde_json::Value = serde_json::from_str(&response.body).expect("JSON");
        view["clients"].clone()
    };
    let layer = Doorman::builder(&address)
        .certificate_authority_file(&ca)
        .client_identity_files(&certificate, &key)
        .spawn()
        .expect("it can be built");
    let _rate = layer.rate("api");
    until("the layer holds a lease", || holders() == 1.0);

    // Neither side trusts the old certificates, and the restarted server has lost its leases.
    server.kill();
    rotate(&Authority::new());
    let (_, listen) = address.split_once("://").expect("an address");
    let (_server, _) = start(listen);
    until("the layer holds a lease", || holders() == 1.0);
}
