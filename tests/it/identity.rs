//! Authentication with tokens: creation, use, rotation, and secrecy.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

use crate::support::{Process, Service, curl, doorman, until};

const SECRET: &str = "the first secret, of more than thirty-two bytes";
const NEXT: &str = "the next secret, of more than thirty-two bytes too";

/// A control plane that verifies tokens with a secret.
struct Server {
    process: Process,
    address: String,
    home: TempDir,
}

impl Server {
    fn start(more: &[&str]) -> Self {
        let home = TempDir::new().expect("a temporary directory");
        let file = |name: &str| home.path().join(name).display().to_string();
        let limits = "resources: [{identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE, refresh_interval: 1}}]";
        fs::write(file("limits.yaml"), limits).expect("the directory is new");
        fs::write(file("secret"), SECRET).expect("the directory is new");
        let (config, data, secret) = (
            format!("file:{}", file("limits.yaml")),
            file("data"),
            file("secret"),
        );
        let mut args = vec![
            "--listen",
            "127.0.0.1:0",
            "--config",
            &config,
            "--data-dir",
            &data,
            "--auth-secret-file",
            &secret,
        ];
        args.extend(more);
        let mut process = Process::start_logging(&doorman(), &args, "trace");
        let address = process.wait_for_address();
        Self {
            process,
            address,
            home,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Creates a token with the secret in a file.
    fn token(&self, secret: &str, more: &[&str]) -> String {
        let output = run(Command::new(doorman())
            .args(["token", "--sub", "tester", "--secret-file"])
            .arg(self.file(secret))
            .args(more));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout)
            .expect("text")
            .trim()
            .to_owned()
    }

    fn status(&self, token: &str) -> u16 {
        let header = format!("authorization: Bearer {token}");
        curl(&[&format!("{}/v1/status", self.address), "-H", &header]).status
    }
}

fn run(command: &mut Command) -> Output {
    command.env_remove("DOORMAN_LOG").output().expect("it runs")
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("the directory exists");
}

#[test]
fn service_follows_replaced_token_and_secret_files() {
    let server = Server::start(&[]);
    let file = server.file("service.token");
    // With an invalid token the service runs without a lease.
    write(&file, "not.a.token");
    let path = file.display().to_string();
    let service = Service::start(&server.address, &["--token-file", &path]);
    assert_eq!(curl(&[service.address()]).status, 200);
    assert_eq!(service.lease("api"), None);

    write(
        &file,
        &server.token(
            "secret",
            &["--scope", "capacity", "--client-id", "service*"],
        ),
    );
    let leased = || service.lease("api").is_some();
    until("a lease with the valid token", leased);

    // Token and secret are replaced: the old token becomes invalid, the lease is renewed.
    let operator = server.token("secret", &["--scope", "status:read"]);
    assert_eq!(server.status(&operator), 200);
    write(&server.file("next"), NEXT);
    write(
        &file,
        &server.token("next", &["--scope", "capacity", "--client-id", "service*"]),
    );
    write(&server.file("secret"), NEXT);
    until("the next secret is active", || {
        server.status(&operator) == 401
    });
    let operator = server.token("secret", &["--scope", "status:read"]);
    assert_eq!(server.status(&operator), 200);
    until("a lease with the next token", leased);

    // A token for other client IDs leases nothing.
    write(
        &file,
        &server.token("secret", &["--scope", "capacity", "--client-id", "other*"]),
    );
    let other = Service::start(&server.address, &["--token-file", &path]);
    assert_eq!(curl(&[other.address()]).status, 200);
    assert_eq!(other.lease("api"), None);
}

#[test]
fn commands_use_tokens_and_server_output_has_none() {
    let mut server = Server::start(&["--metrics-listen", "127.0.0.1:0"]);
    let token = server.token(
        "secret",
        &["--scope", "status:read,capacity", "--ttl", "5m"],
    );
    let file = server.file("token");
    write(&file, &token);
    let command = |line: &[&str]| {
        let mut command = Command::new(doorman());
        command
            .args(line)
            .args(["--server", &server.address])
            .env_remove("DOORMAN_TOKEN");
        command
    };
    let with_file = [
        "get",
        "db",
        "--wants",
        "5",
        "--token-file",
        &file.display().to_string(),
    ];
    assert!(run(&mut command(&with_file)).status.success());
    let with_variable = run(command(&["show"]).env("DOORMAN_TOKEN", &token));
    assert!(
        String::from_utf8_lossy(&with_variable.stdout).contains("db"),
        "{with_variable:?}"
    );
    let without = run(&mut command(&["show"]));
    assert_eq!(without.status.code(), Some(1), "{without:?}");
    assert!(
        String::from_utf8_lossy(&without.stderr).contains("token"),
        "{without:?}"
    );

    // Invalid tokens and secrets are not printed either.
    assert_eq!(server.status(&format!("{token}x")), 401);
    write(&server.file("secret"), "too short a secret");
    let rejected = |line: &str| line.contains("--auth-secret-file").then_some(());
    server.process.wait_for(rejected);
    let output = server.process.output().join("\n");
    assert!(
        output.contains("DEBUG") || output.contains("TRACE"),
        "the log is detailed"
    );
    let secrets = [SECRET, "too short a secret"]
        .into_iter()
        .chain(token.split('.'));
    for secret in secrets {
        assert!(!output.contains(secret), "{secret} in:\n{output}");
    }

    let metrics = output
        .lines()
        .find_map(|line| line.strip_prefix("Metrics and probes on "));
    let metrics = curl(&[metrics.expect("their address")]);
    assert!(metrics.body.contains("doorman_leases 1"), "{metrics:?}");
}

#[test]
fn public_address_without_authentication_is_rejected_with_options() {
    let home = TempDir::new().expect("a temporary directory");
    let output = run(Command::new(doorman())
        .args(["--listen", "0.0.0.0:0", "--data-dir"])
        .arg(home.path().join("data")));
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    for option in [
        "--auth-secret-file",
        "--auth-key-file",
        "--auth-jwks",
        "127.0.0.1",
        "--insecure-no-auth",
    ] {
        assert!(text.contains(option), "{option} in {text}");
    }
    // Authentication and --insecure-no-auth exclude each other.
    let both =
        run(Command::new(doorman()).args(["--insecure-no-auth", "--auth-secret-file", "secret"]));
    assert_eq!(both.status.code(), Some(2), "{both:?}");
}

#[test]
fn command_in_the_banner_works_in_a_shell() {
    let mut server = Server::start(&[]);
    let line = server
        .process
        .wait_for(|line| line.strip_prefix("Try: ").map(str::to_owned));
    let program = doorman();
    let directory = program.parent().expect("a directory").display();
    let path = std::env::var("PATH").expect("tests have a path");
    let output = run(Command::new("sh")
        .args(["-c", &line])
        .env("PATH", format!("{directory}:{path}")));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\"gets\""), "{line}\n{output:?}");
}
