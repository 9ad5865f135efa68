//! TLS through every public door: curl, the commands, the layer; and a certificate that is replaced meanwhile.

use std::{
    process::{Command, Output},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
};

use tower_doorman::{Cost, Doorman};

use crate::support::{Authority, ControlPlane, DOCUMENT, Process, TIMEOUT, curl, doorman, until};

/// One of the commands that ask a server, with nothing of this test's own environment.
fn command(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(doorman());
    command.args(args).envs(variables.iter().copied());
    command.output().expect("it runs")
}

fn ca(server: &ControlPlane) -> String {
    server.home().join("ca.pem").display().to_string()
}

#[test]
fn curl_and_the_commands_ask_by_tls_and_believe_nobody_whom_they_do_not_know() {
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
    std::fs::write(&other, Authority::new().pem()).expect("the folder is there");
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
        let refused = command(&args, &[]);
        assert_eq!(refused.status.code(), Some(3), "{refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(hint), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let plain = address.replace("https:", "http:");
    let refused = command(&["show", "--server", &plain], &[]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("https://"), "{said}");
}

#[test]
fn ready_asks_the_server_of_its_machine_by_the_variables_that_this_is_started_with() {
    let server = ControlPlane::start_encrypted(DOCUMENT, &Authority::new());
    let port = server.address().rsplit(':').next().expect("a port");
    // As in a container: on all addresses, and by a certificate for another name.
    let listen = format!("0.0.0.0:{port}");
    let ready = |variables: &[(&str, &str)]| command(&["ready"], variables).status.code();
    let listens = ("DOORMAN_LISTEN", listen.as_str());
    let speaks = ("DOORMAN_TLS_CERT", "/somewhere/tls.crt");
    assert_eq!(ready(&[listens, speaks]), Some(0));
    assert_eq!(ready(&[listens]), Some(1), "it speaks nothing but TLS");
    assert_eq!(server.terminate().code(), Some(0));
    let listens = ("DOORMAN_LISTEN", listen.as_str());
    assert_eq!(ready(&[listens, speaks]), Some(3));
}

#[test]
fn tokens_in_the_clear_are_warned_of_where_others_could_read_them() {
    let home = tempfile::TempDir::new().expect("a folder for temporary files");
    Authority::new().issue(home.path(), "tls");
    std::fs::write(home.path().join("secret"), [b's'; 32]).expect("the folder is new");
    let [data, secret, certificate, key] = ["data", "secret", "tls.crt", "tls.key"]
        .map(|name| home.path().join(name).display().to_string());
    let tls = ["--tls-cert", &certificate, "--tls-key", &key];
    for (listen, tls, is_warned) in [
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
        assert_eq!(warned, is_warned, "{args:?}");
    }
}

#[test]
fn a_certificate_that_is_replaced_under_load_fails_no_request() {
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
                    // Each with a handshake of its own; curl fails here when one does.
                    assert_eq!(curl(&[&url, "--cacert", &trusted]).status, 200);
                    answered.fetch_add(1, Relaxed);
                }
            });
        }
        for round in 1..=3 {
            authority.issue(server.home(), "tls");
            until("the next certificate is in force", || {
                applied() == Some(round)
            });
        }
        over.store(true, Relaxed);
    });
    assert!(answered.load(Relaxed) > 2);

    // From another authority: who knows only the one before stays away.
    let successor = Authority::new();
    successor.issue(server.home(), "tls");
    let file = server.home().join("successor.pem");
    std::fs::write(&file, successor.pem()).expect("the folder is there");
    let [before, after] = [ca(&server), file.display().to_string()];
    let ready = |ca: &str| {
        let args = ["ready", "--server", server.address(), "--ca-file", ca];
        command(&args, &[]).status.code()
    };
    until("that of another authority is in force", || {
        ready(&after) == Some(0)
    });
    assert_eq!(ready(&before), Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_layer_leases_by_tls_from_whom_it_knows_and_from_nobody_else() {
    let authority = Authority::new();
    let server = ControlPlane::start_encrypted(DOCUMENT, &authority);
    let by = |authority: &Authority| {
        Doorman::builder(server.address())
            .certificate_authority(authority.pem())
            .service("shop")
            .spawn()
            .expect("it can be built")
    };
    let known = by(&authority);
    let stranger = by(&Authority::new());
    let (leases, none) = (known.rate("api"), stranger.rate("api"));
    // Direct use is pessimistic: it admits nothing without a lease.
    let admitted = tokio::time::timeout(TIMEOUT, leases.wait(Cost::ONE)).await;
    assert!(admitted.expect("in time").is_ok());
    assert!(none.try_acquire(Cost::ONE).is_err());
    let holders = server.get("/v1/resources/api")["clients"].clone();
    assert_eq!(holders, 1.0);
    drop(stranger.shutdown().await);
    // Connections of the layer stay open: the stop ends them.
    assert_eq!(server.terminate().code(), Some(0));
    drop(known);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_layer_follows_the_files_of_its_authority_and_of_its_own_certificate() {
    let home = tempfile::TempDir::new().expect("a folder for temporary files");
    let path = |name: &str| home.path().join(name).display().to_string();
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("a folder");
    // Everybody's certificate is from this authority, and everybody believes no other.
    let by = |authority: &Authority| {
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
    by(&Authority::new());
    let (server, address) = start("127.0.0.1:0");
    let [ca, certificate, key] = ["ca.pem", "own.crt", "own.key"].map(path);
    let holders = || {
        let url = format!("{address}/v1/resources/api");
        let args = [url.as_str(), "--cacert", &ca, "--cert", &certificate];
        let answer = curl(&[&args[..], &["--key", &key]].concat());
        let view: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
        view["clients"].clone()
    };
    let layer = Doorman::builder(&address)
        .certificate_authority_file(&ca)
        .client_identity_files(&certificate, &key)
        .spawn()
        .expect("it can be built");
    let _rate = layer.rate("api");
    until("the layer holds a lease", || holders() == 1.0);

    // Nothing of before is good any more: neither side believes the other by it. What the server knew of holders is gone, too.
    server.kill();
    by(&Authority::new());
    let (_, listen) = address.split_once("://").expect("an address");
    let (_server, _) = start(listen);
    until("the layer holds a lease", || holders() == 1.0);
}
