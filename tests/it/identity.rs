//! A control plane that asks who calls, with real processes: tokens are made, shown, replaced, and never said aloud.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

use crate::support::{Process, Service, curl, doorman, until};

const SECRET: &str = "the first secret, of more than thirty-two bytes";
const NEXT: &str = "the next secret, of more than thirty-two bytes too";

/// A control plane with a secret, and a folder for its files.
struct Guarded {
    process: Process,
    address: String,
    home: TempDir,
}

impl Guarded {
    fn start(more: &[&str]) -> Self {
        let home = TempDir::new().expect("a folder for temporary files");
        let file = |name: &str| home.path().join(name).display().to_string();
        let limits = "resources: [{identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE, refresh_interval: 1}}]";
        fs::write(file("limits.yaml"), limits).expect("the folder is new");
        fs::write(file("secret"), SECRET).expect("the folder is new");
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

    /// Makes a token with the secret of a file, as an operator would.
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
    fs::write(path, text).expect("the folder is there");
}

#[test]
fn a_service_leases_with_the_token_of_its_file_and_follows_it_as_it_is_replaced() {
    let server = Guarded::start(&[]);
    let file = server.file("service.token");
    // A token of nobody: the service runs on without a lease.
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
    until("a lease with the good token", leased);

    // Both are replaced while everything runs: the old token counts no more, the lease goes on.
    let watcher = server.token("secret", &["--scope", "status:read"]);
    assert_eq!(server.status(&watcher), 200);
    write(&server.file("next"), NEXT);
    write(
        &file,
        &server.token("next", &["--scope", "capacity", "--client-id", "service*"]),
    );
    write(&server.file("secret"), NEXT);
    until("the next secret in force", || {
        server.status(&watcher) == 401
    });
    let watcher = server.token("secret", &["--scope", "status:read"]);
    assert_eq!(server.status(&watcher), 200);
    until("a lease after both were replaced", leased);

    // In the name of others it leases nothing.
    write(
        &file,
        &server.token("secret", &["--scope", "capacity", "--client-id", "other*"]),
    );
    let other = Service::start(&server.address, &["--token-file", &path]);
    assert_eq!(curl(&[other.address()]).status, 200);
    assert_eq!(other.lease("api"), None);
}

#[test]
fn commands_show_a_token_and_no_output_of_the_server_has_it() {
    let mut server = Guarded::start(&["--metrics-listen", "127.0.0.1:0"]);
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
    let by_file = [
        "get",
        "db",
        "--wants",
        "5",
        "--token-file",
        &file.display().to_string(),
    ];
    assert!(run(&mut command(&by_file)).status.success());
    let by_variable = run(command(&["show"]).env("DOORMAN_TOKEN", &token));
    assert!(
        String::from_utf8_lossy(&by_variable.stdout).contains("db"),
        "{by_variable:?}"
    );
    let without = run(&mut command(&["show"]));
    assert_eq!(without.status.code(), Some(1), "{without:?}");
    assert!(
        String::from_utf8_lossy(&without.stderr).contains("token"),
        "{without:?}"
    );

    // What is wrong is not repeated either.
    assert_eq!(server.status(&format!("{token}x")), 401);
    write(&server.file("secret"), "too short a secret");
    let complaint = |line: &str| line.contains("--auth-secret-file").then_some(());
    server.process.wait_for(complaint);
    let said = server.process.output().join("\n");
    assert!(
        said.contains("DEBUG") || said.contains("TRACE"),
        "it says a lot"
    );
    let secrets = [SECRET, "too short a secret"]
        .into_iter()
        .chain(token.split('.'));
    for secret in secrets {
        assert!(!said.contains(secret), "{secret} in:\n{said}");
    }

    let alone = said
        .lines()
        .find_map(|line| line.strip_prefix("Metrics alone on "));
    let alone = curl(&[alone.expect("it says where")]);
    assert!(alone.body.contains("doorman_leases 1"), "{alone:?}");
}

#[test]
fn a_server_that_would_ask_nobody_stops_with_one_line_that_names_the_ways_on() {
    let home = TempDir::new().expect("a folder for temporary files");
    let output = run(Command::new(doorman())
        .args(["--listen", "0.0.0.0:0", "--data-dir"])
        .arg(home.path().join("data")));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.lines().count(), 1, "{said}");
    for way in [
        "--auth-secret-file",
        "--auth-key-file",
        "--auth-jwks",
        "127.0.0.1",
        "--insecure-no-auth",
    ] {
        assert!(said.contains(way), "{way} in {said}");
    }
    // Both at one time is a mistake.
    let both =
        run(Command::new(doorman()).args(["--insecure-no-auth", "--auth-secret-file", "secret"]));
    assert_eq!(both.status.code(), Some(2), "{both:?}");
}

#[test]
fn what_the_banner_says_to_try_can_be_pasted_into_a_shell() {
    let mut server = Guarded::start(&[]);
    let line = server
        .process
        .wait_for(|line| line.strip_prefix("Try: ").map(str::to_owned));
    let program = doorman();
    let folder = program.parent().expect("it lies in one").display();
    let path = std::env::var("PATH").expect("there is one");
    let output = run(Command::new("sh")
        .args(["-c", &line])
        .env("PATH", format!("{folder}:{path}")));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("\"gets\""), "{line}\n{output:?}");
}
